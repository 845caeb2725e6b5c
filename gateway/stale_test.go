package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway"
)

// TestWhatCouldNotBeDecidedIsMadeUpFor changes the policy while the registry is
// stale, so that no list can be looked at, and listens on after that.
func TestWhatCouldNotBeDecidedIsMadeUpFor(t *testing.T) {
	if testing.Short() {
		t.Skip("the streams look again after 15 s")
	}
	catalogue := filepath.Join(t.TempDir(), "catalogue.yaml")
	write := func() {
		t.Helper()
		if err := os.WriteFile(catalogue, []byte("version: 1\nservers: {}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	g := newRigWith(t, func(c *gateway.Config) { c.Registry.Path, c.Registry.MaxStaleness = catalogue, 2*time.Second }, nil, shop())
	streams := ears(t, g.World, "/mcp", "developer")
	g.watched(2)
	p := modern(t, g.World, "/mcp", "developer")
	list := func() string { _, answer := p.do("prompts/list", `{}`); return answer }
	if err := os.Remove(catalogue); err != nil {
		t.Fatal(err)
	}
	const stale = `error {"code":503,"message":"the gateway cannot decide now: registry_stale","data":{"reasons":["registry_stale"]}}`
	eventually(t, "the registry is stale", func() bool { return list() == stale })
	// Every name is answered alike, and no stream says anything.
	for _, ask := range [][2]string{
		{"tools/call", `{"name":"shop__open"}`}, {"tools/call", `{"name":"x"}`}, {"prompts/get", `{"name":"shop__ask"}`},
		{"resources/read", `{"uri":"shop://a/open"}`}, {"resources/read", `{"uri":"x"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}}`},
	} {
		if _, answer := p.do(ask[0], ask[1]); answer != stale {
			t.Errorf("%s %s: %s", ask[0], ask[1], answer)
		}
	}
	g.rules.set([]string{"ask"}, nil)
	for who, e := range streams {
		e.quiet(who + ": nothing can be decided")
	}
	time.Sleep(time.Second) // by now the policy has been read
	write()
	eventually(t, "the list is another one", func() bool {
		answer := list()
		return strings.Contains(answer, `"shop__lid"`) && !strings.Contains(answer, `"shop__ask"`)
	})
	for who, e := range streams {
		e.hears(who, "prompts")
	}
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived at the backends: %v", got)
	}
}
