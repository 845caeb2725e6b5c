package bundles_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/bundles"
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwks is a set of an RSA key, an EC key, a secret and two keys for other things,
// for verifying and for signing.
func jwks(t testing.TB) (public, private string) {
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

func TestReadKeys(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private, public := pems(t, r, &r.PublicKey)
	p256, p256public := ec(t, elliptic.P256())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &r.PublicKey, r)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r))
	set, privateSet := jwks(t)
	for name, c := range map[string]struct {
		text, algorithm, id string
		private             bool
		want                string // the keys, or the end of the error
	}{
		"PKCS#8":              {private, "", "", true, "RS256"},
		"PKCS#1":              {pkcs1, "PS512", "k", true, `PS512 and key "k"`},
		"EC":                  {p256, "", "", true, "ES256"},
		"public":              {public, "", "", false, "RS256"},
		"public PKCS#1":       {block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&r.PublicKey)), "RS384", "", false, "RS384"},
		"certificate":         {block("CERTIFICATE", der), "", "", false, "RS256"},
		"private for public":  {p256, "", "", false, "ES256"},
		"secret":              {"s3cret\n", "HS256", "", true, "HS256"},
		"set, chosen":         {privateSet, "", "ec", true, `ES384 and key "ec"`},
		"set, algorithm":      {privateSet, "HS256", "oct", true, `HS256 and key "oct"`},
		"set, all":            {set, "", "", false, `PS256 and key "rsa", ES384 and key "ec", HS512 and key "oct"`},
		"set, all of one":     {set, "RS512", "", false, `RS512 and key "rsa", RS512 and key "enc"`},
		"no key":              {"s3cret", "", "", true, "want a PEM block or a JWKS; for a secret, name the algorithm, such as HS256"},
		"empty secret":        {"", "HS256", "", true, "is empty: want a secret"},
		"public as a secret":  {public, "HS256", "", false, `holds "PUBLIC KEY" in PEM, and HS256 wants a secret`},
		"public for private":  {public, "", "", true, `holds "PUBLIC KEY" in PEM: want a private key, not encrypted`},
		"encrypted":           {block("ENCRYPTED PRIVATE KEY", []byte("s3cret")), "", "", true, `holds "ENCRYPTED PRIVATE KEY" in PEM: want a private key, not encrypted`},
		"parameters":          {block("EC PARAMETERS", nil), "", "", false, "want a PEM block or a JWKS; for a secret, name the algorithm, such as HS256"},
		"request":             {block("CERTIFICATE REQUEST", nil), "", "", false, `holds "CERTIFICATE REQUEST" in PEM: want a key or a certificate`},
		"after parameters":    {block("EC PARAMETERS", nil) + p256, "", "", true, "ES256"},
		"broken":              {block("PRIVATE KEY", []byte("s3cret")), "", "", true, "the key cannot be read: asn1: structure error: tags don't match"},
		"wrong algorithm":     {p256public, "RS256", "", false, `the key does not go with "RS256": want ES256`},
		"wrong curve":         {p256, "ES384", "", true, `the key does not go with "ES384": want ES256`},
		"EdDSA":               {private, "EdDSA", "", true, `"EdDSA" is no signature algorithm for bundles: want one of ` + strings.Join(bundles.Algorithms(), ", ")},
		"none":                {private, "none", "", true, `"none" is no signature algorithm for bundles: want one of ` + strings.Join(bundles.Algorithms(), ", ")},
		"set, unknown":        {set, "", "nobody", false, `no key has the id "nobody": choose one of "rsa", "ec", "oct", "ed", "enc"`},
		"set, several":        {privateSet, "", "", true, `choose one of its keys by its id: "rsa", "ec", "oct"`},
		"set, public":         {set, "", "rsa", true, "holds a public key: want the private one"},
		"set, Ed25519":        {set, "", "ed", false, "holds a key that no signature of a bundle can be made with: want RSA, P-256, P-384, P-521 or a secret"},
		"set, empty":          {`{"keys": []}`, "", "", false, "the JWKS holds no key"},
		"set, cut off":        {`{"keys": [{"k": "s3cret"`, "", "", false, "no JWKS: unexpected end of JSON input"},
		"set, of a broken":    {`{"keys": [{"kty": "oct", "k": "s3cret!!"}]}`, "", "", true, "illegal base64 data"},
		"set, without names":  {`{"keys": [{"kty": "oct", "k": "czNjcmV0"}, {"kty": "oct", "k": "czNjcmV0"}]}`, "", "", false, "one of several keys has no kid: give each key of the JWKS one"},
		"set, with one twice": {`{"keys": [{"kty": "oct", "kid": "a", "k": "czNjcmV0"}, {"kty": "oct", "kid": "a", "k": "czNjcmV0"}]}`, "", "", false, `two keys have the id "a": give each key of the JWKS its own`},
		"large":               {strings.Repeat("s3cret", 1<<18), "HS256", "", true, "is larger than 1048576 bytes: want a key"},
	} {
		path := write(t, filepath.Join(t.TempDir(), "key"), c.text)
		var got []string
		var err error
		if c.private {
			var k *bundles.Key
			if k, err = bundles.ReadSigningKey(path, c.algorithm, c.id); err == nil {
				got = append(got, k.String())
			}
		} else {
			var all []*bundles.Key
			all, err = bundles.ReadVerificationKeys(path, c.algorithm, c.id)
			for _, k := range all {
				got = append(got, k.String())
			}
		}
		says := strings.Join(got, ", ")
		if err != nil {
			says = err.Error()
		}
		if err == nil && says != c.want || err != nil && !strings.Contains(says, c.want) || strings.Contains(says, "\n") {
			t.Errorf("%s: %s, want %s", name, says, c.want)
		}
		if strings.Contains(fmt.Sprintf("%v %+v", says, err), "s3cret") {
			t.Errorf("%s tells the secret: %s", name, says)
		}
	}
	if _, err := bundles.ReadSigningKey(filepath.Join(t.TempDir(), "none"), "", ""); err == nil || !strings.Contains(err.Error(), "the key cannot be read: open ") {
		t.Errorf("no file: %v", err)
	}
}

// A key has one fingerprint, private or public, whatever it is called and used for;
// other keys have others.
func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	of := func(name, text, algorithm, id string) string {
		t.Helper()
		keys, err := bundles.ReadVerificationKeys(write(t, filepath.Join(t.TempDir(), "key"), text), algorithm, id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := keys[0].Fingerprint()
		if err != nil || len(got) != 32 || seen[got] != "" && seen[got] != name {
			t.Errorf("%s: %q %v, which is %s", name, got, err, seen[got])
		}
		seen[got] = name
		return got
	}
	private, public := ec(t, elliptic.P256())
	other, _ := ec(t, elliptic.P256())
	if of("one", private, "", "a") != of("one", public, "", "b") {
		t.Error("a public key has another fingerprint than the private one")
	}
	of("another", other, "", "a")
	if of("a secret", "secret", "HS256", "") != of("a secret", "secret", "HS512", "x") {
		t.Error("the fingerprint of a secret is not its own")
	}
	of("another secret", "secret\n", "HS256", "")
	sum := sha256.Sum256([]byte("secret"))
	if digest := hex.EncodeToString(sum[:]); seen[digest[:32]] != "" {
		t.Error("the fingerprint of a secret is its digest")
	}
}
