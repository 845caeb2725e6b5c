package keys_test

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/bundles/keys"
	"github.com/regogate/regogate/e2e/keyfile"
)

func TestReadKeys(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private, public := keyfile.PEM(t, r, &r.PublicKey)
	p256, p256public := keyfile.EC(t, elliptic.P256())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &r.PublicKey, r)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r))
	set, privateSet := keyfile.JWKS(t)
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
		"EdDSA":               {private, "EdDSA", "", true, `"EdDSA" is no signature algorithm that is known here: want one of ` + strings.Join(keys.Algorithms(), ", ")},
		"none":                {private, "none", "", true, `"none" is no signature algorithm that is known here: want one of ` + strings.Join(keys.Algorithms(), ", ")},
		"set, unknown":        {set, "", "nobody", false, `no key has the id "nobody": choose one of "rsa", "ec", "oct", "ed", "enc"`},
		"set, several":        {privateSet, "", "", true, `choose one of its keys by its id: "rsa", "ec", "oct"`},
		"set, public":         {set, "", "rsa", true, "holds a public key: want the private one"},
		"set, Ed25519":        {set, "", "ed", false, "holds a key that nothing is signed with here: want RSA, P-256, P-384, P-521 or a secret"},
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
			var k *keys.Key
			if k, err = keys.ReadSigning(path, c.algorithm, c.id); err == nil {
				got = append(got, k.String())
			}
		} else {
			var all []*keys.Key
			all, err = keys.ReadVerification(path, c.algorithm, c.id)
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
	if _, err := keys.ReadSigning(filepath.Join(t.TempDir(), "none"), "", ""); err == nil || !strings.Contains(err.Error(), "the key cannot be read: open ") {
		t.Errorf("no file: %v", err)
	}
}

// A key has one fingerprint, private or public, whatever it is called and used for;
// other keys have others.
func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	of := func(name, text, algorithm, id string) string {
		t.Helper()
		read, err := keys.ReadVerification(write(t, filepath.Join(t.TempDir(), "key"), text), algorithm, id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read[0].Fingerprint()
		if err != nil || len(got) != 32 || seen[got] != "" && seen[got] != name {
			t.Errorf("%s: %q %v, which is %s", name, got, err, seen[got])
		}
		seen[got] = name
		return got
	}
	private, public := keyfile.EC(t, elliptic.P256())
	other, _ := keyfile.EC(t, elliptic.P256())
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

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
