package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// However the endpoint fails at first, the verifier starts, refuses soon, and
// accepts tokens by itself once the endpoint is there.
func TestEndpointDownAtStart(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, answer := range map[string]http.HandlerFunc{
		"aborted": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"hanging": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		},
		"HTML":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"empty": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t, nil)
			p.respond(answer)
			v := start(t, config(p.URL), func(p *pace) {
				p.retry, p.retryMax, p.timeout = 10*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
				p.wait, p.interval = 200*time.Millisecond, 50*time.Millisecond
			})
			token := sign(t, signer("rsa1"), nil)
			began := time.Now()
			want(t, v, token, Unavailable)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("refused after %s", took)
			}
			if s := v.Status()[0]; s.Usable || s.Keys != 0 || !s.Read.IsZero() {
				t.Errorf("status %+v", s)
			}
			p.serve(keySetOf(t, "rsa1"))
			refreshed(t, v.issuers[0].ring, 2)
			want(t, v, token, Other)
			if s := v.Status()[0]; !s.Usable || s.Keys != 1 || s.Problem != "" || s.Read.IsZero() {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// With the pace that is shipped a verifier recovers within seconds, and a token
// speeds it up.
func TestRecoveryAtTheShippedPace(t *testing.T) {
	p := newIDP(t, nil)
	p.respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) })
	v := start(t, config(p.URL))
	refreshed(t, v.issuers[0].ring, 1)
	token := sign(t, signer("rsa1"), nil)
	want(t, v, token, Unavailable)
	p.serve(keySetOf(t, "rsa1"))
	began := time.Now()
	for {
		if _, err := v.Verify(t.Context(), token, nil); err == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("no recovery within 20 s")
		}
		refreshed(t, v.issuers[0].ring, 1)
	}
}

func TestNobodyListensAtStart(t *testing.T) {
	place, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := place.Addr().String()
	_ = place.Close()
	v := start(t, config("http://"+address), func(p *pace) { p.interval, p.retry, p.wait = 50*time.Millisecond, 10*time.Millisecond, 0 })
	refreshed(t, v.issuers[0].ring, 1)
	want(t, v, sign(t, signer("rsa1"), nil), Unavailable)
	if s := v.Status()[0]; !strings.Contains(s.Problem, "connection refused") {
		t.Errorf("status %+v", s)
	}
	place, err = net.Listen("tcp", address)
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(keySetOf(t, "rsa1")) }))
	_ = server.Listener.Close()
	server.Listener = place
	server.Start()
	t.Cleanup(server.Close)
	refreshed(t, v.issuers[0].ring, 2)
	want(t, v, sign(t, signer("rsa1"), nil), Other)
}

func TestTLSErrorAtStart(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	v := start(t, config(server.URL), slow)
	want(t, v, sign(t, signer("rsa1"), nil), Unavailable)
	eventually(t, "the end of the first fetch", func() bool { return v.Status()[0].Problem != "" })
	if s := v.Status()[0]; !strings.Contains(s.Problem, "certificate") || strings.Contains(s.Problem, server.URL) {
		t.Errorf("problem %q", s.Problem)
	}
}

// Tokens with keys that nobody knows cause one fetch, whatever their number.
func TestUnknownKeysAreLimited(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	v := start(t, config(p.URL), slow, func(p *pace) { p.demand = time.Hour })
	refreshedOnce(t, v)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			token := signText(t, signer("rsa2"), fmt.Sprintf(`{"alg":"RS256","kid":"k%d"}`, i), payload(""))
			want(t, v, token, UnknownKey)
			want(t, v, sign(t, signer("rsa1"), map[string]any{"n": i}), Other)
		})
	}
	wg.Wait()
	if n := p.fetches.Load(); n != 2 {
		t.Errorf("%d fetches, want one at the start and one for all", n)
	}
}

// A bad signature by a known name is no reason to fetch, and neither is asking
// for newer keys than those that are already there.
func TestNoNeedlessFetch(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	v := start(t, config(p.URL), slow)
	refreshedOnce(t, v)
	want(t, v, signText(t, signer("rsa2"), string(signer("rsa1").Header()), payload("")), BadSignature)
	r := v.issuers[0].ring
	if set, err := r.newer(t.Context(), &keySet{}); set != r.current() || err != nil {
		t.Errorf("newer keys %p, %v, want %p", set, err, r.current())
	}
	if r.ask() == nil {
		t.Error("something has asked for a refresh before")
	}
}

// A fetch that hangs holds a token up for the bounded wait, and tokens with
// known keys not at all.
func TestHangingRefresh(t *testing.T) {
	p := newIDP(t, keySetOf(t, "rsa1"))
	v := start(t, config(p.URL), slow, func(p *pace) { p.wait = 100 * time.Millisecond; p.timeout = time.Minute })
	refreshedOnce(t, v)
	hanging := make(chan struct{})
	p.respond(func(_ http.ResponseWriter, r *http.Request) { close(hanging); <-r.Context().Done() })
	began := time.Now()
	want(t, v, sign(t, signer("rsa2"), nil), UnknownKey)
	<-hanging
	want(t, v, sign(t, signer("rsa1"), nil), Other)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := v.Verify(ctx, sign(t, signer("rsa2"), map[string]any{"n": 1}), nil)
	if KindOf(err) != Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("caller that gave up: %v", err)
	}
}

func TestIssuersDoNotAffectEachOther(t *testing.T) {
	good, bad := newIDP(t, keySetOf(t, "rsa1")), newIDP(t, nil)
	bad.respond(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := config(bad.URL)
	c.Issuers[0].Issuer = "https://down.example.test"
	c.Issuers = append(c.Issuers, config(good.URL).Issuers...)
	v := start(t, c, func(p *pace) { p.wait = 50 * time.Millisecond })
	want(t, v, sign(t, signer("rsa1"), nil), Other)
	want(t, v, sign(t, signer("rsa1"), map[string]any{"iss": "https://down.example.test"}), Unavailable)
	want(t, v, sign(t, signer("rsa1"), map[string]any{"n": 1}), Other)
	if s := v.Status(); s[0].Usable || !s[1].Usable || s[0].Issuer != "https://down.example.test" || s[1].Issuer != testIssuer {
		t.Errorf("status %+v", s)
	}
}

// One issuer's key proves nothing of another's tokens.
func TestIssuersDoNotShareKeys(t *testing.T) {
	c := config(newIDP(t, keySetOf(t, "rsa1")).URL)
	c.Issuers = append(c.Issuers, Issuer{
		Issuer: "https://second.example.test", Audience: []string{testAudience}, JWKSURL: newIDP(t, keySetOf(t, "rsa2")).URL,
	})
	v := start(t, c)
	want(t, v, sign(t, signer("rsa1"), nil), Other)
	want(t, v, sign(t, signer("rsa2"), nil), UnknownKey)
	want(t, v, sign(t, signer("rsa1"), map[string]any{"iss": "https://second.example.test"}), UnknownKey)
	want(t, v, signText(t, signer("rsa2"), `{"alg":"RS256"}`, payload("")), BadSignature)
}
