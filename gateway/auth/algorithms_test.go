package auth

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func newECDSA(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicPEM(t *testing.T, key crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Every algorithm verifies what an independent signer made with it, a token
// with another alg over the same key is refused, and so is each key that is
// too small or on another curve.
func TestEveryAlgorithm(t *testing.T) {
	rs := privateKey(t, signer("rsa1"))
	p256, p384, p521 := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P384()), newECDSA(t, elliptic.P521())
	secret := func(n int) []byte { return []byte(strings.Repeat("s", n)) }
	for _, c := range []struct {
		by     jwt.SigningMethod
		key    any
		public any
		others string
	}{
		{jwt.SigningMethodRS256, rs, rs.Public(), "ES256 HS256 EdDSA"},
		{jwt.SigningMethodRS384, rs, rs.Public(), "ES384"},
		{jwt.SigningMethodRS512, rs, rs.Public(), "ES512"},
		{jwt.SigningMethodPS256, rs, rs.Public(), "ES256"},
		{jwt.SigningMethodPS384, rs, rs.Public(), "ES384"},
		{jwt.SigningMethodPS512, rs, rs.Public(), "ES512"},
		{jwt.SigningMethodES256, p256, p256.Public(), "ES384 ES512 RS256"},
		{jwt.SigningMethodES384, p384, p384.Public(), "ES256 ES512"},
		{jwt.SigningMethodES512, p521, p521.Public(), "ES256 ES384"},
		{jwt.SigningMethodHS256, secret(32), secret(32), "HS384 HS512 RS256"},
		{jwt.SigningMethodHS384, secret(48), secret(48), "HS512"},
		{jwt.SigningMethodHS512, secret(64), secret(64), "ES512"},
	} {
		t.Run(c.by.Alg(), func(t *testing.T) {
			text := segment(`{"alg":"`+c.by.Alg()+`"}`) + "." + segment(payload(""))
			sig, err := c.by.Sign(text, c.key)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := parse(text + "." + base64.RawURLEncoding.EncodeToString(sig))
			if err != nil {
				t.Fatal(err)
			}
			b := builder{allowed: []string{c.by.Alg()}}
			b.add("", c.public, nil)
			if ok, _ := b.set.verify(tok); !ok {
				t.Errorf("not verified; skipped because: %v", b.reason)
			}
			for _, alg := range strings.Fields(c.others) {
				b := builder{allowed: []string{alg}}
				if b.add("", c.public, nil); len(b.set.keys) != 0 {
					t.Errorf("the key is taken for %s", alg)
				}
			}
		})
	}
}

func TestPEM(t *testing.T) {
	rs := privateKey(t, signer("rsa1"))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &rs.PublicKey, rs)
	if err != nil {
		t.Fatal(err)
	}
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	for _, c := range []struct {
		name    string
		doc     []byte
		keys    int
		problem string
	}{
		{"public key", publicPEM(t, &rs.PublicKey), 1, ""},
		{"PKCS #1", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rs.PublicKey)), 1, ""},
		{"certificate", block("CERTIFICATE", cert), 1, ""},
		{"two, and text around them", []byte("key:\n" + string(publicPEM(t, &rs.PublicKey)) + "\n" + string(block("CERTIFICATE", cert)) + "end"), 2, ""},
		{"P-224", publicPEM(t, newECDSA(t, elliptic.P224()).Public()), 0, "no usable key among 1: a key of type *ecdsa.PublicKey"},
		{"X25519", publicPEM(t, x25519.PublicKey()), 0, "no usable key among 1: a key of type *ecdh.PublicKey"},
		{"EC where RS256 is allowed", publicPEM(t, newECDSA(t, elliptic.P256()).Public()), 0,
			"no usable key among 1: the key suits none of the algorithms"},
		{"broken certificate", block("CERTIFICATE", []byte("x")), 0, `read "CERTIFICATE": x509: malformed certificate`},
		{"parameters", block("EC PARAMETERS", nil), 0, `read "EC PARAMETERS": neither a public key nor a certificate`},
		{"RSA private", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rs)), 0, "a private key in it: give only the public key"},
		{"too many", []byte(strings.Repeat(string(publicPEM(t, &rs.PublicKey)), maxKeys+1)), 0, "more than 1000 keys"},
		{"nothing", nil, 0, "no key in it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := parsePEM(c.doc, []string{"RS256"})
			if c.problem == "" && (err != nil || len(set.keys) != c.keys) {
				t.Errorf("got %v, %v", set, err)
			}
			if c.problem != "" && (set != nil || err == nil || err.Error() != c.problem) {
				t.Errorf("got %v, %v, want %s", set, err, c.problem)
			}
		})
	}
}
