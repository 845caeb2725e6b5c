package policy

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"

	"github.com/regogate/regogate/gateway/policy/plane"
)

// Report is what there is to say of a policy before anybody uses it.
type Report struct {
	Revision string   // of its content; "" with problems
	Problems Problems // what keeps it from being used
	Warnings Problems
	Cache    string // "on", or "off: " and why
	Reads    []string
}

// Examine looks at a directory, or at the file of a bundle, as a gateway with this
// configuration would, whose Dir, FS and OPA do not count. Signatures are not
// verified.
func Examine(path string, c Config) Report {
	info, err := os.Stat(path)
	if err != nil {
		return Report{Problems: Problems{{File: path, Message: "cannot be read: " + reason(err)}}}
	}
	if info.IsDir() {
		t, problems := readDir(path)
		if len(problems) > 0 {
			return Report{Problems: problems}
		}
		return report(t, c)
	}
	body, err := readFile(os.DirFS(filepath.Dir(path)), filepath.Base(path))
	if err != nil {
		return Report{Problems: Problems{{File: path, Message: oneLine(reason(err))}}}
	}
	return ExamineBundle(path, body, c)
}

// ExamineBundle is Examine for the bytes of a bundle, which are called name.
func ExamineBundle(name string, body []byte, c Config) Report {
	from, problems := readBundle(name, body)
	if len(problems) > 0 {
		return Report{Problems: problems}
	}
	r := report(from, c)
	for _, root := range from.roots {
		if root == "" {
			r.Warnings = append(r.Warnings, Problem{File: name,
				Message: "the bundle claims every root, so that no other can stand beside it: build it with roots mcp, and system/log where it has a mask"})
		}
	}
	return r
}

func report(from source, c Config) Report {
	s, problems := newSnapshot(from, c.withDefaults(), slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		return Report{Problems: problems}
	}
	return Report{Revision: s.revision, Warnings: s.warnings, Cache: describe(s.cache, s.uncached), Reads: s.reads.Input()}
}

// bundleFile is a bundle that stands alone.
type bundleFile struct {
	candidate
	roots []string
}

func readBundle(name string, body []byte) (bundleFile, Problems) {
	problem := func(format string, args ...any) (bundleFile, Problems) {
		return bundleFile{}, Problems{{File: name, Message: oneLine(fmt.Sprintf(format, args...))}}
	}
	if err := plane.Inspect(body, time.Time{}); err != nil {
		return problem("%v", err)
	}
	b, err := bundle.NewReader(bytes.NewReader(body)).
		WithSkipBundleVerification(true).WithRegoVersion(ast.RegoV1).WithBundleName(name).Read()
	if err != nil {
		return problem("%v", err)
	}
	if b.Type() == bundle.DeltaBundleType {
		return problem("is a delta bundle, which says nothing by itself: look at the whole one")
	}
	c := &plane.Candidate{Bundles: map[string]string{name: b.Manifest.Revision}, Complete: true}
	for _, m := range b.Modules {
		c.Modules = append(c.Modules, plane.Module{Bundle: name, Path: strings.TrimPrefix(m.Path, "/"), Raw: m.Raw})
	}
	data, err := ast.InterfaceToValue(b.Data)
	if err != nil {
		return problem("%v", err)
	}
	object, ok := data.(ast.Object)
	if !ok {
		return problem("the data must be an object")
	}
	c.Data = object
	return bundleFile{candidate{c}, *b.Manifest.Roots}, nil
}
