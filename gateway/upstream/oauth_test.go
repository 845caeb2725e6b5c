package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/issuer"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream/credentials"
	"github.com/regogate/regogate/registry/strictyaml"
)

// guarded is a server that wants tokens, and their issuer.
type guarded struct {
	*issuer.Guarded
	t      *testing.T
	issuer *issuer.Issuer
}

const (
	audience     = "https://backend.example/mcp"
	clientID     = "the-gateway"
	clientSecret = "s3cr3t"
)

func newGuarded(t *testing.T, kind string, adjust func(*issuer.Issuer)) *guarded {
	t.Helper()
	i := &issuer.Issuer{Clients: map[string]issuer.Client{clientID: {Secret: clientSecret, Audiences: []string{audience}}}}
	if adjust != nil {
		adjust(i)
	}
	if err := i.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	g := &guarded{issuer.NewGuarded(i, kind, audience), t, i}
	t.Cleanup(g.Shut)
	return g
}

func (g *guarded) config(grant string) Config {
	return Config{URL: g.URL, OAuth: &credentials.Config{
		TokenURL: g.issuer.TokenURL(), Grant: grant, ClientID: clientID, ClientSecret: clientSecret, Resource: audience,
	}}
}

// user is a peer with a token of the issuer.
func (g *guarded) user(name string, valid time.Duration) *tester {
	g.t.Helper()
	token, err := g.issuer.User(name, valid, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	p := testPeer("session of " + name)
	p.subject = Subject{Issuer: g.issuer.URL, Token: strictyaml.Secret(token), Expires: time.Now().Add(valid)}
	return p
}

// whoami is what the server sees of a peer that calls it.
func whoami(ctx context.Context, p *Pool, peer *tester) (string, error) {
	m, err := p.Do(ctx, Call{Server: "alpha", Peer: peer, Subject: peer.subject, Method: mcp.MethodToolsCall, Params: []byte(`{"name":"whoami","arguments":{}}`)})
	if err != nil {
		return "", err
	}
	if m.Error != nil {
		return "", errors.New(string(m.Error))
	}
	content, err := mcp.Elements(mcp.Find(m.Result, "content"))
	if err != nil {
		return "", err
	}
	text, _ := mcp.Text(mcp.Find(content[0], "text"))
	return text, nil
}

func wantWho(t *testing.T, p *Pool, peer *tester, want string) {
	t.Helper()
	if got, err := whoami(t.Context(), p, peer); err != nil || got != want {
		t.Fatalf("the server sees %q (%v), want %q", got, err, want)
	}
}

// kinds are the ways in which a server is reached with tokens.
func kinds() []string { return []string{"stateful", "stateless", "sse"} }

// TestOAuth: many users at once, on every transport and by both grants. The
// server sees who the grant says, and never a user's own token.
func TestOAuth(t *testing.T) {
	for _, kind := range kinds() {
		for _, grant := range []string{credentials.ClientCredentials, credentials.TokenExchange} {
			t.Run(kind+" "+grant, func(t *testing.T) {
				g := newGuarded(t, kind, nil)
				p := running(t, map[string]Config{"alpha": g.config(grant)}, quick(nil))
				if s := p.Current().Server("alpha"); !s.Up {
					t.Fatal(s.Problem)
				}
				var calls sync.WaitGroup
				var own []string
				for n := range 8 {
					name := fmt.Sprint("user-", n)
					u := g.user(name, time.Hour)
					own = append(own, string(u.subject.Token))
					want := name + " for " + clientID
					if grant == credentials.ClientCredentials {
						want = clientID + " for <nil>"
					}
					for range 5 {
						calls.Go(func() {
							if got, err := whoami(t.Context(), p, u); err != nil || got != want {
								t.Errorf("%s is seen as %q (%v), want %q", name, got, err, want)
							}
						})
					}
				}
				calls.Wait()
				p.Close() // what it says last is said with tokens, too
				for _, c := range g.Came(func(issuer.Came) bool { return true }) {
					if c.Subject == "" || slices.Contains(own, c.Token) {
						t.Errorf("%s came with a token that is not for the server", c.Method)
					}
				}
				if n, want := len(g.issuer.Requests()), map[string]int{credentials.ClientCredentials: 1, credentials.TokenExchange: 9}[grant]; n != want {
					t.Errorf("%d requests for tokens, want %d", n, want)
				}
			})
		}
	}
}

// TestOAuthRenews: tokens that are over are replaced in the midst of it all.
func TestOAuthRenews(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, kind, func(i *issuer.Issuer) { i.Lifetime = 3 * time.Second })
			p := running(t, map[string]Config{"alpha": g.config(credentials.TokenExchange)}, quick(nil))
			ann := g.user("ann", time.Hour)
			eventually(t, "the third token", func() bool {
				wantWho(t, p, ann, "ann for "+clientID)
				return len(g.Tokens("ann")) >= 3
			})
			eventually(t, "the gateway's second token", func() bool { return len(g.Tokens(clientID)) >= 2 })
		})
	}
}

// TestOAuthTurnedAway: a token that the server no longer takes is replaced and
// the request sent once more; those of others stay.
func TestOAuthTurnedAway(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			g := newGuarded(t, kind, nil)
			p := running(t, map[string]Config{"alpha": g.config(credentials.TokenExchange)}, quick(nil))
			ann, bob := g.user("ann", time.Hour), g.user("bob", time.Hour)
			wantWho(t, p, ann, "ann for "+clientID)
			wantWho(t, p, bob, "bob for "+clientID)
			g.Revoke(g.Tokens("ann")...)
			wantWho(t, p, ann, "ann for "+clientID)
			wantWho(t, p, bob, "bob for "+clientID)
			if a, b := len(g.Tokens("ann")), len(g.Tokens("bob")); a != 2 || b != 1 {
				t.Errorf("%d tokens of ann, %d of bob", a, b)
			}
		})
	}
}

// TestOAuthByCall: a call goes by its own token, whichever one the peer has; and
// what the session hears by the one that lasts longest.
func TestOAuthByCall(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			g := newGuarded(t, kind, nil)
			p := running(t, map[string]Config{"alpha": g.config(credentials.TokenExchange)}, quick(nil))
			exchanged := func(own Subject) string {
				for _, r := range g.issuer.Requests() {
					if r.Form.Get("subject_token") == string(own.Token) {
						return r.Token
					}
				}
				return ""
			}
			peer := g.user("ann", 2*time.Hour)
			short, long := g.user("ann", time.Hour).subject, g.user("ann", 3*time.Hour).subject
			for n, own := range []Subject{peer.subject, short, long, short, long} {
				_, err := p.Do(t.Context(), Call{
					Server: "alpha", Peer: peer, Subject: own, Method: mcp.MethodToolsCall, Params: []byte(`{"name":"whoami","arguments":{}}`),
				})
				if err != nil {
					t.Fatal(err)
				}
				calls := g.Came(func(c issuer.Came) bool { return c.RPC == mcp.MethodToolsCall })
				if len(calls) != n+1 || calls[n].Token != exchanged(own) {
					t.Errorf("call %d of %d did not go by its own token", n, len(calls))
				}
			}
			if kind != "stateful" {
				return
			}
			streams := func(token string) int {
				return len(g.Came(func(c issuer.Came) bool {
					return c.Method == http.MethodGet && c.Subject == "ann" && (token == "" || c.Token == token)
				}))
			}
			eventually(t, "the stream", func() bool { return streams("") > 0 })
			before := streams(exchanged(long))
			g.Cut()
			eventually(t, "the stream by the latest call's token", func() bool { return streams(exchanged(long)) > before })
		})
	}
}

// TestOAuthStream: a session's own stream that is cut off, and refused with the
// token of before, goes on with another one.
func TestOAuthStream(t *testing.T) {
	g := newGuarded(t, "stateful", nil)
	p := running(t, map[string]Config{"alpha": g.config(credentials.TokenExchange)}, quick(nil))
	ann := g.user("ann", time.Hour)
	wantWho(t, p, ann, "ann for "+clientID)
	first := g.Tokens("ann")[0]
	streams := func(turnedAway, of bool) int {
		return len(g.Came(func(c issuer.Came) bool {
			return c.Method == http.MethodGet && c.Subject == "ann" && c.TurnedAway == turnedAway && of == (c.Token == first)
		}))
	}
	eventually(t, "the stream", func() bool { return streams(false, true) == 1 })
	g.Revoke(first)
	g.Cut()
	eventually(t, "the stream with another token", func() bool { return streams(true, true) >= 1 && streams(false, false) >= 1 })
	if n := len(g.Tokens("ann")); n != 2 {
		t.Errorf("%d tokens", n)
	}
}

// TestOAuthRefused: that there is no token for one user, or that the server
// does not take it, is no matter of the others.
func TestOAuthRefused(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			g := newGuarded(t, kind, nil)
			log := &journal{}
			p := running(t, map[string]Config{"alpha": g.config(credentials.TokenExchange)}, quick(log))
			ann, bob, eve, nobody := g.user("ann", time.Hour), g.user("bob", time.Hour), g.user("eve", time.Hour), testPeer("nobody")
			g.issuer.Script(func(w http.ResponseWriter, r *http.Request) bool {
				if r.PostForm.Get("subject_token") != string(ann.subject.Token) {
					return false
				}
				issuer.Answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": "not " + string(ann.subject.Token)})
				return true
			})
			g.Revoke("eve")
			for range 2 * tolerated {
				_, err := whoami(t.Context(), p, ann)
				wantKind(t, err, Unauthorized, "alpha")
				if want := "server alpha: unauthorized: get a token for it: the issuer refused with invalid_grant: not [secret]"; err.Error() != want {
					t.Fatalf("the error is %v", err)
				}
				_, err = whoami(t.Context(), p, nobody)
				wantKind(t, err, Unauthorized, "alpha")
				_, err = whoami(t.Context(), p, eve)
				wantKind(t, err, Unauthorized, "alpha")
				if !strings.Contains(err.Error(), "HTTP status 401") {
					t.Fatalf("the error is %v", err)
				}
				wantWho(t, p, bob, "bob for "+clientID)
			}
			if n := len(g.Tokens("eve")); n > 2+2*tolerated {
				t.Errorf("%d tokens of eve", n) // one for each moment at most
			}
			if n := len(g.Came(func(c issuer.Came) bool { return c.Subject == "" || c.Subject == "ann" })); n > 0 {
				t.Errorf("%d requests without a good token", n)
			}
			text := log.String()
			if !strings.Contains(text, "oauth_error=invalid_grant") {
				t.Error("the log does not say why")
			}
			for _, secret := range []string{string(ann.subject.Token), string(bob.subject.Token), clientSecret, g.Tokens("bob")[0]} {
				if strings.Contains(text, secret) {
					t.Error("the log holds a credential")
				}
			}
			g.Restore("eve")
			eventually(t, "eve is served again", func() bool {
				got, err := whoami(t.Context(), p, eve)
				return err == nil && got == "eve for "+clientID
			})
		})
	}
}

// TestOAuthEnds: a user whose rights end in the midst of it is told so, and the
// requests of its session that are under way go on.
func TestOAuthEnds(t *testing.T) {
	for _, kind := range kinds() {
		for name, tt := range map[string]struct {
			status int
			code   string
			want   Kind
		}{
			"refused": {http.StatusBadRequest, "invalid_grant", Unauthorized},
			"down":    {http.StatusServiceUnavailable, "temporarily_unavailable", Unavailable},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				g := newGuarded(t, kind, nil)
				p := running(t, map[string]Config{"alpha": g.config(credentials.TokenExchange)}, quick(nil))
				ann := g.user("ann", time.Hour)
				wantWho(t, p, ann, "ann for "+clientID)
				long := make(chan error, 1)
				go func() {
					_, err := p.Do(t.Context(), Call{Server: "alpha", Peer: ann, Subject: ann.subject, Method: mcp.MethodToolsCall, Params: []byte(`{"name":"wait","arguments":{}}`)})
					long <- err
				}()
				receive(t, g.Waits, "a call that takes long")
				g.Revoke(g.Tokens("ann")...)
				g.issuer.Script(func(w http.ResponseWriter, _ *http.Request) bool {
					issuer.Answer(w, tt.status, map[string]any{"error": tt.code})
					return true
				})
				_, err := whoami(t.Context(), p, ann)
				wantKind(t, err, tt.want, "alpha")
				if !strings.Contains(err.Error(), "get a token for it: the issuer ") || !strings.Contains(err.Error(), tt.code) {
					t.Errorf("the error is %v", err)
				}
				g.Go <- struct{}{}
				if err := receive(t, long, "the end of that call"); err != nil {
					t.Errorf("the call that was under way ended with %v", err)
				}
			})
		}
	}
}

// TestOAuthIssuerHangs: who needs a new token waits a bounded time, who has one
// or needs none does not, and whoever goes is let go.
func TestOAuthIssuerHangs(t *testing.T) {
	g := newGuarded(t, "stateful", nil)
	beta := newWebDouble(t, nil)
	c := g.config(credentials.TokenExchange)
	c.OAuth.Timeout = 300 * time.Millisecond
	p := running(t, map[string]Config{"alpha": c, "beta": beta.config()}, quick(nil))
	ann, bob := g.user("ann", time.Hour), g.user("bob", time.Hour)
	wantWho(t, p, ann, "ann for "+clientID)
	hang, arrived := make(chan struct{}), make(chan struct{}, 100)
	g.issuer.Script(func(http.ResponseWriter, *http.Request) bool {
		arrived <- struct{}{}
		<-hang
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := whoami(ctx, p, bob)
		gone <- err
	}()
	receive(t, arrived, "a request for a token")
	cancel()
	wantKind(t, receive(t, gone, "the end of a call"), Canceled, "alpha")
	for range 2 * tolerated {
		_, err := whoami(t.Context(), p, bob)
		wantKind(t, err, Unavailable, "alpha")
		if want := "server alpha: unavailable: get a token for it: the issuer did not answer within 300ms"; err.Error() != want {
			t.Fatalf("the error is %v", err)
		}
	}
	wantWho(t, p, ann, "ann for "+clientID)
	m, err := callTool(t.Context(), p, "beta", "someone", "read", `{}`)
	must(t, m, err)
	close(hang)
	g.issuer.Script(nil)
	eventually(t, "bob is served", func() bool {
		got, err := whoami(t.Context(), p, bob)
		return err == nil && got == "bob for "+clientID
	})
}

// TestOAuthWaitsOutside: whoever waits for a token takes no place from others.
func TestOAuthWaitsOutside(t *testing.T) {
	g := newGuarded(t, "stateless", nil)
	c := g.config(credentials.TokenExchange)
	c.MaxConcurrent, c.OAuth.Timeout = 2, time.Minute
	p := running(t, map[string]Config{"alpha": c}, quick(nil))
	ann := g.user("ann", time.Hour)
	wantWho(t, p, ann, "ann for "+clientID)
	hang, arrived := make(chan struct{}), make(chan struct{}, 10)
	g.issuer.Script(func(http.ResponseWriter, *http.Request) bool {
		arrived <- struct{}{}
		<-hang
		return false
	})
	var waiting sync.WaitGroup
	for n := range 4 {
		u := g.user(fmt.Sprint("user-", n), time.Hour)
		waiting.Go(func() {
			if got, err := whoami(t.Context(), p, u); err != nil || got != fmt.Sprintf("user-%d for %s", n, clientID) {
				t.Errorf("%s (%v)", got, err)
			}
		})
		receive(t, arrived, "a request for a token")
	}
	wantWho(t, p, ann, "ann for "+clientID)
	close(hang)
	waiting.Wait()
}

// TestOAuthDown: a server whose issuer gives the gateway nothing is down, and up
// once it does.
func TestOAuthDown(t *testing.T) {
	g := newGuarded(t, "stateless", nil)
	g.issuer.Script(func(w http.ResponseWriter, _ *http.Request) bool {
		issuer.Answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return true
	})
	p := running(t, map[string]Config{"alpha": g.config(credentials.ClientCredentials)}, quick(nil))
	if got, want := p.Current().Server("alpha").Problem, "unauthorized: get a token for it: the issuer refused with invalid_client"; got != want {
		t.Errorf("the problem is %q, want %q", got, want)
	}
	g.issuer.Script(nil)
	until(t, p, "the server", func(s *State) bool { return s.Server("alpha").Up })
}

// TestSpeaks: over a link that is everybody's, only what the gateway does for
// itself goes by its own token.
func TestSpeaks(t *testing.T) {
	g := newGuarded(t, "stateless", nil)
	peer, call := g.user("ann", time.Hour), g.user("bob", time.Hour).subject
	for name, tt := range map[string]struct {
		request request
		want    Subject
	}{
		"the gateway":           {request{method: discover}, credentials.Gateway()},
		"a peer's subscription": {request{method: listen, peer: peer}, peer.subject},
		"a call":                {request{peer: peer, as: call, turn: &turn{}}, call},
		"a call of nobody":      {request{peer: peer, turn: &turn{}}, Subject{}},
		"nobody's subscription": {request{method: listen, peer: testPeer("nobody")}, Subject{}},
	} {
		if got := tt.request.speaks(); got != tt.want {
			t.Errorf("%s speaks as another", name)
		}
	}
}
