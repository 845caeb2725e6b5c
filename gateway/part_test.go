package gateway

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Who works on the registry need not be able to run the gateway.
func TestLoadRegistry(t *testing.T) {
	for _, c := range []struct {
		name, file string
		problems   []string
		faults     map[string]string
	}{
		{"only the registry counts", "auth: {issuers: [{issuer: 'x', audience: me}]}\nregistry: {path: c.yaml}\nservers:\n  a: {url: 'http://127.0.0.1:1/mcp', headers: {Authorization: '${UNSET}'}}\n  b: {url: 'http://127.0.0.1:2/mcp'}\n",
			nil, map[string]string{"a": "gw.yaml:4: servers.a.headers.Authorization: the environment variable UNSET is not set"}},
		{"the registry counts", "registry: {pth: c.yaml, max_staleness: 1s}\n",
			[]string{"gw.yaml:1: registry.max_staleness: want at least 2s", "gw.yaml:1: registry.pth: unknown key; did you mean path?"}, nil},
		{"a mistyped section counts", "regstry: {path: c.yaml}\n", []string{"gw.yaml:1: regstry: unknown key; did you mean registry?"}, nil},
		{"servers that are none count", "servers: [a]\n", []string{"gw.yaml:1: servers: want a mapping of keys to values, this is a list"}, nil},
		{"no YAML", "a: [\n", []string{"gw.yaml:2: is not valid YAML, here or in what begins here: did not find expected node content"}, nil},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "gw.yaml"), []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Chdir(dir)
		config, faults, found := LoadRegistry("gw.yaml", func(string) (string, bool) { return "", false })
		var problems []string
		for _, p := range found {
			problems = append(problems, p.String())
		}
		if !slices.Equal(problems, c.problems) || !maps.Equal(faults, c.faults) {
			t.Errorf("%s: got %q and %q, want %q and %q", c.name, problems, faults, c.problems, c.faults)
		}
		if c.problems == nil && (config.Registry.Path != "c.yaml" || len(config.Servers) != 2) {
			t.Errorf("%s: got %+v", c.name, config)
		}
	}
	if _, _, problems := LoadRegistry("nowhere.yaml", os.LookupEnv); len(problems) != 1 {
		t.Errorf("no file: got %v", problems)
	}
}
