// Package keyfile makes keys for tests, as files have them.
package keyfile

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/MicahParks/jwkset"

	"github.com/regogate/regogate/bundles/keys"
)

// Pair is a key as files have it: for signing, and for verifying.
type Pair struct{ Algorithm, Private, Public string }

// PEM returns the keys in PEM.
func PEM(t testing.TB, private any, public any) (string, string) {
	t.Helper()
	p, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	q, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p})), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: q}))
}

// EC makes a key on the curve, in PEM.
func EC(t testing.TB, c elliptic.Curve) (string, string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return PEM(t, k, &k.PublicKey)
}

// Pairs has a key for every algorithm.
func Pairs(t testing.TB) (list []Pair) {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private, public := PEM(t, k, &k.PublicKey)
	curves := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}
	for _, a := range keys.Algorithms() {
		p := Pair{a, private, public}
		switch {
		case strings.HasPrefix(a, "ES"):
			p.Private, p.Public = EC(t, curves[a])
		case strings.HasPrefix(a, "HS"):
			p.Private = "a secret that is long enough, it is: " + rand.Text() + "\n"
			p.Public = p.Private
		}
		list = append(list, p)
	}
	return list
}

// Keys reads both, under the id.
func (p Pair) Keys(t testing.TB, id string) (*keys.Key, []*keys.Key) {
	t.Helper()
	dir := t.TempDir()
	sign, err := keys.ReadSigning(write(t, filepath.Join(dir, "private"), p.Private), p.Algorithm, id)
	if err != nil {
		t.Fatal(err)
	}
	verify, err := keys.ReadVerification(write(t, filepath.Join(dir, "public"), p.Public), p.Algorithm, id)
	if err != nil {
		t.Fatal(err)
	}
	return sign, verify
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// JWKS is a set of an RSA key, an EC key, a secret and two keys for other things,
// for verifying and for signing.
func JWKS(t testing.TB) (public, private string) {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := e.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := e.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	half := len(point) / 2
	keys := []map[string]string{
		{"kty": "RSA", "kid": "rsa", "alg": "PS256", "n": b64(r.N.Bytes()), "e": "AQAB"},
		{"kty": "EC", "kid": "ec", "crv": "P-384", "x": b64(point[1 : 1+half]), "y": b64(point[1+half:])},
		{"kty": "oct", "kid": "oct", "alg": "HS512", "k": b64([]byte("a secret of many, many words, so that it is long enough"))},
		{"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": b64(p)},
		{"kty": "RSA", "kid": "enc", "alg": "RSA-OAEP", "n": b64(r.N.Bytes()), "e": "AQAB"},
	}
	text := func() string {
		out, err := json.Marshal(map[string]any{"keys": keys})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	public = text()
	keys[0]["d"], keys[0]["p"], keys[0]["q"] = b64(r.D.Bytes()), b64(r.Primes[0].Bytes()), b64(r.Primes[1].Bytes())
	keys[0]["dp"], keys[0]["dq"], keys[0]["qi"] = b64(r.Precomputed.Dp.Bytes()), b64(r.Precomputed.Dq.Bytes()), b64(r.Precomputed.Qinv.Bytes())
	keys[1]["d"] = b64(scalar)
	return public, text()
}

// Set is a JWKS of a new P-256 key for each id, for verifying and for signing.
func Set(t testing.TB, ids ...string) (public, private string) {
	t.Helper()
	var sets [2]struct {
		Keys []jwkset.JWKMarshal `json:"keys"`
	}
	for _, id := range ids {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sets {
			o := jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: id}, Marshal: jwkset.JWKMarshalOptions{Private: i == 1}}
			j, err := jwkset.NewJWKFromKey(k, o)
			if err != nil {
				t.Fatal(err)
			}
			sets[i].Keys = append(sets[i].Keys, j.Marshal())
		}
	}
	var texts [2]string
	for i, s := range sets {
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(out)
	}
	return texts[0], texts[1]
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
