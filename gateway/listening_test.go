package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
)

const allLists = `{"notifications":{"toolsListChanged":true}}`

// TestStreamsAreCounted opens as many as a principal may have, of both kinds.
func TestStreamsAreCounted(t *testing.T) {
	const most = 4
	g := newRigWith(t, func(c *gateway.Config) { c.Limits.Concurrent = most }, nil, shop())
	old, now := legacy(t, g.World, "/mcp", "developer", able), modern(t, g.World, "/mcp", "developer")
	sessions := []*peer{old, legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "developer", able)}
	listen := func() *flow { return now.open("subscriptions/listen", allLists) }
	calls := func() {
		t.Helper()
		for _, p := range []*peer{old, now} {
			if status, answer := p.do("tools/call", `{"name":"shop__open","arguments":{}}`); status != http.StatusOK || !strings.Contains(answer, "shop ran open") {
				t.Errorf("a call beside the streams: %d %s", status, answer)
			}
		}
	}
	full := func(what string) {
		t.Helper()
		for kind, f := range map[string]*flow{"listen": listen(), "GET": old.get("")} {
			if f.status != http.StatusTooManyRequests || f.header.Get("Retry-After") == "" {
				t.Errorf("%s: one more %s: %d", what, kind, f.status)
			}
			f.cut()
		}
	}
	for what, open := range map[string]func(i int) *flow{
		"listeners": func(int) *flow {
			f := listen()
			f.next()
			return f
		},
		"GETs": func(i int) *flow { return sessions[i].get("") },
		"both": func(i int) *flow {
			if i%2 == 0 {
				return sessions[i].get("")
			}
			f := listen()
			f.next()
			return f
		},
	} {
		var streams []*flow
		for i := range most {
			f := open(i)
			if f.status != http.StatusOK {
				t.Fatalf("%s: the stream %d: %d", what, i, f.status)
			}
			streams = append(streams, f)
		}
		calls()
		full(what)
		if other := legacy(t, g.World, "/mcp", "admin", able).get(""); other.status != http.StatusOK {
			t.Errorf("%s: another principal's stream: %d", what, other.status)
		}
		for _, f := range streams {
			f.cut()
		}
		eventually(t, "there is room again", func() bool {
			var all []*flow
			defer func() {
				for _, f := range all {
					f.cut()
				}
			}()
			for range most {
				f := listen()
				all = append(all, f)
				if f.status != http.StatusOK {
					return false
				}
			}
			return true
		})
		eventually(t, "none is open", func() bool {
			f := listen()
			defer f.cut()
			return f.status == http.StatusOK
		})
		noticed()
	}
}

// TestModernClientsHaveNoOtherMethods than POST.
func TestModernClientsHaveNoOtherMethods(t *testing.T) {
	g := newRig(t, nil, shop())
	session := legacy(t, g.World, "/mcp", "developer", able).session
	for _, path := range []string{"/mcp", "/mcp/shop", "/mcp/none"} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			for _, id := range []string{"", session} {
				p := &peer{t: t, url: g.URL + path, token: token(t, g.World, "developer"), session: id}
				resp, body := p.send(method, "", "MCP-Protocol-Version", "2026-07-28")
				if allow := resp.Header.Values("Allow"); resp.StatusCode != http.StatusMethodNotAllowed || strings.Join(allow, " ") != "POST" {
					t.Errorf("%s %s: %d, Allow %q, %s", method, path, resp.StatusCode, allow, body)
				}
			}
		}
	}
}

// TestADeniedSubscriptionIsExplained while its stream is open, and the record
// does not change any more.
func TestADeniedSubscriptionIsExplained(t *testing.T) {
	s := shop()
	s.Tells = true
	g := newRig(t, []string{"shop://a/shut"}, s)
	g.Records.Forget()
	f := modern(t, g.World, "/mcp", "developer").open("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["shop://a/open","shop://a/shut"]}}`)
	f.next()
	var before []string
	look := func() (all []string) {
		for _, r := range g.Records.All() {
			if r.Method == "resources/subscribe" {
				all = append(all, fmt.Sprintf("%s %v %s", r.Thing().Name, r.Allowed, r.Explanation))
			}
		}
		return all
	}
	eventually(t, "both are on record", func() bool { before = look(); return len(before) == 2 })
	for _, text := range before {
		switch {
		case text == "shop://a/open true {[] [] [] <nil>}":
		case strings.HasPrefix(text, "shop://a/shut false {[by_key]"):
		default:
			t.Errorf("on record is %q", text)
		}
	}
	f.cut()
	noticed()
	if after := look(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("at the end of the stream the records are\n%s\nand were\n%s", after, before)
	}
}

// TestAServerThatHangsHoldsUpLittle: what is agreed with others is not late by
// more than its bound.
func TestAServerThatHangsHoldsUpLittle(t *testing.T) {
	stuck := &world.Server{Name: "stuck", Era: mcp.Legacy, Tells: true, Tools: []jsontext.Value{tool("open")}}
	for i := range 3 {
		stuck.Resources = append(stuck.Resources, world.Resource(fmt.Sprintf("stuck://%d", i)))
	}
	stuck.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		if x.Method == "logging/setLevel" || x.Method == "resources/subscribe" {
			<-x.Context().Done()
			x.Cut()
		}
		return nil, nil
	}
	well := shop()
	well.Era, well.Tells = mcp.Legacy, true
	g := newRig(t, nil, stuck, well)
	p := legacy(t, g.World, "/mcp", "developer", able)
	for _, name := range []string{"stuck__open", "shop__open"} {
		p.do("tools/call", `{"name":"`+name+`","arguments":{}}`)
	}
	from := time.Now()
	opened := make(chan *flow, 1)
	m := modern(t, g.World, "/mcp", "developer")
	go func() {
		opened <- m.open("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["stuck://0","stuck://1","shop://a/open","stuck://2"]}}`)
	}()
	if _, answer := p.do("logging/setLevel", `{"level":"info"}`); answer != `{}` {
		t.Errorf("setLevel: %s", answer)
	}
	if took := time.Since(from); took < time.Second || took > 20*time.Second {
		t.Errorf("setLevel took %s, want 2 s", took)
	}
	if got := strings.Join(levels(well), " "); !strings.HasSuffix(got, "set info") {
		t.Errorf("the server that is well was told %q", got)
	}
	f := <-opened
	f.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":["shop://a/open"]},"_meta":{"io.modelcontextprotocol/subscriptionId":` + f.id + `}}}`)
	if took := time.Since(from); took < 4*time.Second || took > 20*time.Second {
		t.Errorf("the acknowledgement took %s, want 5 s", took)
	}
}
