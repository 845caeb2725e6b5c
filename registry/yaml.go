package registry

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/regogate/regogate/registry/strictyaml"
)

// catalogueFile is one YAML file of a catalogue.
type catalogueFile struct {
	Version int                    `yaml:"version"`
	Servers map[string]serverEntry `yaml:"servers,omitempty"`
	// Pins are digests of definitions by server and tool, for whoever keeps them
	// apart from the tools' own entries.
	Pins       map[string]map[string]string `yaml:"pins,omitempty"`
	Quarantine []Quarantined                `yaml:"quarantine,omitempty"`
}

// serverEntry is one server: what it is, which its tools are too unless they say
// otherwise, and its tools.
type serverEntry struct {
	Server `yaml:",inline"`
	Tools  map[string]Tool `yaml:"tools"`
}

// apply fills in what the tool does not say itself. Labels are merged, the
// tool's own win; everything else is taken whole, but for the description,
// which is the server's alone.
func (s *Server) apply(t *Tool) {
	if t.Attributes == nil {
		t.Attributes = slices.Clone(s.Attributes)
	}
	for _, f := range []struct{ field, common *string }{
		{&t.Data, &s.Data}, {&t.Reach, &s.Reach}, {&t.Env, &s.Env}, {&t.Owner, &s.Owner},
	} {
		if *f.field == "" {
			*f.field = *f.common
		}
	}
	if len(s.Labels) > 0 {
		labels := maps.Clone(s.Labels)
		maps.Copy(labels, t.Labels)
		t.Labels = labels
	}
}

// reader collects what several files say and their problems.
type reader struct {
	servers    []Server
	tools      []Tool
	quarantine []Quarantined // what is valid of it, whatever else is not
	signature  string
	problems   []strictyaml.Problem
	seen       map[string]string // what was there to where it is
	pins       []pin
	pinned     map[toolKey]strictyaml.Problem // tools with a digest, to where that is
}

// pin is one of a file's pins.
type pin struct {
	tool   toolKey
	sha256 string
	at     strictyaml.Problem // its place
}

// readCatalogue reads the named files of fsys, each a whole document, into one
// catalogue. dir is what problems put before a file's name. The error is of
// the file system; with problems servers and tools are incomplete.
func readCatalogue(fsys fs.FS, dir string, names []string) (*reader, error) {
	r := &reader{seen: map[string]string{}, pinned: map[toolKey]strictyaml.Problem{}}
	for _, name := range names {
		data, err := readFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read the catalogue: %w", err)
		}
		r.read(path.Join(dir, name), data)
	}
	if len(r.problems) == 0 { // or the tools are not all there
		r.pin()
	}
	return r, nil
}

// catalogue is what was read, as NewCatalogue takes it.
func (r *reader) catalogue() Catalogue {
	return Catalogue{Servers: r.servers, Tools: r.tools, Quarantine: r.quarantine, Signature: r.signature}
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	// Opening a named pipe would wait for a writer.
	info, err := fs.Stat(fsys, name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return fs.ReadFile(fsys, name)
}

func (r *reader) read(file string, data []byte) {
	var c catalogueFile
	pos, problems := strictyaml.Decode(data, &c, strictyaml.Options{File: file, MaxBytes: maxCatalogue})
	if len(problems) > 0 {
		r.problems = append(r.problems, problems...)
		return
	}
	if c.Version != 1 {
		problems = append(problems, strictyaml.Problem{Path: "version", Message: "want version: 1"})
	}
	for _, server := range slices.Sorted(maps.Keys(c.Servers)) {
		where := strictyaml.Field("servers", server)
		if first, twice := r.seen[server]; twice {
			problems = append(problems, strictyaml.Problem{Path: where, Message: "the server is already in " + first})
			continue
		}
		r.seen[server] = fmt.Sprintf("%s:%d", file, pos.Line(where))
		problems = append(problems, r.server(server, where, c.Servers[server])...)
	}
	problems = append(problems, r.quarantined(file, &c, pos)...)
	pos.Locate(problems)
	r.problems = append(r.problems, problems...)
	r.collectPins(&c, pos)
}

func place(path string, pos *strictyaml.Positions) strictyaml.Problem {
	at := []strictyaml.Problem{{Path: path}}
	pos.Locate(at)
	return at[0]
}

func (r *reader) quarantined(file string, c *catalogueFile, pos *strictyaml.Positions) (problems []strictyaml.Problem) {
	for i, q := range c.Quarantine {
		where := strictyaml.Index("quarantine", i)
		if wrong := q.check(where); len(wrong) > 0 {
			problems = append(problems, wrong...)
			continue
		}
		name := q.seenAs()
		if first, twice := r.seen[name]; twice {
			problems = append(problems, strictyaml.Problem{Path: where, Message: "is already in " + first})
			continue
		}
		r.seen[name] = fmt.Sprintf("%s:%d", file, pos.Line(where))
		r.quarantine = append(r.quarantine, q)
	}
	return problems
}

// seenAs names the quarantine among what a reader has seen.
func (q *Quarantined) seenAs() string { return fmt.Sprintf("quarantine %q %q", q.Server, q.Tool) }

func (r *reader) collectPins(c *catalogueFile, pos *strictyaml.Positions) {
	for _, server := range slices.Sorted(maps.Keys(c.Pins)) {
		for _, tool := range slices.Sorted(maps.Keys(c.Pins[server])) {
			at := place(strictyaml.Field(strictyaml.Field("pins", server), tool), pos)
			r.pins = append(r.pins, pin{toolKey{server, tool}, c.Pins[server][tool], at})
		}
	}
	for server, entry := range c.Servers {
		for tool, t := range entry.Tools {
			if t.SHA256 != "" {
				at := strictyaml.Field(strictyaml.Field("servers", server)+".tools", tool)
				r.pinned[toolKey{server, tool}] = place(at+".sha256", pos)
			}
		}
	}
}

// pin gives the tools the digests that are kept apart from their entries, which
// may be in a file that is read later.
func (r *reader) pin() {
	byName := map[toolKey]*Tool{}
	for i := range r.tools {
		byName[toolKey{r.tools[i].Server, r.tools[i].Name}] = &r.tools[i]
	}
	for _, p := range r.pins {
		t := byName[p.tool]
		switch {
		case t == nil:
			p.at.Message = "no server's entry has this tool; remove the pin, or add the tool"
		case !validSHA256(p.sha256):
			p.at.Message = sha256Rule
		case t.SHA256 != "" && t.SHA256 != p.sha256:
			p.at.Message = fmt.Sprintf("the tool is pinned to %.12s already; remove one of the two", t.SHA256)
		default:
			t.SHA256 = p.sha256
			r.pinned[p.tool] = p.at
			continue
		}
		r.problems = append(r.problems, p.at)
	}
}

func (r *reader) server(name, where string, s serverEntry) []strictyaml.Problem {
	if !ValidServer(name) {
		return []strictyaml.Problem{{Path: where, Message: ServerRule}}
	}
	s.Name = name
	problems := s.check(where)
	for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
		at := strictyaml.Field(where+".tools", tool)
		if !ValidTool(tool) {
			problems = append(problems, strictyaml.Problem{Path: at, Message: ToolRule})
			continue
		}
		t := s.Tools[tool]
		t.Server, t.Name = name, tool
		problems = append(problems, t.check(at)...)
		s.apply(&t)
		problems = append(problems, t.missing(at)...)
		r.tools = append(r.tools, t)
	}
	r.servers = append(r.servers, s.Server)
	return problems
}
