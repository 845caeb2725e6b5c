package depot

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"
)

// keyring makes RSA keys as they are named. It is safe for concurrent use.
type keyring struct {
	mu   sync.Mutex
	keys map[string]*rsa.PrivateKey
}

func (k *keyring) key(name string) (*rsa.PrivateKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := k.keys[name]; key != nil {
		return key, nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	if k.keys == nil {
		k.keys = map[string]*rsa.PrivateKey{}
	}
	k.keys[name] = key
	return key, nil
}

// PublicKey returns the named signing key's public half in PEM, as a
// configuration has it. The key is made where there is none of that name.
func (d *Depot) PublicKey(name string) (string, error) {
	key, err := d.keys.key(name)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), err
}

// sign returns .signatures.json for the files.
func (k *keyring) sign(s *Signature, files map[string]string) (string, error) {
	listed := []map[string]string{}
	names := append(slices.Collect(maps.Keys(files)), s.Beside...)
	for _, name := range slices.Sorted(slices.Values(names)) {
		if slices.Contains(s.Without, name) {
			continue
		}
		digest, err := hash(name, files[name])
		if err != nil {
			return "", err
		}
		listed = append(listed, map[string]string{"name": name, "hash": digest, "algorithm": "SHA-256"})
	}
	token, err := k.token(s, jwt.MapClaims{"files": listed})
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"signatures": []string{token}})
	return string(raw), err
}

// hash digests data as signatures of bundles do: what has a structure by its
// value, everything else by its bytes.
func hash(name, text string) (string, error) {
	var value any = []byte(text)
	if bundle.IsStructuredDoc(name) {
		var parsed any
		if util.Unmarshal([]byte(text), &parsed) == nil { // what is broken has no value
			value = parsed
		}
	}
	h, err := bundle.NewSignatureHasher(bundle.SHA256)
	if err != nil {
		return "", err
	}
	sum, err := h.HashFile(value)
	return hex.EncodeToString(sum), err
}

func (k *keyring) token(s *Signature, claims jwt.MapClaims) (string, error) {
	key, err := k.key(s.Key)
	if err != nil {
		return "", err
	}
	if s.Expires != 0 {
		claims["exp"] = time.Now().Add(s.Expires).Unix()
	}
	if s.Scope != "" {
		claims["scope"] = s.Scope
	}
	id := s.KeyID
	if id == "" {
		id = s.Key
	}
	var method jwt.SigningMethod = jwt.SigningMethodRS256
	var with any = key
	if s.Alg == "none" {
		method, with = jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType
	}
	t := jwt.NewWithClaims(method, claims)
	if id != "none" {
		t.Header["kid"] = id
		claims["keyid"] = id
	}
	if s.Alg != "" {
		t.Header["alg"] = s.Alg
	}
	return t.SignedString(with)
}
