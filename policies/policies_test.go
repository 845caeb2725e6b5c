package policies_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/regogate/regogate/policies"
)

// shipped is what `regogate init` copies.
func shipped() []string {
	return []string{
		"README.md",
		"data.json",
		"mcp/authz/authz.rego",
		"mcp/authz/authz_test.rego",
		"mcp/lib/asked/asked.rego",
		"mcp/lib/asked/asked_test.rego",
		"mcp/lib/claims/claims.rego",
		"mcp/lib/claims/claims_test.rego",
		"mcp/lib/facets/facets.rego",
		"mcp/lib/facets/facets_test.rego",
		"mcp/lib/grants/grants.rego",
		"mcp/lib/grants/grants_test.rego",
	}
}

func TestFSHoldsWhatIsShipped(t *testing.T) {
	if got := files(t, policies.FS); !slices.Equal(got, shipped()) {
		t.Errorf("embedded:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(shipped(), "\n"))
	}
}

// Plain `opa test policies` reads every JSON and YAML file as data, so a second
// one would change what the tests see.
func TestDataJSONIsTheOnlyData(t *testing.T) {
	for _, name := range files(t, os.DirFS(".")) {
		switch ext := path.Ext(name); {
		case name == "data.json", ext == ".rego", ext == ".md", ext == ".go":
		default:
			t.Errorf("%s would be read as data, or not at all", name)
		}
	}
}

// Each module has tests, in its own directory.
func TestEveryModuleHasTests(t *testing.T) {
	all := files(t, os.DirFS("."))
	for _, name := range all {
		if base, ok := strings.CutSuffix(name, ".rego"); ok && !strings.HasSuffix(base, "_test") &&
			!slices.Contains(all, base+"_test.rego") {
			t.Errorf("%s has no %s_test.rego", name, base)
		}
	}
}

var block = regexp.MustCompile("(?s)```rego\n(.*?)```")

// The Rego that the README shows stands in a file that opa tests.
func TestREADMEShowsTestedRego(t *testing.T) {
	var tested strings.Builder
	root := os.DirFS(".")
	for _, name := range files(t, root) {
		if path.Ext(name) == ".rego" {
			tested.WriteString(read(t, root, name))
		}
	}
	blocks := block.FindAllStringSubmatch(read(t, root, "README.md"), -1)
	if len(blocks) == 0 {
		t.Fatal("README.md shows no Rego")
	}
	for _, b := range blocks {
		for part := range strings.SplitSeq(strings.TrimSpace(b[1]), "\n\n") {
			if !strings.Contains(tested.String(), part) {
				t.Errorf("README.md shows what no file holds:\n%s", part)
			}
		}
	}
}

func files(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func read(t *testing.T, fsys fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
