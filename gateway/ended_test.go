package gateway_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
)

// another runs a second gateway of the rig's configuration, which can be looked
// into. It returns the gateway, and the world with that one in front.
func (g *rig) another() (*gateway.Gateway, *world.World) {
	g.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	w := &world.World{URL: "http://" + l.Addr().String(), Records: g.Records}
	config := g.Config
	config.PublicURL, config.Limits.Drain = w.URL, time.Second
	ctx, stop := context.WithCancel(context.Background())
	second, err := gateway.New(ctx, config, gateway.Options{
		Version: "test", Log: slog.New(slog.DiscardHandler), Records: g.Records,
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- second.Run(ctx, l) }()
	g.t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			g.t.Error(err)
		}
	})
	return second, w
}

// client opens a session at another gateway of the rig.
func (g *rig) client(w *world.World, persona string) *peer {
	g.t.Helper()
	p := &peer{t: g.t, url: w.URL + "/mcp", token: token(g.t, g.World, persona)}
	return p.initialize(able)
}

// nothing waits until nothing of a session is left, and looks once more.
func nothing(t *testing.T, g *gateway.Gateway, s *world.Server, session string, streams int) {
	t.Helper()
	left := func() bool {
		held, talks, servers := g.Left(session)
		return held > 0 || talks || len(servers) > 0 || s.Streams() > streams
	}
	eventually(t, "nothing is left of the session", func() bool { return !left() })
	noticed()
	if left() {
		held, talks, servers := g.Left(session)
		t.Errorf("came back after the end: %d streams, conversation %v, servers %v, %d streams at the server, want %d", held, talks, servers, s.Streams(), streams)
	}
}

// TestNothingIsLeftOfASessionThatEnds at moments when something is under way.
func TestNothingIsLeftOfASessionThatEnds(t *testing.T) {
	s := shop()
	s.Era, s.Tells = mcp.Legacy, true
	sessions := make(chan string, 100)
	inside := make(chan struct{}, 100)
	var slow, broken atomic.Bool
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		switch {
		case x.Method == "tools/call":
			sessions <- x.Session
		case x.Method != "resources/subscribe":
		case broken.Load():
			inside <- struct{}{}
			x.Cut()
		case slow.Load():
			inside <- struct{}{}
			time.Sleep(200 * time.Millisecond)
		}
		return nil, nil
	}
	g := newRig(t, nil, s)
	second, w := g.another()
	eventually(t, "both gateways hear", func() bool { return s.Streams() == 2 })
	end := func(p *peer) {
		t.Helper()
		if resp, body := p.send(http.MethodDelete, ""); resp.StatusCode != http.StatusNoContent {
			t.Errorf("DELETE: %d %s", resp.StatusCode, body)
		}
	}
	begin := func() *peer {
		t.Helper()
		p := g.client(w, "developer")
		eventually(t, "the tool is there", func() bool {
			_, answer := p.do("tools/call", `{"name":"shop__open","arguments":{}}`)
			return answer[:5] != "error"
		})
		return p
	}
	for what, run := range map[string]func(p *peer){
		"a subscription": func(p *peer) {
			p.do("resources/subscribe", `{"uri":"shop://a/open"}`)
			end(p)
		},
		"an ask": func(p *peer) {
			session := ""
			for len(sessions) > 0 {
				session = <-sessions
			}
			eventually(t, "the server's stream is open", func() bool { return s.Streams() == 3 })
			s.Put(session, mcp.NumberID(3), "roots/list", jsontext.Value(`{}`))
			eventually(t, "the client is asked", func() bool { held, _, _ := second.Left(p.session); return held > 0 })
			end(p)
		},
		"an ask on a stream": func(p *peer) {
			session := ""
			for len(sessions) > 0 {
				session = <-sessions
			}
			own := p.get("")
			eventually(t, "the server's stream is open", func() bool { return s.Streams() == 3 })
			s.Put(session, mcp.NumberID(3), "roots/list", jsontext.Value(`{}`))
			own.message()
			end(p)
		},
		"subscribing": func(p *peer) {
			slow.Store(true)
			defer slow.Store(false)
			f := make(chan *flow, 1)
			go func() { f <- p.open("resources/subscribe", `{"uri":"shop://a/open"}`) }()
			<-inside
			end(p)
			<-f
		},
		"subscribing anew": func(p *peer) {
			p.do("resources/subscribe", `{"uri":"shop://a/open"}`)
			slow.Store(true)
			defer slow.Store(false)
			second.Forget(p.session)
			p.do("ping", `{}`)
			<-inside
			end(p)
		},
		"subscribing anew, in vain": func(p *peer) {
			p.do("resources/subscribe", `{"uri":"shop://a/open"}`)
			broken.Store(true)
			defer broken.Store(false)
			second.Forget(p.session)
			p.do("ping", `{}`)
			<-inside
			end(p)
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := begin()
			run(p)
			if what == "subscribing anew, in vain" {
				time.Sleep(1500 * time.Millisecond) // it would try again after one second
			}
			nothing(t, second, s, p.session, 2)
		})
	}
}
