package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// ward is a world under the shipped policies whose catalogue can put things into
// quarantine: developers may use the shop, payments the bank.
type ward struct {
	*rig
	catalogue string
}

const stocked = `version: 1
servers:
  shop:
    attributes: [developer]
    data: internal
    reach: closed
    tools: {open: {effect: read}, shut: {effect: read}}
  bank:
    attributes: [payments]
    data: internal
    reach: closed
    tools: {pay: {effect: read}}
`

func newWard(t *testing.T) *ward {
	t.Helper()
	wd := &ward{catalogue: filepath.Join(t.TempDir(), "catalogue.yaml")}
	wd.write(t, stocked)
	s := shop()
	s.Instructions = "Mind the gap."
	b := bank()
	w := start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}}, Servers: []*world.Server{s, b},
		Adjust: func(c *gateway.Config) { c.Registry.Path = wd.catalogue },
	})
	wd.rig = &rig{World: w, t: t}
	return wd
}

// write replaces the catalogue at once.
func (wd *ward) write(t *testing.T, text string) {
	t.Helper()
	beside := wd.catalogue + ".new"
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, wd.catalogue); err != nil {
		t.Fatal(err)
	}
}

// hear waits until each stream was told of exactly these lists, in any order.
func hear(t *testing.T, streams map[string]ear, lists ...string) {
	t.Helper()
	for who, e := range streams {
		var got []string
		for range lists {
			text := e.next()
			for _, list := range []string{"tools", "prompts", "resources"} {
				if strings.Contains(text, `"notifications/`+list+`/list_changed"`) {
					got = append(got, list)
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, lists) {
			t.Errorf("%s was told of %q, want %q", who, got, lists)
		}
		e.quiet(who + ": all has been told")
	}
}

// recorded waits until a question about a thing is on record with why it was
// refused, and with another revision of the registry than the first one.
func (wd *ward) recorded(t *testing.T, method, name string) {
	t.Helper()
	eventually(t, method+" of "+name+" is on record as quarantined", func() bool {
		all := wd.Records.All()
		return slices.ContainsFunc(all, func(r *decisionlog.Record) bool {
			return r.List == nil && r.Method == method && r.Thing().Name == name && !r.Allowed && r.Rule == "allow" &&
				fmt.Sprint(r.Reasons) == "[quarantined]" && r.RegistryRevision != all[0].RegistryRevision
		})
	})
}

// TestQuarantine puts a tool into quarantine while two principals listen, each in
// both eras: it is as if it did not exist, those who saw it are told, and nobody
// else is; and then the whole server.
func TestQuarantine(t *testing.T) {
	g := newWard(t)
	developer, payments := ears(t, g.World, "/mcp", "developer"), ears(t, g.World, "/mcp", "payments")
	g.watched(4)
	agent := modern(t, g.World, "/mcp", "developer")
	old := legacy(t, g.World, "/mcp", "developer", able)

	g.write(t, stocked+"quarantine: [{server: shop, tool: open, reason: it leaks}]\n")
	hear(t, developer, "tools")
	hear(t, payments)
	if _, list := agent.do("tools/list", "{}"); strings.Contains(list, "shop__open") || !strings.Contains(list, "shop__shut") {
		t.Errorf("the list is %s", list)
	}
	for _, p := range []*peer{agent, old} {
		absent := look(t, p, "tools/call", `{"name":"shop__none"}`, "shop__none")
		if got := look(t, p, "tools/call", `{"name":"shop__open"}`, "shop__open"); got != absent || !strings.Contains(got, "Unknown tool: NAME") {
			t.Errorf("in quarantine:\n%s\nnot there:\n%s", got, absent)
		}
	}
	g.recorded(t, "tools/call", "open")
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived: %v", got)
	}
	g.write(t, stocked)
	hear(t, developer, "tools")
	hear(t, payments)
	if _, answer := agent.do("tools/call", `{"name":"shop__open"}`); !strings.Contains(answer, "shop ran open") {
		t.Errorf("released: %s", answer)
	}
}

// TestServerInQuarantine takes a server's resources, prompts and instructions away
// with its tools.
func TestServerInQuarantine(t *testing.T) {
	g := newWard(t)
	developer, payments := ears(t, g.World, "/mcp", "developer"), ears(t, g.World, "/mcp", "payments")
	g.watched(4)
	agent := modern(t, g.World, "/mcp", "developer")
	lists := []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"}
	seen := func() (what []string) {
		t.Helper()
		for _, method := range lists {
			if _, answer := agent.do(method, "{}"); strings.Contains(answer, "shop__") || strings.Contains(answer, "shop:") || strings.Contains(answer, "Mind the gap") {
				what = append(what, method)
			}
		}
		return what
	}
	if got := seen(); !slices.Equal(got, lists) {
		t.Fatalf("before, the server shows in %q", got)
	}
	g.write(t, stocked+"quarantine: [{server: shop, reason: broken into}]\n")
	hear(t, developer, "prompts", "resources", "tools")
	hear(t, payments)
	if got := seen(); len(got) != 0 {
		t.Errorf("the server shows in %q", got)
	}
	for _, q := range []struct{ method, member, there, absent string }{
		{"tools/call", "name", "shop__open", "shop__none"},
		{"prompts/get", "name", "shop__ask", "shop__non"},
		{"resources/read", "uri", "shop://a/open", "shop://a/none"},
		{"resources/read", "uri", "shop://open/1", "shop://none/1"},
	} {
		absent := look(t, agent, q.method, member(q.member)(q.absent), q.absent)
		if got := look(t, agent, q.method, member(q.member)(q.there), q.there); got != absent {
			t.Errorf("%s in quarantine:\n%s\nnot there:\n%s", q.method, got, absent)
		}
		g.recorded(t, q.method, strings.TrimPrefix(q.there, "shop__"))
	}
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived: %v", got)
	}
	g.write(t, stocked)
	hear(t, developer, "prompts", "resources", "tools")
	hear(t, payments)
	if got := seen(); !slices.Equal(got, lists) {
		t.Errorf("released, the server shows in %q", got)
	}
}

// TestQuarantineWhileACallRuns: what a server asks during a call that began before
// is judged on what the registry says of the tool now.
func TestQuarantineWhileACallRuns(t *testing.T) {
	const tools = "version: 1\nservers:\n  shop:\n    attributes: [developer]\n    data: internal\n    reach: closed\n    tools: {again: {effect: read}}\n"
	wd := &ward{catalogue: filepath.Join(t.TempDir(), "catalogue.yaml")}
	wd.write(t, tools)
	wd.rig = &rig{t: t, World: start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}}, Servers: []*world.Server{asker("shop")},
		Adjust: func(c *gateway.Config) { c.Registry.Path = wd.catalogue },
	})}
	agent, p := modern(t, wd.World, "/mcp", "developer"), legacy(t, wd.World, "/mcp", "developer", able)
	for _, quarantine := range []string{"", "quarantine: [{server: shop, reason: broken into}]\n"} {
		f := p.open("tools/call", asking("shop__again", `1`, "elicitation/create", `{"message":"who?"}`))
		first := f.message()
		if quarantine != "" {
			wd.write(t, tools+quarantine)
			eventually(t, "the tool is not listed", func() bool {
				_, list := agent.do("tools/list", "{}")
				return !strings.Contains(list, "shop__again")
			})
		}
		p.answer(first.ID, `{"action":"decline"}`)
		m := f.message()
		if quarantine == "" {
			p.answer(m.ID, `{"action":"decline"}`)
			m = f.message()
		}
		want := `{"action":"decline"} then {"action":"decline"}`
		if quarantine != "" {
			want = `{"action":"decline"} then error {"code":403,"message":"the policy does not allow this request to the client"}`
		}
		if m.Kind() != mcp.Response {
			t.Fatalf("with %q the client got %s", quarantine, m.Append(nil))
		}
		if got := said(t, m); got != want {
			t.Errorf("with %q the server got %s, want %s", quarantine, got, want)
		}
	}
}
