package reload_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// operators holds what operators read, as status and as metrics, to which
// revision is in force and why the newest is not; reason is an expression, ""
// where nothing is wrong.
func (r *rig) operators(t *testing.T, revision int, reason string) {
	t.Helper()
	var s struct {
		Policy struct {
			Problems []string
			Bundles  []struct {
				Name, Revision, Problem string
				FromDisk                bool `json:"from_disk"`
			}
		}
	}
	if err := json.Unmarshal(r.read(t, "/status"), &s); err != nil {
		t.Fatal(err)
	}
	troubled := 0
	if reason != "" {
		troubled = 1
	}
	if len(s.Policy.Bundles) != 1 || len(s.Policy.Problems) != troubled {
		t.Fatalf("status is %+v", s.Policy)
	}
	b := s.Policy.Bundles[0]
	if b.Name != "main" || b.Revision != name(revision) || b.FromDisk || (b.Problem == "") != (reason == "") ||
		!regexp.MustCompile(reason).MatchString(b.Problem) || strings.Contains(b.Problem, "\n") {
		t.Errorf("status of the bundle is %+v, want %s and %q", b, name(revision), reason)
	}
	metrics := string(r.read(t, "/metrics"))
	for _, want := range []string{
		fmt.Sprintf("regogate_bundle_info{bundle=\"main\",revision=%q} 1\n", name(revision)),
		fmt.Sprintf("regogate_bundle_problem{bundle=\"main\"} %d\n", troubled),
		fmt.Sprintf("regogate_policy_problems %d\n", troubled),
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// read asks the operators' listener.
func (r *rig) read(t *testing.T, path string) []byte {
	t.Helper()
	resp, err := http.Get("http://" + r.journal.operators() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", path, resp.Status, body, err)
	}
	return body
}
