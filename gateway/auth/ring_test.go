package auth

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// slow keeps refreshes from happening by themselves.
func slow(p *pace) { p.interval, p.retry, p.retryMax = time.Hour, time.Hour, time.Hour }

func TestRotation(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	v := start(t, config(p.URL), slow)
	r := v.issuers[0].ring
	one, two, three := sign(t, signer("rsa1"), nil), sign(t, signer("rsa2"), nil), sign(t, signer("rsa3"), nil)
	want(t, v, one, Other)
	want(t, v, one, Other)
	if n := p.fetches.Load(); n != 1 {
		t.Fatalf("%d fetches at the start, want 1", n)
	}

	// A new key is accepted at once, with one fetch, whoever asks at the time.
	p.serve(keySetOf(t, "rsa1", "rsa2"))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { want(t, v, two, Other) })
	}
	wg.Wait()
	want(t, v, one, Other)
	if n := p.fetches.Load(); n != 2 {
		t.Errorf("%d fetches after a new key, want 2", n)
	}

	// So is the next one, although a moment has hardly passed.
	p.serve(keySetOf(t, "rsa2", "rsa3"))
	want(t, v, three, Other)
	if n := p.fetches.Load(); n != 3 {
		t.Errorf("%d fetches after a third key, want 3", n)
	}
	// The key that left verifies nothing more, a remembered token included.
	want(t, v, one, UnknownKey)

	// The same keys written otherwise are no change.
	generation := r.current()
	p.serve(append([]byte("\n"), keySetOf(t, "rsa3", "rsa2")...))
	if err := r.refresh(t.Context()); err != nil || r.current() != generation {
		t.Errorf("the same keys are taken for others (%v)", err)
	}
	// No answer of the endpoint but a good set changes anything.
	for name, answer := range badAnswers(t) {
		p.respond(answer)
		if err := r.refresh(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		want(t, v, two, Other)
		want(t, v, sign(t, signer("rsa3"), map[string]any{"jti": name}), Other)
		if s := v.Status()[0]; !s.Usable || s.Keys != 2 || s.Problem == "" {
			t.Errorf("%s: status %+v", name, s)
		}
	}
}

func badAnswers(t *testing.T) map[string]http.HandlerFunc {
	text := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	other := newIDP(t, keySetOf(t, "rsa1"))
	return map[string]http.HandlerFunc{
		"500":            text(500, string(keySetOf(t, "rsa1"))),
		"404":            text(404, ""),
		"204":            text(204, ""),
		"invalid JSON":   text(200, `{"keys":[`),
		"empty set":      text(200, `{"keys":[]}`),
		"HTML":           text(200, "<html>captive portal</html>"),
		"only symmetric": text(200, `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`),
		"oversized":      text(200, `{"keys":[`+strings.Repeat(" ", maxDocument)+`]}`),
		"too many":       text(200, `{"keys":[`+strings.Repeat("{},", maxKeys)+`{}]}`),
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "999")
			_, _ = w.Write([]byte("{"))
		},
		"redirect to a host": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) },
		"redirect in a loop": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) },
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		},
	}
}

func TestRedirectWithinTheHost(t *testing.T) {
	p := newIDP(t, nil)
	p.respond(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/moved", http.StatusFound)
			return
		}
		_, _ = w.Write(keySetOf(t, "rsa1"))
	})
	want(t, start(t, config(p.URL)), sign(t, signer("rsa1"), nil), Other)
}

// A key that left the set stops verifying by the next refresh, also for a token
// that is remembered and keeps coming.
func TestRemovedKeyStopsWithinTheInterval(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1", "rsa2"))
	v := start(t, config(p.URL), func(p *pace) { p.interval = 50 * time.Millisecond })
	one := sign(t, signer("rsa1"), nil)
	want(t, v, one, Other)
	p.serve(keySetOf(t, "rsa2"))
	refreshed(t, v.issuers[0].ring, 2) // the first may have begun before
	want(t, v, one, UnknownKey)
	want(t, v, sign(t, signer("rsa2"), nil), Other)
}

func TestStaleness(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	v := start(t, config(p.URL), slow, func(p *pace) { p.wait = 5 * time.Second })
	r := v.issuers[0].ring
	refreshedOnce(t, v)
	var mu sync.Mutex
	ahead := time.Duration(0)
	r.mu.Lock() // the ring reads its clock under this lock or in this test
	r.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(ahead) }
	r.mu.Unlock()
	token := sign(t, signer("rsa1"), nil)
	want(t, v, token, Other)

	p.respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	mu.Lock()
	ahead = DefaultMaxStaleness - time.Minute
	mu.Unlock()
	want(t, v, token, Other)
	mu.Lock()
	ahead = DefaultMaxStaleness + time.Minute
	mu.Unlock()
	want(t, v, token, Unavailable)
	if s := v.Status()[0]; s.Usable || s.Problem != "answered 503, want 200" {
		t.Errorf("status %+v", s)
	}
	p.serve(keySetOf(t, "rsa1"))
	mu.Lock()
	ahead += time.Minute
	mu.Unlock()
	want(t, v, token, Other)
}

// A reload keeps the keys of an issuer that stays as it was.
func TestInherit(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	c := config(p.URL)
	old := start(t, c)
	refreshedOnce(t, old)
	p.respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	c.Issuers = append(c.Issuers, Issuer{Issuer: "https://new.example.test", Audience: []string{"x"}, JWKSURL: p.URL})
	reloaded, err := New(c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	reloaded.Inherit(old)
	want(t, reloaded, sign(t, signer("rsa1"), nil), Other)
	if s := reloaded.Status(); !s[0].Usable || s[1].Usable {
		t.Errorf("status %+v", s)
	}
	c.Issuers[0].Algorithms = []string{"ES256"}
	changed, err := New(c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	changed.Inherit(old)
	if changed.Status()[0].Usable {
		t.Error("keys chosen for other algorithms were taken over")
	}
}

func TestFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwks.json")
	put := func(doc []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", doc, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	put(keySetOf(t, "rsa1"))
	c := config("")
	c.Issuers[0].JWKSFile = path
	v := start(t, c, func(p *pace) {
		p.interval, p.retry, p.retryMax = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	})
	r := v.issuers[0].ring
	want(t, v, sign(t, signer("rsa1"), nil), Other)
	put(keySetOf(t, "rsa2"))
	refreshed(t, r, 2)
	want(t, v, sign(t, signer("rsa1"), nil), UnknownKey)
	want(t, v, sign(t, signer("rsa2"), nil), Other)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refreshed(t, r, 2)
	want(t, v, sign(t, signer("rsa2"), nil), Other)
	if s := v.Status()[0]; !strings.Contains(s.Problem, "no such file") {
		t.Errorf("status %+v", s)
	}
	put(keySetOf(t, "rsa3"))
	refreshed(t, r, 2)
	want(t, v, sign(t, signer("rsa3"), nil), Other)
}

func TestRemembering(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	v := start(t, config(p.URL), slow)
	refreshedOnce(t, v)
	clock := time.Now()
	v.now = func() time.Time { return clock }
	token := sign(t, signer("rsa1"), map[string]any{"exp": clock.Add(time.Minute).Unix(), "nbf": clock.Add(-time.Minute).Unix()})
	first, err := v.Verify(t.Context(), token, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := v.Verify(t.Context(), token, nil); err != nil || again != first {
		t.Errorf("the second use verified again: %v", err)
	}
	clock = clock.Add(2 * time.Minute)
	want(t, v, token, Expired)
	clock = clock.Add(-time.Hour)
	want(t, v, token, NotYetValid)

	before := v.known.Len()
	want(t, v, sign(t, signer("rsa2"), nil), UnknownKey)
	want(t, v, sign(t, signer("rsa1"), map[string]any{"aud": "x"}), WrongAudience)
	dot := strings.LastIndexByte(token, '.')
	want(t, v, token[:dot+1]+token[dot+5:], BadSignature)
	if n := v.known.Len(); n != before {
		t.Errorf("a refused token is remembered: %d, before %d", n, before)
	}
}

func TestNextAttempt(t *testing.T) {
	p := pace{interval: time.Minute, retry: 500 * time.Millisecond, retryMax: 5 * time.Second}
	for failures, longest := range []time.Duration{
		time.Minute, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second,
	} {
		for range 100 {
			if d := p.next(failures); d > longest || d < longest*9/10-1 {
				t.Fatalf("after %d failures %s, want at most %s", failures, d, longest)
			}
		}
	}
	if d := p.next(1 << 40); d > p.retryMax || d <= 0 {
		t.Errorf("after very many failures %s", d)
	}
}

// The log says what changed, once, and holds nothing of a URL's query.
func TestLog(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	var out bytes.Buffer
	v, err := New(config(p.URL+"/?key=hidden"), textLog(&out))
	if err != nil {
		t.Fatal(err)
	}
	r := v.issuers[0].ring
	_ = r.refresh(t.Context())
	p.respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	_ = r.refresh(t.Context())
	_ = r.refresh(t.Context())
	p.Close()
	_ = r.refresh(t.Context())
	for _, c := range []struct {
		text  string
		times int
	}{
		{"signing keys changed", 1},
		{"last good ones stay in use", 2},
		{"answered 500", 1},
		{"connection refused", 1},
		{"issuer=" + testIssuer, 3},
		{"hidden", 0},
	} {
		if n := strings.Count(out.String(), c.text); n != c.times {
			t.Errorf("%q %d times, want %d, in:\n%s", c.text, n, c.times, out.String())
		}
	}
}
