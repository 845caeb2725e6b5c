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
	// tools of a server that is down stay known, so that a call can be told
	// from one of a tool that does not exist.
	Up bool
	// Problem says in one line why the server is not up, or what is wrong
	// with its list; "" is nothing. It is for operators: it may name hosts.
	Problem string
	// Partial: the server's list did not come to an end, for a reason that
	// trying again does not mend. Tools holds what came before.
	Partial bool
	Listed  time.Time // when Tools was read; zero where it never was

	// What the server says of itself, as of Listed. Nothing in it is to be
	// trusted.

	Version      string         // revision that it is spoken to in
	Capabilities jsontext.Value // an object, or nil
	Info         jsontext.Value // an object with name and version, or nil
	Instructions string
	Tools        []Definition // in the server's order; no name occurs twice

	byName map[string]int
}

// Tool returns the definition of one tool, or nil where the server has none of
// that name.
func (s *Server) Tool(name string) *Definition {
	i, ok := s.byName[name]
	if !ok {
		return nil
	}
	return &s.Tools[i]
}

// equal reports whether two states of one server tell the world the same.
func (s *Server) equal(other *Server) bool {
	return s.Up == other.Up && s.Problem == other.Problem && s.Partial == other.Partial &&
		s.Listed.IsZero() == other.Listed.IsZero() &&
		s.Version == other.Version && s.Instructions == other.Instructions &&
		string(s.Capabilities) == string(other.Capabilities) && string(s.Info) == string(other.Info) &&
		slices.EqualFunc(s.Tools, other.Tools, func(a, b Definition) bool { return string(a.Raw) == string(b.Raw) })
}
