package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// jwks builds a key set out of the named signers' keys, each with its kid
// replaced: "" removes it.
func jwks(t *testing.T, pairs ...string) []byte {
	t.Helper()
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		id := any(pairs[i+1])
		if id == "" {
			id = nil
		}
		one := string(edit(t, keySetOf(t, pairs[i]), map[string]any{"kid": id}))
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(one, `{"keys":[`), "]}"))
	}
	return []byte(`{"keys":[` + strings.Join(list, ",") + `]}`)
}

func TestKeyIDs(t *testing.T) {
	rsa1, rsa2 := signer("rsa1"), signer("rsa2")
	one := func(alg, kid string) string { return `{"alg":"` + alg + `"` + kid + `}` }
	for _, c := range []struct {
		name string
		set  []byte
		by   string
		head string
		kind Kind
	}{
		{"one key, token without kid", keySetOf(t, "rsa1"), "rsa1", one("RS256", ""), Other},
		{"two types without kid", jwks(t, "rsa1", "", "ec", ""), "ec", one("ES256", ""), Other},
		{"two RSA keys, signed by the second", keySetOf(t, "rsa1", "rsa2"), "rsa2", one("RS256", ""), Other},
		{"kid of a key of another type", keySetOf(t, "rsa1", "ec"), "ec", one("ES256", `,"kid":"`+rsa1.ID()+`"`), BadSignature},
		{"kid of another key of the type", keySetOf(t, "rsa1", "rsa2"), "rsa1", one("RS256", `,"kid":"`+rsa2.ID()+`"`), BadSignature},
		{"kid a number", keySetOf(t, "rsa1"), "rsa1", one("RS256", `,"kid":1`), Malformed},
		{"kid null", keySetOf(t, "rsa1"), "rsa1", one("RS256", `,"kid":null`), Malformed},
		{"kid an object", keySetOf(t, "rsa1"), "rsa1", one("RS256", `,"kid":{}`), Malformed},
		{"kid empty", keySetOf(t, "rsa1"), "rsa1", one("RS256", `,"kid":""`), Other},
		{"kid twice in the set, the first", jwks(t, "rsa1", "k", "rsa2", "k"), "rsa1", one("RS256", `,"kid":"k"`), Other},
		{"kid twice in the set, the second", jwks(t, "rsa1", "k", "rsa2", "k"), "rsa2", one("RS256", `,"kid":"k"`), Other},
		{"kid twice over types", jwks(t, "rsa1", "k", "ec", "k"), "ec", one("ES256", `,"kid":"k"`), Other},
		{"key without kid, token with one", jwks(t, "rsa1", ""), "rsa1", one("RS256", `,"kid":"k"`), Other},
		{"named key elsewhere, token with another kid", keySetOf(t, "rsa1"), "rsa1", one("RS256", `,"kid":"k"`), UnknownKey},
		{"kid in other case", jwks(t, "rsa1", "Key"), "rsa1", one("RS256", `,"kid":"key"`), UnknownKey},
		{"signed by nobody's key", keySetOf(t, "rsa1"), "rsa3", one("RS256", ""), BadSignature},
		{"broken keys beside a good one", []byte(`{"keys":[{"kty":"RSA"},{"kty":5},"x",null,` + string(keySetOf(t, "rsa1"))[len(`{"keys":[`):]), "rsa1", one("RS256", ""), Other},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := start(t, config(newIDP(t, c.set).URL))
			want(t, v, signText(t, signer(c.by), c.head, payload("")), c.kind)
		})
	}
}

// A set that is too large is no set; in one that is not, the work is bounded.
func TestManyKeys(t *testing.T) {
	fill := func(n int) []byte {
		one := strings.TrimSuffix(strings.TrimPrefix(string(keySetOf(t, "rsa1")), `{"keys":[`), "]}")
		short := strings.Replace(one, `"use":"sig",`, "", 1)
		return []byte(`{"keys":[` + strings.Repeat(short+",", n-1) + short + `]}`)
	}
	allowed := []string{"RS256"}
	set, err := parseJWKS(fill(maxKeys), allowed)
	if err != nil || len(set.keys) != maxKeys {
		t.Fatalf("%d keys: %v", maxKeys, err)
	}
	if _, err := parseJWKS(fill(maxKeys+1), allowed); err == nil || err.Error() != "more than 1000 keys" {
		t.Errorf("%d keys: error %v", maxKeys+1, err)
	}
	v := start(t, config(newIDP(t, fill(2000)).URL))
	want(t, v, signText(t, signer("rsa1"), `{"alg":"RS256"}`, payload("")), Unavailable)

	// 17 keys suit a token without kid, and the one that signed is the last.
	pairs := []string{}
	for i := range maxTries {
		pairs = append(pairs, "rsa1", fmt.Sprint(i))
	}
	last := start(t, config(newIDP(t, jwks(t, append(pairs, "rsa2", "last")...)).URL))
	want(t, last, signText(t, signer("rsa2"), `{"alg":"RS256"}`, payload("")), BadSignature)
	want(t, last, signText(t, signer("rsa2"), `{"alg":"RS256","kid":"last"}`, payload("")), Other)
}

func TestSameKeys(t *testing.T) {
	read := func(doc []byte) *keySet {
		t.Helper()
		set, err := parseJWKS(doc, []string{"RS256", "ES256", "EdDSA"})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	secret := func(text string) *keySet { return &keySet{keys: []key{{material: []byte(text)}}} }
	base := read(keySetOf(t, "rsa1", "ec", "ed"))
	for _, c := range []struct {
		name string
		a, b *keySet
		same bool
	}{
		{"itself", base, read(keySetOf(t, "rsa1", "ec", "ed")), true},
		{"another order", base, read(keySetOf(t, "ed", "rsa1", "ec")), true},
		{"one less", base, read(keySetOf(t, "rsa1", "ec")), false},
		{"another one", base, read(keySetOf(t, "rsa2", "ec", "ed")), false},
		{"one twice", base, read(keySetOf(t, "rsa1", "ec", "ec")), false},
		{"another twice", read(keySetOf(t, "rsa1", "ec", "ec")), base, false},
		{"another name", read(jwks(t, "rsa1", "a")), read(jwks(t, "rsa1", "b")), false},
		{"another key of the name", read(jwks(t, "rsa1", "a")), read(jwks(t, "rsa2", "a")), false},
		{"other algorithms", read(edit(t, keySetOf(t, "ed"), map[string]any{"alg": "EdDSA"})),
			&keySet{keys: []key{{signer("ed").ID(), signer("ed").Public(), []string{"Ed25519"}}}}, false},
		{"another number skipped", base, &keySet{keys: base.keys, skipped: 1}, false},
		{"secrets", secret("a"), secret("a"), true},
		{"other secrets", secret("a"), secret("b"), false},
	} {
		if got := c.a.same(c.b); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestBadDocuments(t *testing.T) {
	good := string(keySetOf(t, "rsa1"))
	for _, c := range []struct{ name, doc, problem string }{
		{"empty", "", "not one strict JSON object"},
		{"HTML", "<!doctype html><html>maintenance</html>", "not one strict JSON object"},
		{"cut", good[:len(good)-5], "not one strict JSON object"},
		{"null", "null", "not one strict JSON object"},
		{"a list", "[" + good + "]", "not one strict JSON object"},
		{"keys twice", good[:len(good)-1] + `,"keys":[]}`, "not one strict JSON object"},
		{"no keys member", `{"jwks":[]}`, "no list of keys"},
		{"Keys", strings.Replace(good, "keys", "Keys", 1), "no list of keys"},
		{"keys null", `{"keys":null}`, "no list of keys"},
		{"keys an object", `{"keys":{}}`, "no list of keys"},
		{"no key", `{"keys":[]}`, "no key in it"},
		{"no usable key", `{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"RSA"}]}`, "no usable key among 2: a symmetric key"},
		{"error object", `{"error":"rate limited"}`, "no list of keys"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if set, err := parseJWKS([]byte(c.doc), []string{"RS256"}); set != nil || err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("error %v, want %q", err, c.problem)
			}
		})
	}
}

func write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFileSources(t *testing.T) {
	secret := []byte(strings.Repeat("s", 48))
	both := append(pemOf(t, signer("rsa1")), pemOf(t, signer("ec"))...)
	source := func(set func(*Issuer)) Config {
		c := config("")
		set(&c.Issuers[0])
		return c
	}
	for _, c := range []struct {
		name   string
		config Config
		token  string
		kind   Kind
	}{
		{"key set", source(func(i *Issuer) { i.JWKSFile = write(t, "jwks.json", keySetOf(t, "rsa1")) }), sign(t, signer("rsa1"), nil), Other},
		{"PEM, RSA", source(func(i *Issuer) { i.PublicKeyFile = write(t, "keys.pem", both) }), sign(t, signer("rsa1"), nil), Other},
		{"PEM, EC", source(func(i *Issuer) { i.PublicKeyFile = write(t, "keys.pem", both) }), sign(t, signer("ec"), nil), Other},
		{"PEM, another key", source(func(i *Issuer) { i.PublicKeyFile = write(t, "keys.pem", both) }), sign(t, signer("rsa2"), nil), UnknownKey},
		{"PEM taken for a secret", source(func(i *Issuer) { i.PublicKeyFile = write(t, "keys.pem", both) }), hs256(both, `{"alg":"HS256"}`, payload("")), WrongAlg},
		{"secret", source(func(i *Issuer) { i.InsecureHMACSecretFile = write(t, "secret", append(secret, '\n')) }),
			hs256(secret, `{"alg":"HS256","kid":"k"}`, payload("")), Other},
		{"another secret", source(func(i *Issuer) { i.InsecureHMACSecretFile = write(t, "secret", secret) }),
			hs256(secret[1:], `{"alg":"HS256"}`, payload("")), BadSignature},
		{"empty secret", source(func(i *Issuer) { i.InsecureHMACSecretFile = write(t, "secret", secret) }),
			hs256(nil, `{"alg":"HS256"}`, payload("")), BadSignature},
		{"RS256 with a secret", source(func(i *Issuer) { i.InsecureHMACSecretFile = write(t, "secret", secret) }), sign(t, signer("rsa1"), nil), WrongAlg},
	} {
		t.Run(c.name, func(t *testing.T) { want(t, start(t, c.config), c.token, c.kind) })
	}
}

func TestFilesThatDoNotWork(t *testing.T) {
	private, err := signer("rsa1").PEM()
	if err != nil {
		t.Fatal(err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	smallPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&small.PublicKey)})
	for _, c := range []struct {
		name string
		set  func(*Issuer)
		want string
	}{
		{"absent", func(i *Issuer) { i.JWKSFile = "absent.json" }, "issuers[0].jwks_file: stat absent.json: no such file or directory"},
		{"a directory", func(i *Issuer) { i.JWKSFile = "." }, "issuers[0].jwks_file: open .: not a regular file"},
		{"too large", func(i *Issuer) { i.JWKSFile = write(t, "x", make([]byte, maxDocument+1)) }, "issuers[0].jwks_file: longer than 1048576 bytes"},
		{"not PEM", func(i *Issuer) { i.PublicKeyFile = write(t, "x", []byte("ssh-rsa AAAA")) }, "issuers[0].public_key_file: no key in it"},
		{"private", func(i *Issuer) { i.PublicKeyFile = write(t, "x", private) }, "issuers[0].public_key_file: a private key in it: give only the public key"},
		{"small", func(i *Issuer) { i.PublicKeyFile = write(t, "x", smallPEM) },
			"issuers[0].public_key_file: no usable key among 1: an RSA key of 1024 bits, want 2048 to 8192"},
		{"short secret", func(i *Issuer) { i.InsecureHMACSecretFile = write(t, "x", []byte("hunter2\n")) },
			"issuers[0].insecure_hmac_secret_file: no usable key among 1: a secret of 7 bytes, want at least 32, 48 or 64 for HS256, HS384 or HS512"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := config("")
			c.set(&conf.Issuers[0])
			v, err := New(conf, quiet())
			if v != nil || err == nil || err.Error() != c.want {
				t.Errorf("got %v, %v, want %s", v, err, c.want)
			}
		})
	}
}

func FuzzParseJWKS(f *testing.F) {
	f.Add(`{"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]}`)
	f.Add(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"OKP","crv":"X25519","x":"AAAA"}]}`)
	f.Fuzz(func(t *testing.T, doc string) {
		set, err := parseJWKS([]byte(doc), []string{"RS256", "ES256", "EdDSA"})
		if (set == nil) == (err == nil) {
			t.Fatalf("set %v, error %v", set, err)
		}
	})
}

func FuzzVerify(f *testing.F) {
	c := config("")
	path := filepath.Join(f.TempDir(), "jwks.json")
	if err := os.WriteFile(path, keySetOf(f, "rsa1", "ec"), 0o600); err != nil {
		f.Fatal(err)
	}
	c.Issuers[0].JWKSFile = path
	v, err := New(c, quiet())
	if err != nil {
		f.Fatal(err)
	}
	v.issuers[0].ring.pace.wait = 0
	good := sign(f, signer("ec"), nil)
	f.Add(good)
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := v.Verify(t.Context(), token, nil)
		if (p == nil) == (err == nil) {
			t.Fatalf("principal %v, error %v", p, err)
		}
		if p != nil && token != good && !json.Valid(p.Claims) {
			t.Fatalf("claims %q", p.Claims)
		}
	})
}
