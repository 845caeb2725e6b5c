package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
)

// TestASessionStaysWhereItsAudienceIs opens sessions on the route of a server
// that wants tokens of its own, and on others, and takes them up elsewhere.
func TestASessionStaysWhereItsAudienceIs(t *testing.T) {
	g := newRigWith(t, func(c *gateway.Config) {
		for _, name := range []string{"aa", "bb"} {
			s := c.Servers[name]
			s.Audience = []string{world.Audience}
			c.Servers[name] = s
		}
	}, nil, teller("aa", mcp.Legacy), teller("bb", mcp.Legacy), teller("cc", mcp.Legacy))
	routes := []string{"/mcp", "/mcp/aa", "/mcp/bb", "/mcp/cc"}
	free := map[string]bool{"/mcp": true, "/mcp/cc": true} // these two want the same
	for _, from := range routes {
		opened := legacy(t, g.World, from, "developer", able)
		for _, to := range routes {
			p := *opened
			p.url = g.URL + to
			same := from == to || free[from] && free[to]
			if resp, body := p.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); (resp.StatusCode == http.StatusOK) != same || !same && resp.StatusCode != http.StatusNotFound {
				t.Errorf("POST to %s in a session of %s: %d %s", to, from, resp.StatusCode, body)
			}
			own := p.get("")
			if (own.status == http.StatusOK) != same || !same && own.status != http.StatusNotFound {
				t.Errorf("GET of %s in a session of %s: %d", to, from, own.status)
			}
			own.cut()
			if !same {
				if resp, _ := p.send(http.MethodDelete, ""); resp.StatusCode != http.StatusNotFound {
					t.Errorf("DELETE at %s in a session of %s: %d", to, from, resp.StatusCode)
				}
			}
		}
	}
}

// TestTheOwnStreamIsJudgedByWhoOpenedIt uses one session with two tokens, one of
// which may hear of more.
func TestTheOwnStreamIsJudgedByWhoOpenedIt(t *testing.T) {
	s := teller("old", mcp.Legacy)
	g := newRig(t, nil, s)
	mint := func(hidden ...string) string {
		t.Helper()
		claims, err := world.Claims("developer")
		if err != nil {
			t.Fatal(err)
		}
		claims["hidden"] = append([]string{}, hidden...)
		token, err := g.Mint(claims, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	low := (&peer{t: t, url: g.URL + "/mcp", token: mint("notifications/message")}).initialize(able)
	high := &peer{t: t, url: low.url, token: mint(), session: low.session}
	low.do("tools/call", say("old__open"))
	eventually(t, "the server's stream is open", func() bool { return s.Streams() >= 2 })
	message := func(n string) string { return `{"level":"error","data":` + n + `}` }
	tell := func(n string) { s.Say("notifications/message", jsontext.Value(message(n))) }
	told := func(n string) string {
		return `{"jsonrpc":"2.0","method":"notifications/message","params":` + message(n) + `}`
	}

	own := low.get("")
	g.watched(1)
	high.do("ping", `{}`) // the latest request of the session
	tell("1")
	own.quiet("the token that opened the stream may not hear of it")
	own.cut()

	own = high.get("")
	g.watched(2)
	low.do("ping", `{}`)
	tell("2")
	if got := own.next(); got != told("2") {
		t.Errorf("the stream of the other token: got %s", got)
	}
	// Another GET takes over, and its claims count from then on.
	taken := low.get("")
	g.watched(3)
	if got := own.next(); got != "" {
		t.Errorf("the stream before: got %s, want its end", got)
	}
	tell("3")
	taken.quiet("it is the first token's again")
}

// TestLongNamesOfClients are cut between characters.
func TestLongNamesOfClients(t *testing.T) {
	g := newRig(t, nil, shop())
	for _, name := range []string{strings.Repeat("a", 255) + "éé", strings.Repeat("a", 256) + "é", strings.Repeat("a", 254) + "€€", strings.Repeat("a", 253) + "😀😀"} {
		p := &peer{t: t, url: g.URL + "/mcp", token: token(t, g.World, "developer")}
		resp, body := p.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` +
			name + `","version":"` + name + `"}}}`)
		if p.session = resp.Header.Get("Mcp-Session-Id"); resp.StatusCode != http.StatusOK || p.session == "" {
			t.Errorf("initialize as %d bytes: %d %s", len(name), resp.StatusCode, body)
			continue
		}
		g.Records.Forget()
		if _, answer := p.do("tools/call", `{"name":"shop__open","arguments":{}}`); !strings.Contains(answer, "shop ran open") {
			t.Errorf("a call: %s", answer)
		}
		eventually(t, "the call is on record", func() bool { return len(g.Records.All()) > 0 })
		client := g.Records.All()[0].Request.Client
		for _, got := range []string{client.Name, client.Version} {
			cut, whole := strings.CutSuffix(got, "…")
			if !whole || !strings.HasPrefix(name, cut) || len(cut) > 256 || len(cut) < 253 {
				t.Errorf("on record is %q", got)
			}
		}
	}
}

// TestRequestsOfServersCountBySession: nobody learns how often others are asked.
func TestRequestsOfServersCountBySession(t *testing.T) {
	g := newRig(t, nil, asker("asker"))
	a, b := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "admin", able)
	c := legacy(t, g.World, "/mcp", "developer", able)
	var ids []string
	for _, p := range []*peer{a, b, b, c, b, a} {
		f := p.open("tools/call", asking("asker__ask", `77`, "roots/list", `{}`))
		m := f.message()
		ids = append(ids, string(m.ID.Raw()))
		p.answer(m.ID, `{"roots":[]}`)
		said(t, f.message())
	}
	if got := strings.Join(ids, " "); got != "1 1 2 1 3 2" {
		t.Errorf("the ids are %s", got)
	}
}
