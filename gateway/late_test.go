package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy"
)

// endless is a condition that no deadline is long enough for.
const endless = `
	some i in numbers.range(1, 20000)
	some j in numbers.range(1, 20000)
	i * j == -1
`

// TestListThatIsNotDecidedInTime has a policy that does not come to an end for
// any tool, and one that does for all but one.
func TestListThatIsNotDecidedInTime(t *testing.T) {
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, c := range []struct {
		name, slow  string
		listTime    time.Duration
		want, lacks string
		allowed     bool
	}{
		{
			name: "every tool", slow: `input.tool.name != ""`, listTime: time.Second,
			want: `{"jsonrpc":"2.0","id":1,"error":{"code":503,"message":"the gateway cannot decide now: policy_timeout","data":{"reasons":["policy_timeout"]}}}`,
		},
		{
			name: "one tool", slow: `input.tool.name == "create_refund"`, listTime: time.Minute,
			want: `"name":"list_prices"`, lacks: `"name":"create_refund"`, allowed: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			rego := "package mcp.authz\n\nslow if " + c.slow + "\n\nallow if not slow\n\nallow if {\n\tslow" + endless + "}\n"
			w := start(t, world.Options{
				Policies: fstest.MapFS{"authz.rego": {Data: []byte(rego)}},
				Adjust:   func(config *gateway.Config) { config.Policy.ListDeadline = c.listTime },
			})
			p := connect(t, w, "/mcp/stripe", "admin")
			w.Records.Forget()
			resp, body := p.post(list)
			if resp.StatusCode != 200 || !strings.Contains(body, c.want) || c.lacks != "" && strings.Contains(body, c.lacks) {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			settled(t, w, 1)
			records := w.Records.All()
			if len(records) != 1 {
				t.Fatalf("%d records", len(records))
			}
			r := records[0]
			if r.Code != policy.CodeTimeout || r.Err == nil || r.Allowed != c.allowed || r.List == nil ||
				r.List.Total() == 0 || c.allowed != (len(r.List.Names(true)) == r.List.Total()-1) {
				t.Errorf("record %+v of list %+v", r, r.List)
			}
		})
	}
}

// TestListChangedNeedsAnotherList makes a list undecidable for a while: its
// stream says nothing of that, and tells the next change.
func TestListChangedNeedsAnotherList(t *testing.T) {
	dir := policyDir(t)
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.Policy.Dir, c.Policy.ListDeadline = dir, 2*time.Second }})
	p := connect(t, w, "/mcp", "developer")
	events := p.listen()
	seen := func() (finished, late int) {
		for _, r := range w.Records.All() {
			if r.List != nil && r.Code == policy.CodeTimeout {
				late++
			} else if r.List != nil {
				finished++
			}
		}
		return finished, late
	}
	eventually(t, "the stream knows its list", func() bool { finished, _ := seen(); return finished == 1 })
	save := func(condition string) {
		t.Helper()
		rule := "package mcp.authz\n\nallow := false if {\n\t\"developer\" in input.claims.roles" + condition + "}\n"
		if err := os.WriteFile(filepath.Join(dir, "freeze.rego"), []byte(rule), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(endless)
	eventually(t, "the list is not decided in time", func() bool { _, late := seen(); return late == 1 })
	select {
	case message := <-events:
		t.Errorf("told %s of a list that nobody knows", message)
	case <-time.After(300 * time.Millisecond):
	}
	save("\n")
	select {
	case message := <-events:
		if message != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
			t.Errorf("message %s", message)
		}
	case <-time.After(10 * time.Second):
		t.Error("told nothing of the change")
	}
}
