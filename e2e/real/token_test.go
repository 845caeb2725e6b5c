package real_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// modernList is tools/list of the modern era, with its headers.
func modernList(t testing.TB, url, token string) reply {
	t.Helper()
	return post(t, url, token, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
}

// refused checks that an answer is the 401 of a token that is no good.
func refused(t *testing.T, r reply) {
	t.Helper()
	challenge := r.header.Get("WWW-Authenticate")
	if r.status != http.StatusUnauthorized || !strings.HasPrefix(challenge, "Bearer ") ||
		!strings.Contains(challenge, `error="invalid_token"`) || !strings.Contains(challenge, "resource_metadata=") {
		t.Errorf("answered %d, WWW-Authenticate %q; want 401 and invalid_token", r.status, challenge)
	}
}

// TestTokenExpires uses a token beyond its time: requests are refused, in a
// session too, and a stream that it opened ends.
func TestTokenExpires(t *testing.T) {
	s := newStand(t, ledger)
	s.run(t)
	url := s.URL + "/mcp"
	token := s.issuer.token(t, clerk, "4s")
	var claims struct{ Exp int64 }
	if err := json.Unmarshal(claimsOf(t, token), &claims); err != nil {
		t.Fatal(err)
	}
	ends := time.Unix(claims.Exp, 0)
	session := open(t, url, token)
	ended := stream(t, url, token, session)
	if r := modernList(t, url, token); r.status != http.StatusOK {
		t.Fatalf("a good token: answered %d: %s", r.status, r.body)
	}
	select {
	case at := <-ended:
		if early := ends.Sub(at); early > 50*time.Millisecond {
			t.Errorf("the stream ended %v before the token", early)
		}
		t.Logf("the stream ended %v after the token", at.Sub(ends).Round(time.Millisecond))
	case <-time.After(time.Until(ends) + time.Second):
		t.Error("the stream goes on 1s after its token has expired")
	}
	time.Sleep(time.Until(ends))
	refused(t, modernList(t, url, token))
	refused(t, post(t, url, token, listTools, "Mcp-Session-Id", session))
	if r := post(t, url, s.tokens[clerk], listTools, "Mcp-Session-Id", session); r.status != http.StatusOK {
		t.Errorf("a fresh token of the same principal in the same session: answered %d: %s", r.status, r.body)
	}
}

// stream opens the session's server-to-client stream and tells when it ends.
func stream(t *testing.T, url, token, session string) <-chan time.Time {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET: answered %d", resp.StatusCode)
	}
	ended := make(chan time.Time, 1)
	go func() {
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		}
		ended <- time.Now()
	}()
	return ended
}

// TestKeyRotation puts other keys into the issuer's key set: tokens of the new
// key are good, those of the old one no longer, whoever has used them before.
func TestKeyRotation(t *testing.T) {
	s := newStand(t, ledger)
	s.run(t)
	url := s.URL + "/mcp"
	first := s.tokens[clerk]
	keys := filepath.Join(s.dir, "keys")
	second, third := newIssuer(t, keys, "second"), newIssuer(t, keys, "third")
	tokens := []string{second.token(t, clerk, "1h"), third.token(t, clerk, "1h")}
	good := func(token string) bool { return modernList(t, url, token).status == http.StatusOK }
	if !good(first) {
		t.Fatal("the first key is not good at first")
	}
	refused(t, modernList(t, url, tokens[0]))
	session := open(t, url, first)
	const soon = 5 * time.Second // the file is read every 2 s

	publish(t, second, s.issuer)
	took := within(t, soon, "the first key is no longer good", func() bool { return !good(first) })
	t.Logf("the first key was refused after %v", took.Round(time.Millisecond))
	refused(t, modernList(t, url, first))
	refused(t, post(t, url, first, listTools, "Mcp-Session-Id", session))
	if !good(tokens[0]) {
		t.Error("the second key is not good when the first one no longer is")
	}
	if r := post(t, url, tokens[0], listTools, "Mcp-Session-Id", session); r.status != http.StatusOK {
		t.Errorf("the same principal with the second key in the same session: answered %d: %s", r.status, r.body)
	}

	publish(t, third, s.issuer)
	took = within(t, soon, "the third key is good", func() bool { return good(tokens[1]) })
	t.Logf("the third key was good after %v", took.Round(time.Millisecond))
	within(t, soon, "the second key is no longer good", func() bool { return !good(tokens[0]) })
	if r := s.ready(t); r.Status != "ready" {
		t.Errorf("/readyz says %+v", r)
	}
}

// publish puts the key set of the next issuer in the place of another's.
func publish(t *testing.T, next, before *issuer) {
	t.Helper()
	text, err := os.ReadFile(next.jwks)
	if err != nil {
		t.Fatal(err)
	}
	save(t, before.jwks, string(text))
}
