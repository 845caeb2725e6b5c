package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/regogate/regogate/e2e/issuer"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream/credentials"
	"github.com/regogate/regogate/registry/strictyaml"
)

// guarded is a server of the official SDK that wants tokens of an issuer, for
// itself, and writes down whose came.
type guarded struct {
	*httptest.Server
	t      *testing.T
	issuer *issuer.Issuer

	mu      sync.Mutex
	came    []came
	revoked map[string]bool // tokens, or subjects
	streams []context.CancelFunc
}

// came is one HTTP request that a server got.
type came struct {
	method, token, sub string
	status             int // 0 where it was served
}

const (
	audience     = "https://backend.example/mcp"
	clientID     = "the-gateway"
	clientSecret = "s3cr3t"
)

// newGuarded starts an issuer and a server: stateful, stateless or sse.
func newGuarded(t *testing.T, kind string, adjust func(*issuer.Issuer)) *guarded {
	t.Helper()
	g := &guarded{t: t, revoked: map[string]bool{}, issuer: &issuer.Issuer{
		Clients: map[string]issuer.Client{clientID: {Secret: clientSecret, Audiences: []string{audience}}},
	}}
	if adjust != nil {
		adjust(g.issuer)
	}
	if err := g.issuer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.issuer.Close)
	get := func(r *http.Request) *sdk.Server { return whoamiServer(auth.TokenInfoFromContext(r.Context())) }
	var handler http.Handler
	switch kind {
	case "sse":
		handler = sdk.NewSSEHandler(get, nil)
	default:
		handler = sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{Stateless: kind == "stateless"})
	}
	g.Server = httptest.NewServer(g.record(auth.RequireBearerToken(g.verify, nil)(handler)))
	t.Cleanup(func() {
		g.cut()
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

// whoamiServer has a tool that tells whose token a call came with; over HTTP+SSE
// the SDK knows nothing but that of the stream.
func whoamiServer(stream *auth.TokenInfo) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "guarded", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "whoami"}, func(_ context.Context, r *sdk.CallToolRequest, _ sdkInput) (*sdk.CallToolResult, any, error) {
		info := stream
		if r.Extra != nil && r.Extra.TokenInfo != nil {
			info = r.Extra.TokenInfo
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s for %s", info.UserID, info.Extra["act"])}}}, nil, nil
	})
	return server
}

// record writes down what comes, and can cut streams off.
func (g *guarded) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		one := came{method: r.Method, token: token}
		if claims, err := g.issuer.Verify(token, audience); err == nil {
			one.sub, _ = claims["sub"].(string)
		}
		g.mu.Lock()
		if g.revoked[token] || g.revoked[one.sub] {
			one.status = http.StatusUnauthorized
		}
		g.came = append(g.came, one)
		if r.Method == http.MethodGet {
			g.streams = append(g.streams, cancel)
		}
		g.mu.Unlock()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// verify is the server's own look at a token.
func (g *guarded) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	claims, err := g.issuer.Verify(token, audience)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
	}
	sub, _ := claims["sub"].(string)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked[token] || g.revoked[sub] {
		return nil, fmt.Errorf("%w: revoked", auth.ErrInvalidToken)
	}
	end, err := claims.GetExpirationTime()
	if err != nil {
		return nil, err
	}
	act, _ := claims["act"].(map[string]any)
	return &auth.TokenInfo{UserID: sub, Expiration: end.Time, Extra: map[string]any{"act": fmt.Sprint(act["sub"])}}, nil
}

// revoke has tokens, or all of a subject, turned away from now on.
func (g *guarded) revoke(what ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range what {
		g.revoked[w] = true
	}
}

func (g *guarded) restore(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.revoked, what)
}

// cut ends all open streams.
func (g *guarded) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cancel := range g.streams {
		cancel()
	}
	g.streams = nil
}

// got returns the requests so far that match.
func (g *guarded) got(match func(came) bool) (list []came) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.came {
		if match(c) {
			list = append(list, c)
		}
	}
	return list
}

// tokens returns those with which a subject came, each once, in order.
func (g *guarded) tokens(sub string) (list []string) {
	for _, c := range g.got(func(c came) bool { return c.sub == sub }) {
		if !slices.Contains(list, c.token) {
			list = append(list, c.token)
		}
	}
	return list
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
	m, err := p.Do(ctx, Call{Server: "alpha", Peer: peer, Subject: peer.subject, Method: mcp.MethodToolsCall, Params: []byte(`{"name":"whoami","arguments":{"text":""}}`)})
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
				for _, c := range g.got(func(came) bool { return true }) {
					if c.sub == "" || slices.Contains(own, c.token) {
						t.Errorf("%s came with a token that is not for the server", c.method)
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
			g := newGuarded(t, kind, func(i *issuer.Issuer) { i.Lifetime = 2 * time.Second })
			p := running(t, map[string]Config{"alpha": g.config(credentials.TokenExchange)}, quick(nil))
			ann := g.user("ann", time.Hour)
			eventually(t, "the third token", func() bool {
				wantWho(t, p, ann, "ann for "+clientID)
				return len(g.tokens("ann")) >= 3
			})
			eventually(t, "the gateway's second token", func() bool { return len(g.tokens(clientID)) >= 2 })
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
			g.revoke(g.tokens("ann")...)
			wantWho(t, p, ann, "ann for "+clientID)
			wantWho(t, p, bob, "bob for "+clientID)
			if a, b := len(g.tokens("ann")), len(g.tokens("bob")); a != 2 || b != 1 {
				t.Errorf("%d tokens of ann, %d of bob", a, b)
			}
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
	streams := func(status int, token string) int {
		return len(g.got(func(c came) bool {
			return c.method == http.MethodGet && c.sub == "ann" && c.status == status && (token == "") == (c.token != g.tokens("ann")[0])
		}))
	}
	first := g.tokens("ann")[0]
	eventually(t, "the stream", func() bool { return streams(0, first) == 1 })
	g.revoke(first)
	g.cut()
	eventually(t, "the stream with another token", func() bool { return streams(http.StatusUnauthorized, first) == 1 && streams(0, "") == 1 })
	if n := len(g.tokens("ann")); n != 2 {
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
			g.revoke("eve")
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
			if n := len(g.tokens("eve")); n > 2+2*tolerated {
				t.Errorf("%d tokens of eve", n) // one for each moment at most
			}
			if n := len(g.got(func(c came) bool { return c.sub == "" || c.sub == "ann" })); n > 0 {
				t.Errorf("%d requests without a good token", n)
			}
			text := log.String()
			if !strings.Contains(text, "oauth_error=invalid_grant") {
				t.Error("the log does not say why")
			}
			for _, secret := range []string{string(ann.subject.Token), string(bob.subject.Token), clientSecret, g.tokens("bob")[0]} {
				if strings.Contains(text, secret) {
					t.Error("the log holds a credential")
				}
			}
			g.restore("eve")
			eventually(t, "eve is served again", func() bool {
				got, err := whoami(t.Context(), p, eve)
				return err == nil && got == "eve for "+clientID
			})
		})
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
		wantWho(t, p, ann, "ann for "+clientID)
		m, err := callTool(t.Context(), p, "beta", "someone", "read", `{}`)
		must(t, m, err)
	}
	close(hang)
	g.issuer.Script(nil)
	eventually(t, "bob is served", func() bool {
		got, err := whoami(t.Context(), p, bob)
		return err == nil && got == "bob for "+clientID
	})
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
