package credentials

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regogate/regogate/e2e/issuer"
	"github.com/regogate/regogate/gateway/auth/mint"
	"github.com/regogate/regogate/registry/strictyaml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret has all that a form and a header have to escape.
const secret = `s3cr:t/+ %é"&=`

const backend = "https://backend.example/mcp"

// rig is a source and its issuer, with a clock that the test moves.
type rig struct {
	*Source
	t      *testing.T
	issuer *issuer.Issuer
	log    *journal

	mu    sync.Mutex
	ahead time.Duration
}

type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newRig(t *testing.T, c Config, adjust func(*issuer.Issuer)) *rig {
	t.Helper()
	r := &rig{t: t, log: &journal{}, issuer: &issuer.Issuer{Clients: map[string]issuer.Client{
		"gate:way": {Secret: secret, Audiences: []string{backend, "backend"}},
	}}}
	if adjust != nil {
		adjust(r.issuer)
	}
	if err := r.issuer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.issuer.Close)
	c.TokenURL, c.ClientID = r.issuer.TokenURL(), "gate:way"
	if c.AuthMethod != PrivateKeyJWT {
		c.ClientSecret = secret
	}
	if c.Resource == "" && c.Audience == "" {
		c.Resource = backend
	}
	if problems := c.Validate("oauth"); len(problems) > 0 {
		t.Fatal(problems)
	}
	var err error
	if r.Source, err = New("alpha", c, slog.New(slog.NewTextHandler(r.log, nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.now = func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return time.Now().Add(r.ahead)
	}
	return r
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += d
}

func (r *rig) user(name string, valid time.Duration) Subject {
	r.t.Helper()
	token, err := r.issuer.User(name, valid, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return Subject{Issuer: r.issuer.URL, Token: strictyaml.Secret(token), Expires: time.Now().Add(valid)}
}

func (r *rig) get(of Subject) strictyaml.Secret {
	r.t.Helper()
	token, err := r.Token(r.t.Context(), of)
	if err != nil {
		r.t.Fatalf("no token: %v", err)
	}
	return token
}

func (r *rig) asked() int { return len(r.issuer.Requests()) }

// says returns who a token for the backend is of, as "sub/act".
func (r *rig) says(token strictyaml.Secret, audience string) string {
	r.t.Helper()
	claims, err := r.issuer.Verify(string(token), audience)
	if err != nil {
		r.t.Fatalf("the token is not good: %v", err)
	}
	act, _ := claims["act"].(map[string]any)
	return fmt.Sprint(claims["sub"], "/", act["sub"])
}

// noSecrets fails where any of the texts holds a credential.
func (r *rig) noSecrets(where string, of Subject) {
	r.t.Helper()
	for _, s := range []string{secret, "s3cr", string(of.Token)} {
		if s != "" && strings.Contains(where, s) {
			r.t.Errorf("a credential is in %s", where)
		}
	}
}

func TestGrants(t *testing.T) {
	signer, err := mint.Generate("ES256")
	if err != nil {
		t.Fatal(err)
	}
	text, err := signer.PEM()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"", Basic, Post, PrivateKeyJWT} {
		for _, grant := range []string{ClientCredentials, TokenExchange} {
			t.Run(method+" "+grant, func(t *testing.T) {
				c := Config{AuthMethod: method, Grant: grant, Scopes: []string{"read", "write"}, Audience: "backend", Resource: backend}
				if method == PrivateKeyJWT {
					c.PrivateKeyFile, c.KeyID = file, "k1"
				}
				r := newRig(t, c, func(i *issuer.Issuer) {
					client := i.Clients["gate:way"]
					client.Key = signer.Public()
					i.Clients["gate:way"] = client
				})
				user := r.user("ann", time.Hour)
				want, wantGrant := "gate:way/<nil>", ClientCredentials
				if grant == TokenExchange {
					want, wantGrant = "ann/gate:way", grantExchange
				}
				if got := r.says(r.get(user), "backend"); got != want {
					t.Errorf("the user's token says %s, want %s", got, want)
				}
				if got := r.says(r.get(Gateway()), "backend"); got != "gate:way/<nil>" {
					t.Errorf("the gateway's own token says %s", got)
				}
				first := r.issuer.Requests()[0]
				if first.Client != "gate:way" || method != "" && first.Method != method || method == "" && first.Method != Basic {
					t.Errorf("the client came as %q by %q", first.Client, first.Method)
				}
				for name, want := range map[string]string{
					"grant_type": wantGrant, "scope": "read write", "audience": "backend", "resource": backend,
				} {
					if got := first.Form.Get(name); got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if has := first.Form.Has("subject_token"); has != (grant == TokenExchange) {
					t.Errorf("the user's token was sent: %v", has)
				}
				if grant == ClientCredentials && r.asked() != 1 {
					t.Errorf("%d requests for one token", r.asked())
				}
			})
		}
	}
}

// TestEachItsOwn: many users come at once, each several times; each gets tokens
// of its own, for one request each.
func TestEachItsOwn(t *testing.T) {
	r := newRig(t, Config{Grant: TokenExchange}, nil)
	const users, each = 20, 10
	var all sync.WaitGroup
	for n := range users {
		user, want := r.user(fmt.Sprint("user-", n), time.Hour), fmt.Sprintf("user-%d/gate:way", n)
		for range each {
			all.Go(func() {
				token, err := r.Token(t.Context(), user)
				if err != nil {
					t.Error(err)
					return
				}
				claims, err := r.issuer.Verify(string(token), backend)
				if err != nil || fmt.Sprintf("%v/gate:way", claims["sub"]) != want {
					t.Errorf("%s got a token of %v (%v)", want, claims["sub"], err)
				}
			})
		}
	}
	all.Wait()
	if r.asked() != users {
		t.Errorf("%d requests for %d users", r.asked(), users)
	}
	// Two tokens of one user are two subjects: they need not say the same.
	before := r.asked()
	r.get(r.user("user-0", time.Hour))
	if r.asked() != before+1 {
		t.Error("another token of a user was not exchanged")
	}
}

func TestUntil(t *testing.T) {
	for _, tt := range []struct {
		name              string
		lifetime, user    time.Duration
		silent            bool
		still, over       time.Duration
		refusedAfterwards bool
	}{
		{"the token's end", 5 * time.Minute, time.Hour, false, 4*time.Minute + 25*time.Second, 4*time.Minute + 31*time.Second, false},
		{"a short token's end", 20 * time.Second, time.Hour, false, 17 * time.Second, 19 * time.Second, false},
		{"the user's end", time.Hour, 5 * time.Minute, false, 4*time.Minute + 25*time.Second, 4*time.Minute + 31*time.Second, false},
		{"the user's token is over", time.Hour, 5 * time.Minute, false, 4 * time.Minute, 5*time.Minute + time.Second, true},
		{"the issuer does not say", time.Hour, time.Hour, true, 50 * time.Second, 55 * time.Second, false},
		{"an hour at most", 100 * time.Hour, 200 * time.Hour, false, 59 * time.Minute, time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, Config{Grant: TokenExchange}, func(i *issuer.Issuer) { i.Lifetime, i.Silent, i.Outlives = tt.lifetime, tt.silent, true })
			user := r.user("ann", tt.user)
			first := r.get(user)
			r.pass(tt.still)
			if again := r.get(user); again != first || r.asked() != 1 {
				t.Errorf("after %s it was asked for anew", tt.still)
			}
			r.pass(tt.over - tt.still)
			if tt.refusedAfterwards {
				_, err := r.Token(t.Context(), user)
				if err == nil || err.Error() != "the user's token has expired" || r.asked() != 1 {
					t.Errorf("the error is %v after %d requests", err, r.asked())
				}
				return
			}
			if again := r.get(user); again == first || r.asked() != 2 {
				t.Errorf("after %s it was not asked for anew", tt.over)
			}
		})
	}
}

func TestNobody(t *testing.T) {
	r := newRig(t, Config{Grant: TokenExchange, SubjectIssuer: "https://idp.example"}, nil)
	foreign := r.user("ann", time.Hour)
	for _, tt := range []struct {
		of   Subject
		want string
	}{
		{Subject{}, "the request came without a token that could be exchanged"},
		{foreign, "the user's token is not of subject_issuer"},
		{Subject{Issuer: "https://idp.example", Token: foreign.Token, Expires: time.Now()}, "the user's token has expired"},
	} {
		_, err := r.Token(t.Context(), tt.of)
		var no *Refusal
		if !errors.As(err, &no) || no.Code != "" || err.Error() != tt.want {
			t.Errorf("the error is %v, want %s", err, tt.want)
		}
	}
	if r.asked() != 0 {
		t.Error("the issuer was asked")
	}
}

// TestRefusal: an issuer's no is the user's alone, stands for a moment and is
// then asked for again.
func TestRefusal(t *testing.T) {
	r := newRig(t, Config{Grant: TokenExchange}, nil)
	ann, bob := r.user("ann", time.Hour), r.user("bob", time.Hour)
	r.issuer.Script(func(w http.ResponseWriter, q *http.Request) bool {
		if q.PostForm.Get("subject_token") != string(ann.Token) {
			return false
		}
		issuer.Answer(w, http.StatusBadRequest, map[string]any{
			"error": "access_denied", "error_description": "not for " + string(ann.Token) + " with " + secret + "\n\x1b[31m of ann",
		})
		return true
	})
	for range 3 {
		_, err := r.Token(t.Context(), ann)
		var no *Refusal
		if !errors.As(err, &no) || no.Code != "access_denied" {
			t.Fatalf("the error is %v", err)
		}
		if want := "the issuer refused with access_denied: not for [secret] with [secret] [31m of ann"; err.Error() != want {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
	if r.asked() != 1 {
		t.Errorf("%d requests for one answer", r.asked())
	}
	if got := r.says(r.get(bob), backend); got != "bob/gate:way" {
		t.Errorf("bob got a token of %s", got)
	}
	log := r.log.String()
	if strings.Count(log, "\n") != 1 || !strings.Contains(log, `msg="no token for a server" server=alpha grant=token_exchange oauth_error=access_denied error=`) {
		t.Errorf("the log is %s", log)
	}
	r.noSecrets(log, ann)
	r.issuer.Script(nil)
	r.pass(pause)
	if got := r.says(r.get(ann), backend); got != "ann/gate:way" {
		t.Errorf("ann got a token of %s", got)
	}
}

// TestOutage: an issuer that hangs is waited for no longer than the timeout, by
// each user for itself and not again at once, and tokens that are there are used.
func TestOutage(t *testing.T) {
	r := newRig(t, Config{Grant: TokenExchange, Timeout: 200 * time.Millisecond}, nil)
	early, ann, bob := r.user("early", time.Hour), r.user("ann", time.Hour), r.user("bob", time.Hour)
	kept := r.get(early)
	hang := make(chan struct{})
	defer close(hang)
	r.issuer.Script(func(_ http.ResponseWriter, q *http.Request) bool {
		if q.PostForm.Get("subject_token") == string(bob.Token) {
			return false
		}
		<-hang
		return true
	})
	for range 3 {
		_, err := r.Token(t.Context(), ann)
		var no *Refusal
		if err == nil || errors.As(err, &no) || err.Error() != "the issuer did not answer within 200ms" {
			t.Fatalf("the error is %v", err)
		}
	}
	if n := strings.Count(r.log.String(), "no token"); n != 1 {
		t.Errorf("%d attempts for one user, want 1", n)
	}
	if r.get(early) != kept {
		t.Error("a good token is not used")
	}
	if got := r.says(r.get(bob), backend); got != "bob/gate:way" {
		t.Errorf("bob got a token of %s", got)
	}
	r.issuer.Script(nil)
	r.pass(pause)
	r.get(ann)
}

// TestCancelled: whoever goes takes nobody along.
func TestCancelled(t *testing.T) {
	r := newRig(t, Config{Grant: TokenExchange}, nil)
	ann := r.user("ann", time.Hour)
	arrived, on := make(chan struct{}), make(chan struct{})
	r.issuer.Script(func(http.ResponseWriter, *http.Request) bool {
		close(arrived)
		<-on
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := r.Token(ctx, ann)
		gone <- err
	}()
	<-arrived
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	close(on)
	if got := r.says(r.get(ann), backend); got != "ann/gate:way" || r.asked() != 1 {
		t.Errorf("%s after %d requests", got, r.asked())
	}
}

func TestTurnedAway(t *testing.T) {
	r := newRig(t, Config{Grant: TokenExchange}, nil)
	ann, bob := r.user("ann", time.Hour), r.user("bob", time.Hour)
	first, bobs := r.get(ann), r.get(bob)
	if !r.TurnedAway(ann, first) {
		t.Fatal("a token that was turned away is kept")
	}
	second := r.get(ann)
	if second == first || r.get(bob) != bobs {
		t.Error("another token than the one was dropped")
	}
	if !r.TurnedAway(ann, first) || r.get(ann) != second {
		t.Error("who comes late with the old token is not led to the new one")
	}
	if r.TurnedAway(ann, second) || r.get(ann) != second {
		t.Error("a new token is dropped at once")
	}
	r.pass(pause)
	if !r.TurnedAway(ann, second) || r.get(ann) == second {
		t.Error("a token is not dropped later")
	}
	if r.TurnedAway(Subject{}, "") {
		t.Error("nobody has another token")
	}
}

func TestBounded(t *testing.T) {
	r := newRig(t, Config{Grant: TokenExchange}, nil)
	r.tokens.Resize(2)
	users := []Subject{r.user("a", time.Hour), r.user("b", time.Hour), r.user("c", time.Hour)}
	for _, u := range users {
		r.get(u)
	}
	if r.tokens.Len() != 2 {
		t.Errorf("%d are kept", r.tokens.Len())
	}
	if got := r.says(r.get(users[0]), backend); got != "a/gate:way" || r.asked() != 4 {
		t.Errorf("%s after %d requests", got, r.asked())
	}
}

// TestTLS: only the configured CA makes an issuer.
func TestTLS(t *testing.T) {
	server := newTLS(t, func(w http.ResponseWriter, _ *http.Request) {
		issuer.Answer(w, http.StatusOK, map[string]any{"access_token": "x", "token_type": "bearer", "expires_in": 60})
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, trusted := range []bool{true, false} {
		c := Config{TokenURL: server.URL, ClientID: "c", ClientSecret: secret}
		if trusted {
			c.TLS.CAFile = ca
		}
		s, err := New("alpha", c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		token, err := s.Token(t.Context(), Gateway())
		var unknown x509.UnknownAuthorityError
		if trusted && token != "x" || !trusted && !errors.As(err, &unknown) {
			t.Errorf("trusted %v: %q, %v", trusted, token, err)
		}
	}
}
