package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// all tells every session of a server, and every subscription, whatever it
// wanted to hear of.
func all(s *world.Server, method, params string) {
	for i := range 20 {
		s.Put(fmt.Sprintf("%s-session-%d", s.Name, i+1), mcp.ID{}, method, jsontext.Value(params))
	}
	s.Put("", mcp.ID{}, method, jsontext.Value(params))
}

// TestUpdatesAreForThoseWhoSubscribed has servers tell everybody everything.
func TestUpdatesAreForThoseWhoSubscribed(t *testing.T) {
	for era, name := range map[mcp.Era]string{mcp.Legacy: "legacy", mcp.Modern: "modern"} {
		t.Run(name, func(t *testing.T) {
			s := shop()
			s.Era, s.Tells = era, true
			g := newRig(t, nil, s)
			one, none := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "payments", able)
			other := legacy(t, g.World, "/mcp", "developer", able) // of the same principal
			streams := []*flow{one.get(""), none.get(""), other.get("")}
			for _, p := range []*peer{one, none, other} {
				p.do("tools/call", `{"name":"shop__open","arguments":{}}`)
			}
			one.do("resources/subscribe", `{"uri":"shop://a/open"}`)
			other.do("resources/subscribe", `{"uri":"shop://a/shut"}`)
			listen := modern(t, g.World, "/mcp", "admin").open("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["shop://a/open"]}}`)
			listen.next()
			want := map[mcp.Era]int{mcp.Legacy: 5, mcp.Modern: 4}[era] // and the gateway's own
			eventually(t, "the server can tell", func() bool { return s.Streams() == want })
			for _, c := range []struct {
				uri  string
				told bool
			}{
				{"shop://a/open", true}, {"shop://a/open/part", true}, {"shop://a/open?x=1", true}, {"shop://a/open#x", true},
				{"shop://a/openly", false}, {"shop://a", false}, {"shop://a/", false}, {"shop://b", false}, {"SHOP://a/open", false}, {"", false},
			} {
				all(s, "notifications/resources/updated", `{"uri":"`+c.uri+`"}`)
				if !c.told {
					continue
				}
				if got, want := strings.Replace(streams[0].next(), `,"_meta":{}`, "", 1), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"`+c.uri+`"}}`; got != want {
					t.Errorf("GET: got  %s\nwant %s", got, want)
				}
				listen.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + c.uri + `","_meta":{"io.modelcontextprotocol/subscriptionId":` + listen.id + `}}}`)
			}
			streams[0].quiet("it has heard of all once")
			listen.quiet("it has heard of all once")
			streams[1].quiet("it has not subscribed")
			streams[2].quiet("it has subscribed to something else")
			one.do("resources/unsubscribe", `{"uri":"shop://a/open"}`)
			all(s, "notifications/resources/updated", `{"uri":"shop://a/open"}`)
			listen.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"shop://a/open","_meta":{"io.modelcontextprotocol/subscriptionId":` + listen.id + `}}}`)
			streams[0].quiet("it has unsubscribed")
		})
	}
}

// TestAURIIsJudgedByEveryTemplateThatItFits in both orders of the server's list.
func TestAURIIsJudgedByEveryTemplateThatItFits(t *testing.T) {
	const wide, narrow = "db://{+any}", "db://secret/{id}"
	for _, order := range [][]string{{wide, narrow}, {narrow, wide}} {
		s := &world.Server{Name: "db", Tells: true}
		for _, template := range order {
			s.Templates = append(s.Templates, world.Template(template))
		}
		g := newRig(t, nil, s)
		for _, path := range []string{"/mcp", "/mcp/db"} {
			for _, c := range []struct {
				hidden       []string
				secret, open bool
			}{
				{nil, true, true},
				{[]string{narrow}, false, true},
				{[]string{wide}, false, false},
				{[]string{wide, narrow}, false, false},
				{[]string{"db://secret/1"}, false, true},
			} {
				g.hide(c.hidden...)
				old, now := legacy(t, g.World, path, "developer", able), modern(t, g.World, path, "developer")
				s.Forget()
				for uri, may := range map[string]bool{"db://secret/1": c.secret, "db://open/1": c.open} {
					for _, p := range []*peer{old, now} {
						_, answer := p.do("resources/read", `{"uri":"`+uri+`"}`)
						if got := strings.Contains(answer, "db has "+uri); got != may || !got && !strings.Contains(answer, `"message":"Resource not found"`) {
							t.Errorf("%s with %v hidden of %v: read %s: %s", path, c.hidden, order, uri, answer)
						}
					}
					if _, answer := old.do("resources/subscribe", `{"uri":"`+uri+`"}`); (answer == `{}`) != may {
						t.Errorf("%s with %v hidden of %v: subscribe %s: %s", path, c.hidden, order, uri, answer)
					}
					f := now.open("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["`+uri+`"]}}`)
					if got := f.next(); strings.Contains(got, uri) != may {
						t.Errorf("%s with %v hidden of %v: listen %s: %s", path, c.hidden, order, uri, got)
					}
					f.cut()
				}
				for _, r := range s.Received() {
					if body := string(r.Body); !c.secret && strings.Contains(body, "db://secret/1") || !c.open && strings.Contains(body, "db://open/1") {
						t.Errorf("%s with %v hidden of %v: arrived %s", path, c.hidden, order, body)
					}
				}
			}
			g.hide()
		}
	}
}
