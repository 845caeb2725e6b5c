package real_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regogate/regogate/policies"
)

// TestDemo runs `regogate demo --check` and compares what it says of each
// persona with what OPA says of the shipped catalogue and policies.
func TestDemo(t *testing.T) {
	type report struct {
		Persona             string
		Visible             int
		AllowedCalls        int `json:"allowed_calls"`
		RefusedCalls        int `json:"refused_calls"`
		ArrivedCalls        int `json:"arrived_calls"`
		UnauthorizedArrived int `json:"unauthorized_arrived"`
		Problems            []string
	}
	var got struct {
		Tools, Servers int
		Personas       []report
		OK             bool
	}
	// It fails, and this with it, when the exit status is not 0.
	out := regogate(t, "demo", "--check", "--listen", "127.0.0.1:0")
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "policies"), policies.FS); err != nil {
		t.Fatal(err)
	}
	inputs, servers := shipped(t)
	if got.Tools != len(inputs) || got.Servers != len(servers) || !got.OK {
		t.Errorf("%d tools, %d servers, ok %v; want %d, %d and true", got.Tools, got.Servers, got.OK, len(inputs), len(servers))
	}
	var personas []string
	seen := map[int]bool{}
	for _, r := range got.Personas {
		personas = append(personas, r.Persona)
		token := regogate(t, "token", "--key", filepath.Join(dir, "key.pem"), "--jwks", filepath.Join(dir, "jwks.json"), "--issuer", issuerName, "--audience", audience, "--persona", r.Persona)
		n := len(opaEval(t, filepath.Join(dir, "policies"), claimsOf(t, string(token)), inputs))
		want := report{Persona: r.Persona, Visible: n, AllowedCalls: n, RefusedCalls: len(inputs) - n, ArrivedCalls: n}
		if r.Problems != nil || r.Visible != want.Visible || r.AllowedCalls != want.AllowedCalls || r.RefusedCalls != want.RefusedCalls ||
			r.ArrivedCalls != want.ArrivedCalls || r.UnauthorizedArrived != 0 {
			t.Errorf("got  %+v\nwant %+v", r, want)
		}
		seen[n] = true
		t.Logf("%s: %d of %d tools", r.Persona, n, len(inputs))
	}
	if want := []string{"payments", "developer", "support", "analyst", "admin"}; !slices.Equal(personas, want) {
		t.Errorf("personas %v, want %v", personas, want)
	}
	if len(seen) < 3 {
		t.Errorf("the personas see %v tools: too much alike for this test to tell", slices.Collect(maps.Keys(seen)))
	}
}

// shipped reads the catalogue that comes with the binary. The demo's servers
// offer just that.
func shipped(t *testing.T) (inputs []toolInput, servers map[string]bool) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "registry", "catalogue", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no catalogue: %v", err)
	}
	entries := readCatalogue(t, paths...)
	servers = map[string]bool{}
	for _, exposed := range slices.Sorted(maps.Keys(entries)) {
		server, name, _ := strings.Cut(exposed, "__")
		raw, err := json.Marshal(map[string]any{"name": name, "description": entries[exposed].Description, "inputSchema": map[string]any{"type": "object"}})
		if err != nil {
			t.Fatal(err)
		}
		servers[server] = true
		inputs = append(inputs, describe(t, offered{server, name, raw}, entries))
	}
	return inputs, servers
}
