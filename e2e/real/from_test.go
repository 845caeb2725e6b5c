package real_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/regogate/regogate/e2e/binary"
	"github.com/regogate/regogate/e2e/clients"
)

// TestFrom has `regogate init` take over a client's file that names
// server-everything by each of its transports, the old one by its type, and
// runs what it wrote: a tool of each, once it is judged, can be called.
func TestFrom(t *testing.T) {
	clients.Dir(t)
	dir := t.TempDir()
	stdio := clients.Stdio(t, "everything", "")
	text, err := json.Marshal(object{"mcpServers": object{
		"old":   object{"type": "sse", "url": clients.Everything(t.Context(), t, clients.SSE)},
		"new":   object{"type": "http", "url": clients.Everything(t.Context(), t, clients.StreamableHTTP)},
		"piped": object{"command": stdio.Path, "args": stdio.Args},
	}})
	fatal(t, err)
	fatal(t, os.WriteFile(filepath.Join(dir, "mcp.json"), text, 0o600))
	said := initIn(t, dir, "--from", "mcp.json", "--with-key")
	for _, server := range []string{"old", "new", "piped"} {
		if !strings.Contains(said, "  "+server+": 17 tools\n") {
			t.Errorf("init does not say that it found the 17 tools of %s:\n%s", server, said)
		}
	}

	judge(t, filepath.Join(dir, "registry", "catalogue.yaml"))
	var config map[string]any
	written, err := os.ReadFile(filepath.Join(dir, "regogate.yaml"))
	fatal(t, err)
	fatal(t, yaml.Unmarshal(written, &config))
	t.Chdir(dir) // where the paths in it lead from
	g := start(t, dir, config)
	token := regogate(t, "token", "--key", "demo-key.pem", "--persona", "admin")
	spec := clients.Spec{URL: g.URL + "/mcp", Token: strings.TrimSpace(string(token)), Era: clients.Legacy}
	for _, server := range []string{"old", "new", "piped"} {
		spec.Calls = append(spec.Calls, clients.Call{Name: server + "__get-sum", Arguments: arguments(object{"a": 2, "b": 3})})
	}
	got, err := clients.All()[0].Run(t.Context(), t, spec)
	fatal(t, err)
	for _, r := range got.Calls {
		if !slices.Contains(got.Tools, r.Name) {
			t.Errorf("%s is not listed", r.Name)
			continue
		}
		says("The sum of 2 and 3 is 5.")(t, r)
	}
}

// judge says what the suggestions of a tool leave open, and accepts the rest.
func judge(t *testing.T, catalogue string) {
	t.Helper()
	text, err := os.ReadFile(catalogue)
	fatal(t, err)
	suggested := regexp.MustCompile(`get-sum: \{(.*), suggested: true\}`)
	if n := len(suggested.FindAll(text, -1)); n != 3 {
		t.Fatalf("init suggests %d entries of get-sum, want 3:\n%s", n, text)
	}
	text = suggested.ReplaceAll(text, []byte("get-sum: {attributes: [analytics], data: public, $1}"))
	fatal(t, os.WriteFile(catalogue, text, 0o600))
}

// initIn runs `regogate init` in a directory and returns what it says.
func initIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary.Path(t, "-tags", "opacli"), append([]string{"init"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("regogate init: %v\n%s", err, out)
	}
	return string(out)
}
