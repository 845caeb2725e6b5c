package metrics

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/binary"
	"github.com/regogate/regogate/e2e/replica"
)

func TestMain(m *testing.M) { os.Exit(binary.Run(m)) }

// The process hands the level of its log over, finds the token beside its
// configuration, and serves profiles to operators alone.
func TestOperatorsOfAProcess(t *testing.T) {
	e := &estate{t: t, admin: address(t)}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := replica.Start(t, replica.Options{Dir: dir, Name: "gateway", Config: map[string]any{
		"listen": "127.0.0.1:0",
		"auth":   map[string]any{"insecure_anonymous": map[string]any{"claims": map[string]any{"sub": "somebody"}}},
		"admin":  map[string]any{"listen": e.admin, "token_file": "token", "pprof": true},
	}})
	ask := func(method, path, body string) string {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, "http://"+e.admin+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+secret)
		return e.send(q)
	}
	eventually(t, "the listener for operators", func() bool {
		resp, err := http.Get("http://" + e.admin)
		return err == nil && resp.Body.Close() == nil
	})
	if got := ask("PUT", "/loglevel", "debug"); got != "debug\n" {
		t.Errorf("the level is %q", got)
	}
	eventually(t, "the log tells", func() bool { return strings.Contains(r.Log(), `"msg":"the log has another level","level":"debug"`) })
	if got := ask("GET", "/debug/pprof/goroutine?debug=1", ""); !strings.HasPrefix(got, "goroutine profile: total ") {
		t.Errorf("profile: %.200s", got)
	}
	if got := ask("GET", "/metrics", ""); !strings.Contains(got, "\nprocess_resident_memory_bytes ") || !strings.Contains(got, "\ngo_goroutines ") {
		t.Errorf("no metrics of the process: %.2000s", got)
	}
	resp, err := http.Get(r.URL + "/debug/pprof/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("clients get %d", resp.StatusCode)
	}
}
