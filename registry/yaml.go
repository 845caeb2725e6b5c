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
	Servers map[string]serverEntry `yaml:"servers"`
}

// serverEntry is one server: what its tools have in common, and its tools.
type serverEntry struct {
	Attributes []string          `yaml:"attributes"`
	Data       string            `yaml:"data"`
	Reach      string            `yaml:"reach"`
	Env        string            `yaml:"env"`
	Owner      string            `yaml:"owner"`
	Labels     map[string]string `yaml:"labels"`
	Tools      map[string]Tool   `yaml:"tools"`
}

// apply fills in what the tool does not say itself. Labels are merged, the
// tool's own win; everything else is taken whole.
func (s *serverEntry) apply(t *Tool) {
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

// reader collects the tools and the problems of several files.
type reader struct {
	tools    []Tool
	problems []strictyaml.Problem
	seen     map[string]string // server to where it is
}

// readCatalogue reads the named files of fsys, each a whole document, into one
// catalogue. dir is what problems put before a file's name. The error is of
// the file system; with problems the tools are incomplete.
func readCatalogue(fsys fs.FS, dir string, names []string) ([]Tool, []strictyaml.Problem, error) {
	r := &reader{seen: map[string]string{}}
	for _, name := range names {
		data, err := readFile(fsys, name)
		if err != nil {
			return nil, nil, fmt.Errorf("read the catalogue: %w", err)
		}
		r.read(path.Join(dir, name), data)
	}
	return r.tools, r.problems, nil
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
	pos.Locate(problems)
	r.problems = append(r.problems, problems...)
}

func (r *reader) server(name, where string, s serverEntry) []strictyaml.Problem {
	if !ValidServer(name) {
		return []strictyaml.Problem{{Path: where, Message: ServerRule}}
	}
	common := Tool{Attributes: s.Attributes, Data: s.Data, Reach: s.Reach, Env: s.Env, Owner: s.Owner, Labels: s.Labels}
	problems := common.check(where)
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
	return problems
}
