package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
)

// ear is a stream on which a client hears of changes.
type ear struct {
	*flow
	of string // subscription id, "" in the legacy era
}

// ears opens the streams of both eras.
func ears(t *testing.T, w *world.World, path, persona string) map[string]ear {
	t.Helper()
	l := legacy(t, w, path, persona, able)
	out := map[string]ear{persona + " GET": {l.get(""), ""}}
	f := modern(t, w, path, persona).open("subscriptions/listen",
		`{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}`)
	f.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":`+
		`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, f.id))
	out[persona+" listen"] = ear{f, f.id}
	return out
}

func (e ear) hears(who, list string) {
	e.t.Helper()
	want := `{"jsonrpc":"2.0","method":"notifications/` + list + `/list_changed"}`
	if e.of != "" {
		want = `{"jsonrpc":"2.0","method":"notifications/` + list + `/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + e.of + `}}}`
	}
	if got := e.next(); got != want {
		e.t.Errorf("%s got  %s\nwant %s", who, got, want)
	}
}

// watched waits until the streams know the lists: what changes after that is
// told.
func (g *rig) watched(streams int) {
	g.t.Helper()
	eventually(g.t, "the streams have looked at the lists", func() bool {
		seen := map[string]bool{}
		for _, r := range g.Records.All() {
			if r.List != nil && r.Method == "resources/read" {
				seen[r.Request.ID] = true
			}
		}
		return len(seen) >= streams
	})
}

// TestListsChangeForThoseWhoseListChanged changes policy, catalogue and backend
// and listens to two principals, each in both eras.
func TestListsChangeForThoseWhoseListChanged(t *testing.T) {
	for _, path := range []string{"/mcp", "/mcp/shop"} {
		t.Run(path, func(t *testing.T) { listsChange(t, path) })
	}
}

func listsChange(t *testing.T, path string) {
	s := shop()
	s.Tells = true
	catalogue := filepath.Join(t.TempDir(), "catalogue.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(catalogue, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("version: 1\nservers: {}\n")
	g := newRigWith(t, func(c *gateway.Config) { c.Registry.Path = catalogue }, []string{"developer-agent unregistered"}, s)
	developer, payments := ears(t, g.World, path, "developer"), ears(t, g.World, path, "payments")
	g.watched(4)
	all := func(ears map[string]ear, list string) {
		t.Helper()
		for who, e := range ears {
			e.hears(who, list)
		}
	}
	none := func(ears map[string]ear, why string) {
		t.Helper()
		for who, e := range ears {
			e.quiet(who + ": " + why)
		}
	}
	g.hide("developer-agent unregistered", "developer-agent ask")
	all(developer, "prompts")
	g.hide("developer-agent unregistered", "developer-agent ask", "developer-agent shop://open/{id}")
	all(developer, "resources")
	g.hide("developer-agent unregistered", "developer-agent ask", "developer-agent shop://open/{id}", "nothing at all")
	none(developer, "nothing has changed for anybody")
	none(payments, "what others see has changed")

	// The catalogue makes a tool known, with a confirmed entry.
	write("version: 1\nservers:\n  shop:\n    tools:\n      open: {attributes: [payments], effect: read, data: public, reach: closed}\n")
	all(developer, "tools")
	none(payments, "the tool is as it was")

	// The backend has a new prompt, which both may see.
	s.Change(func() { s.Prompts = append(s.Prompts, world.Prompt("new")) })
	s.Say("notifications/prompts/list_changed", nil)
	all(developer, "prompts")
	all(payments, "prompts")
	// It says so again, of what is as it was: those who see all of it are told.
	s.Say("notifications/prompts/list_changed", nil)
	all(payments, "prompts")
	none(developer, "nothing that it may see has changed")
}

// TestAFilterIsKept listens to prompts alone.
func TestAFilterIsKept(t *testing.T) {
	g := newRig(t, nil, shop())
	f := modern(t, g.World, "/mcp", "developer").open("subscriptions/listen", `{"notifications":{"promptsListChanged":true,"toolsListChanged":false}}`)
	f.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"promptsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":` + f.id + `}}}`)
	g.hide("open", "shop://a/open", "shop://open/{id}")
	f.quiet("tools and resources were not asked for")
	g.hide("ask")
	ear{f, f.id}.hears("the listener", "prompts")
	f.quiet("prompts were told of")
}

// TestAReconnectingStreamIsToldWhatChanged cuts the session's stream, changes
// the policy and opens it again.
func TestAReconnectingStreamIsToldWhatChanged(t *testing.T) {
	g := newRig(t, nil, shop())
	p := legacy(t, g.World, "/mcp", "developer", able)
	before := p.get("")
	g.watched(1)
	before.cut()
	g.hide("ask", "open")
	f := p.get("")
	got := map[string]bool{f.next(): true, f.next(): true}
	for _, list := range []string{"tools", "prompts"} {
		if !got[`{"jsonrpc":"2.0","method":"notifications/`+list+`/list_changed"}`] {
			t.Errorf("not told of %s: %v", list, got)
		}
	}
	f.quiet("two lists have changed")
	f.cut()
	again := p.get("")
	again.quiet("it was told already")
}

// TestUpdatesOfResources tells of those that were subscribed to, while the
// policy allows it.
func TestUpdatesOfResources(t *testing.T) {
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		s := shop()
		s.Era, s.Tells = era, true
		g := newRig(t, nil, s)
		p := legacy(t, g.World, "/mcp", "developer", able)
		own := p.get("")
		if _, answer := p.do("resources/subscribe", `{"uri":"shop://a/open"}`); answer != `{}` {
			t.Fatalf("subscribe: %s", answer)
		}
		f := modern(t, g.World, "/mcp", "payments").open("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["shop://a/open"]}}`)
		f.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":["shop://a/open"]},"_meta":{"io.modelcontextprotocol/subscriptionId":` + f.id + `}}}`)
		told := func() jsontext.Value { return jsontext.Value(`{"uri":"shop://a/open"}`) }
		streams := 3 // the gateway's own, and two clients'
		eventually(t, "the server can tell", func() bool { return s.Streams() >= streams })
		s.Say("notifications/resources/updated", told())
		want := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"shop://a/open"}}`
		if got := strings.Replace(own.next(), `,"_meta":{}`, "", 1); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		f.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"shop://a/open","_meta":{"io.modelcontextprotocol/subscriptionId":` + f.id + `}}}`)
		g.hide("developer-agent notifications/resources/updated")
		s.Say("notifications/resources/updated", told())
		f.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"shop://a/open","_meta":{"io.modelcontextprotocol/subscriptionId":` + f.id + `}}}`)
		own.quiet("the policy says no by now")
		g.hide("notifications/resources/updated shop://a/open")
		s.Say("notifications/resources/updated", told())
		f.quiet("the policy says no by now")
		own.quiet("the policy says no by now")
		g.hide()
		if _, answer := p.do("resources/unsubscribe", `{"uri":"shop://a/open"}`); answer != `{}` {
			t.Errorf("unsubscribe: %s", answer)
		}
		eventually(t, "the subscription has ended", func() bool {
			return len(s.Got("resources/unsubscribe")) == 1 || era == mcp.Modern && s.Streams() < streams
		})
	}
}
