package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/gateway/policy/plane"
)

// content is a policy as it is judged: its modules and its data, wherever they
// came from.
type content struct {
	origin   string // what problems name that no file is to blame for
	modules  []file // by the name that problems show
	data     ast.Object
	revision string            // equal revisions have equal modules and data
	bundles  map[string]string // names and revisions, as people know them
}

// source is where content comes from. Reading it may trip over anything.
type source interface {
	from() string
	content() (*content, Problems)
}

// directoryBundle is the name that records give to a policy that is no bundle.
const directoryBundle = "policy"

func (t *tree) from() string { return t.prefix }

// content reads the data; the modules stay as they are.
func (t *tree) content() (*content, Problems) {
	data, problems := readData(t)
	c := &content{
		origin: t.prefix, data: data, revision: t.revision,
		bundles: map[string]string{directoryBundle: t.revision},
	}
	for _, f := range t.files {
		if isModule(f.name) {
			c.modules = append(c.modules, file{t.shown(f.name), f.data})
		}
	}
	return c, problems
}

// candidate is what bundles would bring into force.
type candidate struct{ *plane.Candidate }

func (c candidate) from() string {
	return "bundle " + strings.Join(slices.Sorted(maps.Keys(c.Bundles)), ", ")
}

// is reports whether the snapshot is of this very content.
func (c candidate) is(s *Snapshot) bool {
	return maps.Equal(c.Bundles, s.bundles) && c.revision(c.modules()) == s.revision
}

func (c candidate) revision(modules []file) string {
	return revision(append(slices.Clone(modules), file{"data", []byte(c.Data.String())}))
}

// modules leaves out tests, as a directory does.
func (c candidate) modules() (files []file) {
	for _, m := range c.Modules {
		if isModule(m.Path) {
			files = append(files, file{path.Join(m.Bundle, m.Path), m.Raw})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return files
}

// content implements source.
func (c candidate) content() (*content, Problems) {
	out := &content{origin: c.from(), modules: c.modules(), data: c.Data, bundles: c.Bundles}
	out.revision = c.revision(out.modules)
	if p := checkData(c.Data); p != nil {
		p.File = out.origin
		return nil, Problems{*p}
	}
	return out, nil
}

func isModule(name string) bool {
	return strings.HasSuffix(name, ".rego") && !strings.HasSuffix(name, "_test.rego")
}

// revision names the content: the first 12 hex digits of a SHA-256 over names
// and contents. Where the files are does not matter.
func revision(files []file) string {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	for _, f := range files {
		part([]byte(f.name))
		part(f.data)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
