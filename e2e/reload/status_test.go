package reload_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStatus: OPA's status service is told which revision is active and why the
// newest is not, and that it is mended.
func TestStatus(t *testing.T) {
	r := start(t, options{long: true, opa: map[string]any{"status": map[string]any{"service": "depot"}}})
	r.status(t, "rev1", "")
	broken := publication(bad(1))
	broken.Files[authz] = "package mcp.authz\n\nother := true\n"
	r.put(t, broken)
	r.status(t, "rev1", "no rule allow")
	r.good(t, 2)
	r.status(t, "rev2", "")
}

// status waits until the newest status has this revision as the active one, and
// this in its message; "" is none.
func (r *rig) status(t *testing.T, revision, message string) {
	t.Helper()
	var last json.RawMessage
	eventually(t, "a status with "+revision+" and "+message, func() bool {
		all := r.depot.Statuses()
		if len(all) == 0 {
			return false
		}
		last = all[len(all)-1]
		var status struct {
			Labels  map[string]string
			Bundles map[string]struct {
				ActiveRevision string `json:"active_revision"`
				Message        string
				Errors         []any
			}
		}
		if err := json.Unmarshal(last, &status); err != nil {
			t.Fatal(err)
		}
		b := status.Bundles["main"]
		return b.ActiveRevision == revision && status.Labels["regogate_version"] != "" &&
			(message == "") == (b.Message == "") && strings.Contains(b.Message, message)
	})
}
