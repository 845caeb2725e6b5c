// Package layout holds the rules of the code's shape as tests: who may import
// whom, how long files and functions get, what must not be committed.
package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/regogate/regogate"

// mayImport lists, for each package of ours, which others of ours it may
// import. A package that is not listed may not exist.
var mayImport = map[string][]string{
	"gateway/mcp":                  {},
	"gateway/stream":               {},
	"registry/strictyaml":          {},
	"registry/catalogue":           {},
	"policies":                     {},
	"registry":                     {"bundles/keys", "registry/strictyaml"},
	"registry/diff":                {"registry"},
	"gateway/auth":                 {"gateway/mcp", "registry/strictyaml"},
	"gateway/auth/mint":            {},
	"gateway/policy":               {"gateway/mcp", "gateway/policy/plane", "gateway/policy/reads", "registry/strictyaml"},
	"bundles/keys":                 {},
	"bundles":                      {"bundles/keys", "gateway/policy", "gateway/policy/plane"},
	"bundles/server":               {"bundles", "bundles/keys"},
	"gateway/policy/plane":         {},
	"gateway/policy/reads":         {},
	"gateway/policy/decisionlog":   {"gateway/policy"},
	"gateway/session":              {"registry", "registry/strictyaml"},
	"gateway/upstream":             {"gateway/mcp", "gateway/upstream/credentials", "registry", "registry/strictyaml"},
	"gateway/upstream/credentials": {"registry/strictyaml"},
	"gateway/arguments":            {},
	"gateway/limit":                {"registry", "registry/strictyaml"},
	"gateway":                      {"gateway/arguments", "gateway/mcp", "gateway/auth", "gateway/limit", "gateway/meter", "gateway/policy", "gateway/policy/decisionlog", "gateway/session", "gateway/stream", "gateway/upstream", "registry", "registry/diff", "registry/strictyaml"},
	"gateway/meter":                {"gateway/mcp"},
	"e2e/world":                    {"gateway", "gateway/mcp", "gateway/auth", "gateway/auth/mint", "gateway/policy", "gateway/policy/decisionlog", "gateway/session", "gateway/upstream", "registry", "registry/strictyaml", "registry/catalogue", "policies"},
	"cmd/regogate/draft":           {"e2e/world", "gateway", "gateway/auth/mint", "gateway/mcp", "gateway/policy", "gateway/session", "gateway/upstream", "policies", "registry", "registry/catalogue", "registry/strictyaml"},
	"cmd/regogate/review":          {"cmd/regogate/draft", "gateway", "gateway/upstream", "registry", "registry/diff", "registry/strictyaml"},
	"cmd/regogate":                 {"*"},
}

// opaMay lists who may import OPA.
var opaMay = []string{"gateway/policy", "gateway/policy/plane", "gateway/policy/reads", "gateway/policy/decisionlog", "cmd/regogate", "bundles"}

type source struct {
	pkg, path string
	test      bool
	file      *ast.File
	set       *token.FileSet
}

func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(filepath.Dir(rel)), filepath.ToSlash(rel), strings.HasSuffix(name, "_test.go"), f, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("found %d Go files: looked in the wrong place", len(all))
	}
	return all
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		allowed, known := mayImport[s.pkg]
		if s.test || strings.HasPrefix(s.pkg, "e2e/") && s.pkg != "e2e/world" {
			continue
		}
		if !known {
			t.Errorf("%s: package %s has no row in mayImport", s.path, s.pkg)
			continue
		}
		for _, imp := range s.file.Imports {
			p := strings.Trim(imp.Path.Value, `"`)
			if strings.HasPrefix(p, "github.com/open-policy-agent/opa") && !slices.Contains(opaMay, s.pkg) {
				t.Errorf("%s imports %s: OPA belongs to %v", s.path, p, opaMay)
			}
			ours, ok := strings.CutPrefix(p, module+"/")
			if ok && !slices.Contains(allowed, ours) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s: %s may import %v", s.path, ours, s.pkg, allowed)
			}
		}
	}
}

func TestFilesAndFunctionsStayShort(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if n := s.set.Position(s.file.End()).Line; n > 400 {
			t.Errorf("%s has %d lines, more than 400", s.path, n)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1; n > 60 {
				t.Errorf("%s: %s has %d lines, more than 60", s.path, f.Name.Name, n)
			}
		}
	}
}

func TestNothingOfOneMachineIsCommitted(t *testing.T) {
	root := filepath.Join("..", "..")
	banned := regexp.MustCompile(`(^|[^A-Za-z.])/(work|farm|root)/|https?://(registry|proxy|deb|files|static|index)\.[a-z]+\.(org|io|com)`)
	seen := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".cache") || d.Name() == ".venv") {
			return filepath.SkipDir
		}
		switch path.Ext(d.Name()) {
		case ".go", ".md", ".rego", ".yaml", ".yml", ".json", ".sh", ".mjs", ".py", ".txt", "":
		default:
			return nil
		}
		if d.IsDir() || !d.Type().IsRegular() || strings.HasSuffix(p, "layout_test.go") {
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		seen++
		if at := banned.FindString(string(data)); at != "" {
			t.Errorf("%s holds %q", p, at)
		}
		return nil
	})
	if err != nil || seen < 30 {
		t.Fatalf("looked at %d files: %v", seen, err)
	}
}
