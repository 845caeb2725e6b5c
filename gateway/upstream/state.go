package upstream

import (
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// State is what is known of all servers at one moment. It is immutable.
type State struct {
	Servers []Server // all that are configured, sorted by name
}

// Load is how busy a server is at one moment.
type Load struct {
	Server string
	// Resting: it could not be reached several times in a row, and is sent
	// nothing but an attempt now and then.
	Resting  bool
	InFlight int // requests under way
}

// Server returns the state of one server, or nil where none of that name is
// configured.
func (s *State) Server(name string) *Server {
	i, ok := slices.BinarySearchFunc(s.Servers, name, func(s Server, name string) int {
		return strings.Compare(s.Name, name)
	})
	if !ok {
		return nil
	}
	return &s.Servers[i]
}

// Server is what is known of one server. It is immutable.
type Server struct {
	Name string
	// Up: the last attempt to reach the server and read its tools worked. The
	// lists of a server that is down stay known, so that a call can be told
	// from one of a tool that does not exist.
	Up bool
	// Problem says in one line why the server is not up, or what is wrong
	// with its lists and with which, several things with "; " between them;
	// "" is nothing. It is for operators: it may name hosts.
	Problem string
	// Partial: the server's list of tools did not come to an end, for a reason
	// that trying again does not mend. Tools holds what came before. Of the
	// other lists, Problem alone tells.
	Partial bool
	Listed  time.Time // when Tools was read; zero where it never was

	// What the server says of itself, as of the last attempt to read it that
	// worked. Nothing in it is to be trusted.

	Version      string         // revision that it is spoken to in
	Capabilities jsontext.Value // an object, or nil
	Info         jsontext.Value // an object with name and version, or nil
	Instructions string

	// Its lists, in the server's order; no Definition.Name occurs twice in
	// one. A list that could not be read is the last one that could. Those
	// but Tools are asked for only where the server declares the capability.

	Tools     []Definition
	Prompts   []Definition
	Resources []Definition
	Templates []Definition // of resources

	// Announced counts how often the server has said that a list changed, in
	// the order of the lists above. It may say so where the list is as before:
	// what is behind it is another.
	Announced [lists]uint64

	index [lists]map[string]int // by Definition.Name
}

// Has reports whether the server declares the capability, and where a setting
// is given, whether that is true in it.
func (s *Server) Has(capability, setting string) bool {
	return declares(s.Capabilities, capability, setting)
}

// Tool returns the definition of one tool, or nil where the server has none of
// that name.
func (s *Server) Tool(name string) *Definition { return s.find(tools, name) }

// Prompt is Tool for the name of a prompt.
func (s *Server) Prompt(name string) *Definition { return s.find(prompts, name) }

// Resource is Tool for the URI of a resource that is listed, byte for byte.
func (s *Server) Resource(uri string) *Definition { return s.find(resources, uri) }

// Template is Tool for the URI template of resources, byte for byte. Which
// template covers a URI is for Definition.Match to say.
func (s *Server) Template(uriTemplate string) *Definition { return s.find(templates, uriTemplate) }

func (s *Server) find(k kind, name string) *Definition {
	i, ok := s.index[k][name]
	if !ok {
		return nil
	}
	return &s.list(k)[i]
}

func (s *Server) list(k kind) []Definition {
	switch k {
	case prompts:
		return s.Prompts
	case resources:
		return s.Resources
	case templates:
		return s.Templates
	}
	return s.Tools
}

// set is for whoever makes the state.
func (s *Server) set(k kind, list []Definition, index map[string]int) {
	s.index[k] = index
	switch k {
	case prompts:
		s.Prompts = list
	case resources:
		s.Resources = list
	case templates:
		s.Templates = list
	default:
		s.Tools = list
	}
}

// keep takes one list over from an earlier state of the same server.
func (s *Server) keep(k kind, from *Server) {
	s.set(k, from.list(k), from.index[k])
	if k == tools {
		s.Listed = from.Listed
	}
}

// sizes are the lengths of its lists, by kind.
func (s *Server) sizes() (n [lists]int) {
	for k := range lists {
		n[k] = len(s.list(k))
	}
	return n
}

// equal reports whether two states of one server tell the world the same.
func (s *Server) equal(other *Server) bool {
	for k := range lists {
		if !slices.EqualFunc(s.list(k), other.list(k), func(a, b Definition) bool { return string(a.Raw) == string(b.Raw) }) {
			return false
		}
	}
	return s.Up == other.Up && s.Problem == other.Problem && s.Partial == other.Partial && s.Announced == other.Announced &&
		s.Listed.IsZero() == other.Listed.IsZero() &&
		s.Version == other.Version && s.Instructions == other.Instructions &&
		string(s.Capabilities) == string(other.Capabilities) && string(s.Info) == string(other.Info)
}
