package gateway_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/regogate/regogate/e2e/issuer"
	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/gateway/upstream/credentials"
)

// tokens is a world with an issuer and a server, guarded, that sees the user.
type tokens struct {
	*world.World
	t       *testing.T
	issuer  *issuer.Issuer
	guarded *issuer.Guarded
	log     *lines
}

const (
	tokenAudience = "https://guarded.example/mcp"
	tokenClient   = "regogate"
)

func newTokens(t *testing.T, kind string, adjust func(*gateway.Config)) *tokens {
	t.Helper()
	const secret = "of-the-client"
	i := &issuer.Issuer{Clients: map[string]issuer.Client{tokenClient: {Secret: secret, Audiences: []string{tokenAudience}}}}
	if err := i.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	g := issuer.NewGuarded(i, kind, tokenAudience)
	t.Cleanup(g.Shut)
	log := &lines{}
	r := newRules(t)
	w := start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		Log:       slog.New(slog.NewJSONHandler(log, nil)),
		Adjust: func(c *gateway.Config) {
			c.Policy.Dir, c.Policy.Deadline = r.dir, 10*time.Second
			c.Auth.Issuers = []auth.Issuer{{Issuer: i.URL, Audience: []string{issuer.Gateway}, Algorithms: []string{"ES256"}, JWKSURL: i.URL + "/jwks"}}
			c.Servers["guarded"] = gateway.Server{Config: upstream.Config{URL: g.URL, OAuth: &credentials.Config{
				Grant: credentials.TokenExchange, TokenURL: i.TokenURL(), ClientID: tokenClient, ClientSecret: secret, Resource: tokenAudience,
			}}}
			if adjust != nil {
				adjust(c)
			}
			if problems := c.Validate(); len(problems) > 0 {
				t.Error(problems)
			}
		},
	})
	return &tokens{w, t, i, g, log}
}

// user returns a token of somebody.
func (k *tokens) user(name string, more map[string]any) string {
	k.t.Helper()
	token, err := k.issuer.User(name, time.Hour, more)
	if err != nil {
		k.t.Fatal(err)
	}
	return token
}

// client is one of an era with a token.
func (k *tokens) client(era mcp.Era, token string) *peer {
	k.t.Helper()
	if era == mcp.Modern {
		p := modern(k.t, k.World, "/mcp", "support")
		p.token = token
		return p
	}
	return (&peer{t: k.t, url: k.URL + "/mcp", token: token}).initialize("{}")
}

const whoami = `{"name":"guarded__whoami","arguments":{}}`

// quiet fails where a credential is in the log, or a user's own has reached the
// server.
func (k *tokens) quiet(own ...string) {
	k.t.Helper()
	secrets := append([]string{"of-the-client"}, own...)
	for _, c := range k.guarded.Came(func(issuer.Came) bool { return true }) {
		if c.Subject == "" || slices.Contains(own, c.Token) {
			k.t.Errorf("%s came with a token that is not for the server", c.Method)
		}
		secrets = append(secrets, c.Token)
	}
	text := k.log.String()
	for _, token := range secrets {
		if strings.Contains(text, token) {
			k.t.Error("the log holds a credential")
		}
	}
}

// TestServersSeeTheUser: users of both eras at once, before servers of both. Each
// is itself to the server, and none of their own tokens gets there.
func TestServersSeeTheUser(t *testing.T) {
	for _, kind := range []string{"stateful", "stateless", "sse"} {
		t.Run(kind, func(t *testing.T) {
			k := newTokens(t, kind, nil)
			var calls sync.WaitGroup
			var own []string
			for n := range 6 {
				name := fmt.Sprint("user-", n)
				own = append(own, k.user(name, nil))
				for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
					p := k.client(era, own[n])
					for range 3 {
						calls.Go(func() {
							status, answer := p.do("tools/call", whoami)
							if want := `"text":"` + name + ` for ` + tokenClient + `"`; status != http.StatusOK || !strings.Contains(answer, want) {
								t.Errorf("%s got %d %s", name, status, answer)
							}
						})
					}
				}
			}
			calls.Wait()
			k.quiet(own...)
			if n := len(k.issuer.Requests()); n != 7 {
				t.Errorf("%d requests for tokens of six users and the gateway", n)
			}
		})
	}
}

// exchanged returns the token that one of a user's was exchanged for, "" where it
// was not.
func (k *tokens) exchanged(own string) string {
	for _, r := range k.issuer.Requests() {
		if r.Form.Get("subject_token") == own {
			return r.Token
		}
	}
	return ""
}

// TestEachCallGoesByItsOwnToken: where a session's client has a new token, or two
// at once, each call goes by the one that it was judged on.
func TestEachCallGoesByItsOwnToken(t *testing.T) {
	for _, kind := range []string{"stateful", "stateless", "sse"} {
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			t.Run(fmt.Sprint(kind, " ", era), func(t *testing.T) {
				k := newTokens(t, kind, nil)
				first, second := k.user("ann", nil), k.user("ann", nil)
				p := k.client(era, first)
				for n, own := range []string{first, second, first, second} {
					p.token = own
					if _, answer := p.do("tools/call", whoami); !strings.Contains(answer, "ann for "+tokenClient) {
						t.Fatal(answer)
					}
					calls := k.guarded.Came(func(c issuer.Came) bool { return c.RPC == "tools/call" })
					if got := calls[len(calls)-1].Token; len(calls) != n+1 || got != k.exchanged(own) {
						t.Errorf("call %d of %d did not go by the token that it came with", n, len(calls))
					}
				}
				k.quiet(first, second)
			})
		}
	}
}

// TestStreamGoesByTheLatestToken: what a server says of its own accord is heard
// with the token of the session's latest request, wherever that went.
func TestStreamGoesByTheLatestToken(t *testing.T) {
	k := newTokens(t, "stateful", nil)
	first := k.user("ann", nil)
	second, err := k.issuer.User("ann", 2*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := k.client(mcp.Legacy, first)
	p.do("tools/call", whoami)
	streams := func(own string) int {
		return len(k.guarded.Came(func(c issuer.Came) bool { return c.Method == http.MethodGet && c.Token == k.exchanged(own) }))
	}
	eventually(t, "the stream", func() bool { return streams(first) == 1 })
	p.token = second
	p.do("tools/list", "{}")
	k.guarded.Cut()
	eventually(t, "the stream by the new token", func() bool { return streams(second) > 0 })
	k.quiet(first, second)
}

// TestNoTokenForTheUser: who has no token that the server takes gets one answer
// whatever the reason, the log has that, and nobody else is touched.
func TestNoTokenForTheUser(t *testing.T) {
	k := newTokens(t, "stateful", func(c *gateway.Config) {
		c.Auth.InsecureAnonymous = &auth.Anonymous{Claims: map[string]any{"sub": "anonymous"}}
	})
	ann, bob, eve := k.user("ann", nil), k.user("bob", nil), k.user("eve", nil)
	k.issuer.Script(func(w http.ResponseWriter, r *http.Request) bool {
		if r.PostForm.Get("subject_token") != ann {
			return false
		}
		issuer.Answer(w, http.StatusForbidden, map[string]any{"error": "access_denied", "error_description": "no " + ann})
		return true
	})
	k.guarded.Revoke("eve")
	const want = `error {"code":-32603,"message":"access to server guarded was refused","data":{"server":"guarded","reason":"backend_unauthorized"}}`
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for name, token := range map[string]string{"refused by the issuer": ann, "refused by the server": eve, "anonymous": ""} {
			p := k.client(era, token)
			if status, answer := p.do("tools/call", whoami); status != http.StatusOK || answer != want {
				t.Errorf("%s: %d %s", name, status, answer)
			}
		}
		if _, answer := k.client(era, bob).do("tools/call", whoami); !strings.Contains(answer, "bob for "+tokenClient) {
			t.Errorf("bob got %s", answer)
		}
	}
	if n := len(k.guarded.Came(func(c issuer.Came) bool { return c.Subject != "eve" && c.Subject != "bob" && c.Subject != tokenClient })); n > 0 {
		t.Errorf("%d requests of those without a token", n)
	}
	eventually(t, "the log lines", func() bool {
		text := k.log.String()
		return strings.Count(text, `"outcome":"backend_unauthorized"`) == 6 && strings.Contains(text, `"oauth_error":"access_denied"`) &&
			strings.Contains(text, `unauthorized: get a token for it: the issuer refused with access_denied: no [secret]"`) &&
			strings.Contains(text, "the request came without a token that could be exchanged") &&
			strings.Contains(text, "it answered with HTTP status 401")
	})
	k.quiet(ann, bob, eve)
}
