package estate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/replica"
)

// registryStatus is what /status says of a replica's registry.
func (n *node) registryStatus(t testing.TB) (s struct {
	Revision       string
	Stale, Serving bool
	Problems       []string
}) {
	t.Helper()
	var all struct{ Registry any }
	all.Registry = &s
	if err := json.Unmarshal([]byte(n.tells(t, "/status")), &all); err != nil {
		t.Fatal(err)
	}
	return s
}

// calls waits until a call of a tool ends so.
func (n *node) calls(t testing.TB, tool int, kind string) {
	t.Helper()
	replica.Within(t, liveness, fmt.Sprintf("t%d is %s", tool, kind), func() bool {
		out, err := n.client.Call(t.Context(), fmt.Sprint("alpha__t", tool), nil)
		if err != nil {
			return false
		}
		switch kind {
		case allowed:
			return out.Result != nil
		case unknown:
			return out.Code == -32602 && strings.HasPrefix(out.Text, "Unknown tool")
		}
		return out.Code == 503 && strings.Contains(string(out.Error), "registry_stale")
	})
}

// TestStaleness kills PostgreSQL under a replica that denies what it cannot know and
// under one whose operator chose otherwise, and then starts both without it.
func TestStaleness(t *testing.T) {
	t.Parallel()
	e := start(t, options{replicas: 2, bad: []string{"panic", "DATA RACE"}, unready: true, config: func(_ *node, at int, config object) {
		config["registry"].(object)["insecure_serve_stale"] = at == 1
	}})
	strict, lax := e.nodes[0], e.nodes[1]
	for at, n := range e.nodes {
		n.calls(t, 0, allowed)
		if warned := strings.Contains(n.Log(), "insecure_serve_stale is set"); warned != (at == 1) {
			t.Errorf("replica %d warned of insecure_serve_stale: %v", at, warned)
		}
	}
	e.pg.Kill()
	strict.calls(t, 0, stale)
	replica.Within(t, liveness, "the other says that it is stale, and serves", func() bool {
		s := lax.registryStatus(t)
		return s.Stale && s.Serving && len(s.Problems) > 0 && strings.Contains(lax.Log(), `"msg":"registry is stale"`)
	})
	if out, err := lax.client.Call(t.Context(), "alpha__t0", nil); err != nil || out.Result == nil || lax.Status() != "degraded" ||
		!strings.Contains(lax.Log(), `"serving":true`) {
		t.Errorf("a call had %+v, %v; it is %s\n%s", out, err, lax.Status(), lax.Log())
	}
	if s := strict.registryStatus(t); !s.Stale || s.Serving || s.Revision == "" || len(s.Problems) == 0 || strict.Status() != "not_ready" {
		t.Errorf("the strict one is %s and says %+v", strict.Status(), s)
	}
	if _, err := strict.client.List(t.Context()); err == nil || !strings.Contains(err.Error(), "registry_stale") {
		t.Errorf("a list: %v", err)
	}
	e.backend.Forget()
	for _, n := range e.nodes {
		n.restart(t)
		n.calls(t, 0, stale)
		if s := n.registryStatus(t); s.Serving || s.Revision != "" || len(s.Problems) == 0 || n.Status() != "not_ready" {
			t.Errorf("one that started without a registry is %s and says %+v", n.Status(), s)
		}
	}
	if got := e.backend.Calls(); len(got) != 0 {
		t.Errorf("%d calls reached the backend", len(got))
	}
	e.pg.Start()
	for at, n := range e.nodes {
		n.calls(t, 0, allowed)
		replica.Within(t, liveness, fmt.Sprintf("replica %d is ready", at), func() bool { return n.Status() == "ready" })
		if s := n.registryStatus(t); s.Stale || !s.Serving || s.Revision != "1" || len(s.Problems) != 0 {
			t.Errorf("replica %d says %+v", at, s)
		}
	}
}
