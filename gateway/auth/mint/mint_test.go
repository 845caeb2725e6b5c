package mint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func TestSign(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256", "EdDSA"} {
		t.Run(alg, func(t *testing.T) {
			s, err := Generate(alg)
			if err != nil {
				t.Fatal(err)
			}
			text, err := s.Sign(map[string]any{"sub": "a", "big": int64(9007199254740993)})
			if err != nil {
				t.Fatal(err)
			}
			// An independent reader: the library's own parser.
			token, err := jwt.NewParser(jwt.WithValidMethods([]string{alg}), jwt.WithJSONNumber()).Parse(text,
				func(*jwt.Token) (any, error) { return s.Public(), nil })
			if err != nil {
				t.Fatal(err)
			}
			claims := token.Claims.(jwt.MapClaims)
			if len(claims) != 2 || claims["sub"] != "a" || claims["big"] != json.Number("9007199254740993") {
				t.Errorf("claims %v", claims)
			}
			if token.Header["kid"] != s.ID() || token.Header["typ"] != "at+jwt" || s.Algorithm() != alg {
				t.Errorf("header %v", token.Header)
			}
		})
	}
	if _, err := Generate("HS256"); err == nil || !strings.Contains(err.Error(), "want RS256, ES256 or EdDSA") {
		t.Errorf("HS256: %v", err)
	}
}

func TestKeySet(t *testing.T) {
	var list []*Signer
	for _, alg := range []string{"ES256", "EdDSA"} {
		s, err := Generate(alg)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	doc, err := KeySet(list...)
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(doc, &set); err != nil {
		t.Fatal(err)
	}
	for i, k := range set.Keys {
		if k["kid"] != list[i].ID() || k["alg"] != list[i].Algorithm() || k["use"] != "sig" || k["d"] != "" {
			t.Errorf("key %v", k)
		}
	}
	if empty, err := KeySet(); string(empty) != `{"keys":[]}` || err != nil {
		t.Errorf("no signer: %s, %v", empty, err)
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	made, err := Open(path, "ES256")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	read, err := Open(path, "RS256")
	if err != nil || read.ID() != made.ID() || read.Algorithm() != "ES256" {
		t.Errorf("read back %v, %v", read, err)
	}
	for name, text := range map[string]string{"not PEM": "hello", "public": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		bad := filepath.Join(t.TempDir(), "bad.pem")
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(bad, "ES256"); err == nil || err.Error() != bad+": read a signing key: no PEM block PRIVATE KEY (PKCS #8)" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(path, "x"), "ES256"); err == nil {
		t.Error("a path below a file")
	}
	wrong, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(wrong); err == nil || err.Error() != "use a signing key: curve P-384, want P-256" {
		t.Errorf("P-384: %v", err)
	}
}
