package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/regogate/regogate/gateway/auth/mint"
)

func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// hs256 signs with a shared secret, as somebody does who takes a public key for
// one.
func hs256(secret []byte, header, payload string) string {
	text := segment(header) + "." + segment(payload)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func pemOf(t *testing.T, s *mint.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// edit changes members of the only key of a key set.
func edit(t *testing.T, doc []byte, changes map[string]any) []byte {
	t.Helper()
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(doc, &set); err != nil {
		t.Fatal(err)
	}
	for name, value := range changes {
		if value == nil {
			delete(set.Keys[0], name)
			continue
		}
		set.Keys[0][name] = value
	}
	out, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// member returns a member of the first key of a key set.
func member(t *testing.T, doc []byte, name string) string {
	t.Helper()
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(doc, &set); err != nil {
		t.Fatal(err)
	}
	return set.Keys[0][name].(string)
}

func TestAlgorithmConfusion(t *testing.T) {
	rs := signer("rsa1")
	set := keySetOf(t, "rsa1", "ec", "ed")
	c := config(newIDP(t, set).URL)
	c.Issuers[0].Algorithms = []string{"RS256"}
	v := start(t, c)
	modulus, err := base64.RawURLEncoding.DecodeString(member(t, set, "n"))
	if err != nil {
		t.Fatal(err)
	}
	head := func(alg string) string { return `{"alg":"` + alg + `","kid":"` + rs.ID() + `"}` }
	body := payload("")
	ps := segment(head("PS256")) + "." + segment(body)
	sig, err := jwt.SigningMethodPS256.Sign(ps, privateKey(t, rs))
	if err != nil {
		t.Fatal(err)
	}
	tokens := []hostile{
		{"HS256 with the modulus", hs256(modulus, head("HS256"), body), WrongAlg},
		{"HS256 with the PEM", hs256(pemOf(t, rs), head("HS256"), body), WrongAlg},
		{"HS256 with the PEM trimmed", hs256(bytes.TrimSpace(pemOf(t, rs)), head("HS256"), body), WrongAlg},
		{"HS256 with the key set", hs256(set, head("HS256"), body), WrongAlg},
		{"HS256 with nothing", hs256(nil, head("HS256"), body), WrongAlg},
		{"RS256 signed as HS256", hs256(modulus, head("RS256"), body), BadSignature},
		{"PS256 not configured", ps + "." + base64.RawURLEncoding.EncodeToString(sig), WrongAlg},
		{"EdDSA not configured", sign(t, signer("ed"), nil), WrongAlg},
		{"ES256 not configured", sign(t, signer("ec"), nil), WrongAlg},
		{"RS256 said, ES256 made", signText(t, signer("ec"), `{"alg":"RS256","kid":"`+signer("ec").ID()+`"}`, body), UnknownKey},
		{"alg in lower case", signText(t, rs, head("rs256"), body), WrongAlg},
		{"no alg", signText(t, rs, `{"kid":"`+rs.ID()+`"}`, body), Malformed},
		{"alg a number", signText(t, rs, `{"alg":256}`, body), Malformed},
		{"alg twice", signText(t, rs, `{"alg":"RS256","alg":"none"}`, body), Malformed},
		{"alg twice, once escaped", signText(t, rs, `{"alg":"RS256","al\u0067":"none"}`, body), Malformed},
	}
	for _, alg := range []string{"none", "None", "nOnE", "NONE"} {
		header := `{"alg":"` + alg + `"}`
		tokens = append(tokens, hostile{"alg " + alg, segment(header) + "." + segment(body) + ".", WrongAlg},
			hostile{"signed alg " + alg, signText(t, rs, header, body), WrongAlg})
	}
	tokens = append(tokens, hostile{"alg empty", signText(t, rs, `{"alg":""}`, body), Malformed})
	want(t, v, signText(t, rs, head("RS256"), body), Other)
	refuseAll(t, v, tokens)
}

type hostile struct {
	name, token string
	kind        Kind
}

func refuseAll(t *testing.T, v *Verifier, tokens []hostile) {
	t.Helper()
	for _, h := range tokens {
		t.Run(h.name, func(t *testing.T) { want(t, v, h.token, h.kind) })
	}
}

// A token whose signature is good but whose form is not what a strict reader
// takes.
func TestForm(t *testing.T) {
	rs := signer("rsa1")
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	const head = `{"alg":"RS256"}`
	body := payload("")
	good := signText(t, rs, head, body)
	want(t, v, good, Other)
	// The last of 342 characters has 4 bits that no byte uses.
	spelling := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(spelling, good[len(good)-1])
	refuseAll(t, v, []hostile{
		{"signature of another payload", segment(head) + "." + segment(payload(`,"admin":true`)) + "." + strings.Split(good, ".")[2], BadSignature},
		{"signature cut", strings.TrimRight(good, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), BadSignature},
		{"signature spelt otherwise", good[:len(good)-1] + spelling[last+1:last+2], Malformed},
		{"signature and a line break", good + "\n", Malformed},
		{"payload twice", signText(t, rs, head, payload(`,"sub":"root"`)), Malformed},
		{"nested payload twice", signText(t, rs, head, payload(`,"a":{"b":1,"b":2}`)), Malformed},
		{"payload with more behind it", signText(t, rs, head, body+"{}"), Malformed},
		{"payload a list", signText(t, rs, head, "["+body+"]"), Malformed},
		{"payload with a stray byte", signText(t, rs, head, payload(`,"x":"`+"\xff"+`"`)), Malformed},
		{"header a string", signText(t, rs, `"alg"`, body), Malformed},
		{"header null", signText(t, rs, `null`, body), Malformed},
		{"crit", signText(t, rs, `{"alg":"RS256","crit":["x"],"x":1}`, body), Malformed},
		{"crit empty", signText(t, rs, `{"alg":"RS256","crit":[]}`, body), Malformed},
		{"typ a number", signText(t, rs, `{"alg":"RS256","typ":1}`, body), Malformed},
		{"a grant", signText(t, rs, `{"alg":"RS256","typ":"oauth-id-jag+jwt"}`, body), WrongType},
		{"a grant in other case", signText(t, rs, `{"alg":"RS256","typ":"application/OAuth-ID-JAG+jwt"}`, body), WrongType},
		{"another type", signText(t, rs, `{"alg":"RS256","typ":"secevent+jwt"}`, body), WrongType},
		{"five parts", good + ".a.b", Malformed},
		{"two parts", segment(head) + "." + segment(body), Malformed},
		{"padding", good + "=", Malformed},
		{"empty", "", Malformed},
		{"dots", "..", Malformed},
	})
}

func privateKey(t *testing.T, s *mint.Signer) *rsa.PrivateKey {
	t.Helper()
	text, err := s.PEM()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*rsa.PrivateKey)
}

// What a header says of keys is never used, and nobody is asked.
func TestEmbeddedKeysAreIgnored(t *testing.T) {
	var asked atomic.Int64
	attacker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write(keySetOf(t, "rsa2"))
	}))
	t.Cleanup(attacker.Close)
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	jwk := strings.TrimSuffix(strings.TrimPrefix(string(keySetOf(t, "rsa2")), `{"keys":[`), "]}")
	for _, extra := range []string{
		`"jwk":` + jwk,
		`"jku":"` + attacker.URL + `/jwks"`,
		`"x5u":"` + attacker.URL + `/cert"`,
		`"x5c":["AAAA"]`,
	} {
		for _, kid := range []string{"", `,"kid":"` + signer("rsa1").ID() + `"`, `,"kid":"` + signer("rsa2").ID() + `"`} {
			header := `{"alg":"RS256",` + extra + kid + `}`
			token := signText(t, signer("rsa2"), header, payload(""))
			if p, err := v.Verify(t.Context(), token, nil); p != nil || err == nil {
				t.Errorf("%s: accepted", header)
			}
		}
		// The issuer's own key counts, whatever else the header says.
		want(t, v, signText(t, signer("rsa1"), `{"alg":"RS256",`+extra+`}`, payload("")), Other)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the attacker's server was asked %d times", n)
	}
}

// A key is used only as its own alg, use, key_ops, type and size allow.
func TestKeyRestrictions(t *testing.T) {
	rs, ec := signer("rsa1"), signer("ec")
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		from    string
		changes map[string]any
		token   string
		kind    Kind
	}{
		{"as it is", "rsa1", nil, sign(t, rs, nil), Other},
		{"alg of another type", "rsa1", map[string]any{"alg": "ES256"}, sign(t, rs, nil), Unavailable},
		{"alg of another scheme", "rsa1", map[string]any{"alg": "RSA-OAEP"}, sign(t, rs, nil), Unavailable},
		{"alg absent", "rsa1", map[string]any{"alg": nil}, sign(t, rs, nil), Other},
		{"use enc", "rsa1", map[string]any{"use": "enc"}, sign(t, rs, nil), Unavailable},
		{"use absent", "rsa1", map[string]any{"use": nil}, sign(t, rs, nil), Other},
		{"use unknown", "rsa1", map[string]any{"use": "magic"}, sign(t, rs, nil), Unavailable},
		{"key_ops verify", "rsa1", map[string]any{"key_ops": []string{"verify"}}, sign(t, rs, nil), Other},
		{"key_ops sign", "rsa1", map[string]any{"key_ops": []string{"sign"}}, sign(t, rs, nil), Unavailable},
		{"key_ops empty", "rsa1", map[string]any{"key_ops": []string{}}, sign(t, rs, nil), Unavailable},
		{"x5u never fetched", "rsa1", map[string]any{"x5u": "http://127.0.0.1:1/"}, sign(t, rs, nil), Other},
		{"x5c broken", "rsa1", map[string]any{"x5c": []string{"!"}}, sign(t, rs, nil), Other},
		{"exponent cut to 64 bits", "rsa1", map[string]any{"e": base64.RawURLEncoding.EncodeToString([]byte{1, 0, 0, 0, 0, 0, 1, 0, 1})}, sign(t, rs, nil), Unavailable},
		{"point off the curve", "ec", map[string]any{"x": "AAAA"}, sign(t, ec, nil), Unavailable},
		{"curve of another size", "ec", map[string]any{"crv": "P-384"}, sign(t, ec, nil), Unavailable},
		{"symmetric", "rsa1", map[string]any{"kty": "oct", "k": segment(strings.Repeat("k", 64)), "alg": "HS256"},
			hs256([]byte(strings.Repeat("k", 64)), `{"alg":"HS256"}`, payload("")), WrongAlg},
		{"RSA of 1024 bits", "rsa1", map[string]any{"n": base64.RawURLEncoding.EncodeToString(small.N.Bytes())}, sign(t, rs, nil), Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := start(t, config(newIDP(t, edit(t, keySetOf(t, c.from), c.changes)).URL))
			want(t, v, c.token, c.kind)
		})
	}
}

// The 1024-bit key would verify: its size alone is the reason to refuse it.
func TestSmallKeyIsRefusedForItsSize(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	text := segment(`{"alg":"RS256"}`) + "." + segment(payload(""))
	sig, err := jwt.SigningMethodRS256.Sign(text, small)
	if err != nil {
		t.Fatal(err)
	}
	if err := jwt.SigningMethodRS256.Verify(text, sig, &small.PublicKey); err != nil {
		t.Fatalf("the signature itself is bad: %v", err)
	}
	doc := edit(t, keySetOf(t, "rsa1"), map[string]any{"n": base64.RawURLEncoding.EncodeToString(small.N.Bytes())})
	if _, err := parseJWKS(doc, []string{"RS256"}); err == nil || !strings.Contains(err.Error(), "an RSA key of 1024 bits") {
		t.Errorf("error %v", err)
	}
	v := start(t, config(newIDP(t, doc).URL))
	want(t, v, text+"."+base64.RawURLEncoding.EncodeToString(sig), Unavailable)
}

func TestTypes(t *testing.T) {
	url := newIDP(t, keySetOf(t, "rsa1")).URL
	usual := start(t, config(url))
	c := config(url)
	c.Issuers[0].TokenTypes = []string{"application/AT+JWT"}
	only := start(t, c)
	for _, c := range []struct {
		typ         string
		usual, only Kind
	}{
		{``, Other, WrongType},
		{`,"typ":"JWT"`, Other, WrongType},
		{`,"typ":"jwt"`, Other, WrongType},
		{`,"typ":"at+jwt"`, Other, Other},
		{`,"typ":"application/at+jwt"`, Other, Other},
		{`,"typ":"dpop+jwt"`, WrongType, WrongType},
		{`,"typ":"oauth-id-jag+jwt"`, WrongType, WrongType},
		{`,"typ":"JWT "`, WrongType, WrongType},
		{`,"typ":null`, Malformed, Malformed},
	} {
		t.Run(c.typ, func(t *testing.T) {
			token := signText(t, signer("rsa1"), `{"alg":"RS256"`+c.typ+`}`, payload(""))
			want(t, usual, token, c.usual)
			want(t, only, token, c.only)
		})
	}
}

// A kid is only ever compared: it opens no file, reaches no host but the key
// source, and comes out of an error quoted and cut.
func TestHostileKeyIDs(t *testing.T) {
	var attacked atomic.Int64
	attacker := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { attacked.Add(1) }))
	t.Cleanup(attacker.Close)
	p := newIDP(t, keySetOf(t, "rsa1"))
	v := start(t, config(p.URL), func(p *pace) { p.interval, p.demand = 1e15, 1e15 })
	refreshedOnce(t, v)
	kids := []string{
		"../../../../dev/null", "/proc/self/environ", attacker.URL + "/k", "k1' OR '1'='1",
		"k1\r\nSET x 1", "k1\x00", strings.Repeat("k", 9000), "key\u202eid", " ", signer("rsa1").ID() + " ",
	}
	for _, kid := range kids {
		quoted, err := json.Marshal(kid)
		if err != nil {
			t.Fatal(err)
		}
		head := func(alg string) string { return fmt.Sprintf(`{"alg":%q,"kid":%s}`, alg, quoted) }
		want(t, v, hs256(nil, head("HS256"), payload("")), WrongAlg)
		token := signText(t, signer("rsa1"), head("RS256"), payload(""))
		_, err = v.Verify(t.Context(), token, nil)
		if KindOf(err) != UnknownKey {
			t.Errorf("kid %.20q: %v", kid, err)
			continue
		}
		text := err.Error()
		if len(text) > 200 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("kid %.20q: unfit for a log: %q", kid, text)
		}
	}
	want(t, v, signText(t, signer("rsa1"), `{"alg":"RS256","kid":"`+strings.Repeat("k", 65536)+`"}`, payload("")), Malformed)
	if n := p.fetches.Load(); n != 2 {
		t.Errorf("the keys were fetched %d times, want once at the start and once for all unknown ids", n)
	}
	if n := attacked.Load(); n != 0 {
		t.Errorf("the address in a kid was asked %d times", n)
	}
}

// refreshedOnce waits for the first keys.
func refreshedOnce(t testing.TB, v *Verifier) {
	t.Helper()
	for _, iss := range v.issuers {
		eventually(t, "the first keys", func() bool {
			iss.ring.mu.Lock()
			defer iss.ring.mu.Unlock()
			return iss.ring.current() != nil && !iss.ring.busy
		})
	}
}
