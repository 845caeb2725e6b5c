package real_test

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

const (
	issuerName = "https://issuer.example"
	audience   = "regogate-real"
)

// issuer signs tokens with `regogate token`.
type issuer struct {
	key, jwks string
}

// newIssuer makes a key and its key set in a directory; both have the name.
func newIssuer(t testing.TB, dir, name string) *issuer {
	t.Helper()
	i := &issuer{key: filepath.Join(dir, name+".pem"), jwks: filepath.Join(dir, name+".json")}
	i.sign(t, "nobody", "{}", "1m", "--jwks", i.jwks)
	return i
}

func (i *issuer) sign(t testing.TB, subject, claims, valid string, more ...string) string {
	t.Helper()
	out := regogate(t, append([]string{"token", "--key", i.key, "--issuer", issuerName, "--audience", audience,
		"--subject", subject, "--claims", claims, "--valid", valid}, more...)...)
	return strings.TrimSpace(string(out))
}

// token is a persona's: its subject is its role and it has no other.
func (i *issuer) token(t testing.TB, role, valid string) string {
	t.Helper()
	return i.sign(t, role, `{"roles":["`+role+`"]}`, valid)
}

// claimsOf reads the payload of a token.
func claimsOf(t testing.TB, token string) json.RawMessage {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// config is the part of the gateway's configuration that trusts the issuer.
func (i *issuer) config() map[string]any {
	return map[string]any{"issuers": []any{map[string]any{
		"issuer": issuerName, "audience": []string{audience}, "jwks_file": i.jwks, "clock_skew": "0s",
	}}}
}
