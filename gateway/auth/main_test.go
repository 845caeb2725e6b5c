package auth

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regogate/regogate/gateway/auth/mint"
)

const (
	testIssuer   = "https://idp.example.test"
	testAudience = "mcp-gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signers are generated once: an RSA key takes a tenth of a second.
var signers = sync.OnceValue(func() map[string]*mint.Signer {
	out := make(map[string]*mint.Signer)
	for name, alg := range map[string]string{"rsa1": "RS256", "rsa2": "RS256", "rsa3": "RS256", "ec": "ES256", "ed": "EdDSA"} {
		s, err := mint.Generate(alg)
		if err != nil {
			panic(err)
		}
		out[name] = s
	}
	return out
})

func signer(name string) *mint.Signer { return signers()[name] }

// idp is a real HTTP server that answers with a key set and counts.
type idp struct {
	*httptest.Server
	fetches atomic.Int64

	mu     sync.Mutex
	answer http.HandlerFunc
}

func newIDP(t *testing.T, doc []byte) *idp {
	t.Helper()
	p := &idp{}
	p.serve(doc)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fetches.Add(1)
		p.mu.Lock()
		answer := p.answer
		p.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *idp) serve(doc []byte) {
	p.respond(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=86400")
		_, _ = w.Write(doc)
	})
}

func (p *idp) respond(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func keySetOf(t testing.TB, names ...string) []byte {
	t.Helper()
	list := make([]*mint.Signer, len(names))
	for i, n := range names {
		list[i] = signer(n)
	}
	doc, err := mint.KeySet(list...)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// config is a configuration with one issuer whose keys lie at the URL.
func config(url string) Config {
	return Config{Issuers: []Issuer{{Issuer: testIssuer, Audience: []string{testAudience}, JWKSURL: url}}}
}

func quiet() *slog.Logger { return textLog(io.Discard) }

// start returns a verifier that runs until the test ends. adjust may change the
// pace of each issuer beforehand.
func start(t testing.TB, c Config, adjust ...func(*pace)) *Verifier {
	t.Helper()
	v, err := New(c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	for _, iss := range v.issuers {
		for _, f := range adjust {
			f(&iss.ring.pace)
		}
	}
	run(t, v)
	return v
}

func run(t testing.TB, v *Verifier) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// refreshed waits until the ring's next n attempts have ended.
func refreshed(t testing.TB, r *ring, n int) {
	t.Helper()
	for range n {
		r.mu.Lock()
		done := r.done
		r.mu.Unlock()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("no refresh within 10 s")
		}
	}
}

// eventually waits for what has to come in the end.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not come: %s", what)
		}
	}
}

// claims returns good claims with changes; a nil value removes the claim.
func claims(changes map[string]any) map[string]any {
	c := map[string]any{
		"iss": testIssuer, "aud": testAudience, "sub": "agent-1",
		"exp": time.Now().Add(10 * time.Minute).Unix(),
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func sign(t testing.TB, s *mint.Signer, changes map[string]any) string {
	t.Helper()
	token, err := s.Sign(claims(changes))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// signText signs a header and a payload exactly as they are written.
func signText(t testing.TB, s *mint.Signer, header, payload string) string {
	t.Helper()
	token, err := s.SignBytes([]byte(header), []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// payload is good claims as text, with more members after them.
func payload(more string) string {
	exp := strconv.FormatInt(time.Now().Add(10*time.Minute).Unix(), 10)
	return `{"iss":"` + testIssuer + `","aud":"` + testAudience + `","sub":"agent-1","exp":` + exp + more + `}`
}

// want fails unless the token is accepted (kind Other) or refused as this kind.
func want(t testing.TB, v *Verifier, token string, kind Kind) {
	t.Helper()
	p, err := v.Verify(t.Context(), token, nil)
	switch {
	case kind == Other && err != nil:
		t.Errorf("refused: %v", err)
	case kind == Other && (p.Issuer != testIssuer || p.Subject != "agent-1"):
		t.Errorf("principal %s %s", p.Issuer, p.Subject)
	case kind != Other && (p != nil || KindOf(err) != kind):
		t.Errorf("got %v, %v, want %s", p, err, kind.Code())
	}
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
