package bundles

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/open-policy-agent/opa/v1/bundle"
)

// Algorithms are the signature algorithms that OPA knows.
func Algorithms() []string {
	return []string{"ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}
}

// DefaultAlgorithm is OPA's.
const DefaultAlgorithm = "RS256"

// Key signs or verifies bundles.
type Key struct {
	ID        string
	Algorithm string
	key       any // what golang-jwt takes for the algorithm
}

// ReadSigningKey reads a private key: PEM, a JWKS with private keys, or for HS*
// the file's text as the secret. id chooses a key of a JWKS, which may be left out
// where there is one, and names any other.
func ReadSigningKey(path, algorithm, id string) (*Key, error) {
	return readKey(path, algorithm, id, true)
}

// ReadVerificationKey is ReadSigningKey for public keys and certificates.
func ReadVerificationKey(path, algorithm, id string) (*Key, error) {
	return readKey(path, algorithm, id, false)
}

func readKey(path, algorithm, id string, private bool) (*Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be read: %w", err)
	}
	k := &Key{ID: id, Algorithm: algorithm}
	if trimmed := strings.TrimSpace(string(text)); strings.HasPrefix(trimmed, "{") {
		if err := k.fromSet(text, private); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if k.Algorithm == "" {
		k.Algorithm = DefaultAlgorithm
	}
	if !slices.Contains(Algorithms(), k.Algorithm) {
		return nil, fmt.Errorf("%s: %q is no signature algorithm: want one of %s", path, k.Algorithm, strings.Join(Algorithms(), ", "))
	}
	switch {
	case k.key != nil:
	case strings.HasPrefix(k.Algorithm, "HS"):
		// OPA takes the file as it is, with a line end where there is one.
		k.key = text
	default:
		if k.key, err = fromPEM(text, private); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := k.fits(private); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// fromSet chooses a key of a JWKS, or takes the one JWK.
func (k *Key) fromSet(text []byte, private bool) error {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("no JWKS: %w", err)
	}
	if set.Keys == nil {
		set.Keys = []json.RawMessage{text}
	}
	var ids []string
	var chosen []jwkset.JWK
	for i, raw := range set.Keys {
		j, err := jwkset.NewJWKFromRawJSON(raw, jwkset.JWKMarshalOptions{Private: true}, jwkset.JWKValidateOptions{})
		if err != nil {
			return fmt.Errorf("keys[%d]: %w", i, err)
		}
		ids = append(ids, j.Marshal().KID)
		if k.ID == "" || k.ID == j.Marshal().KID {
			chosen = append(chosen, j)
		}
	}
	if len(chosen) != 1 {
		return fmt.Errorf("choose one of its keys by its id: %s", strings.Join(ids, ", "))
	}
	m := chosen[0].Marshal()
	k.ID, k.key = m.KID, chosen[0].Key()
	if k.Algorithm == "" {
		k.Algorithm = string(m.ALG)
	}
	if !private {
		k.key = public(k.key)
	}
	return nil
}

func public(key any) any {
	switch p := key.(type) {
	case *rsa.PrivateKey:
		return &p.PublicKey
	case *ecdsa.PrivateKey:
		return &p.PublicKey
	case ed25519.PrivateKey:
		return p.Public()
	}
	return key
}

func fromPEM(text []byte, private bool) (any, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("want a PEM block or a JWKS")
	}
	switch block.Type {
	case "RSA PRIVATE KEY":
		return parsed(x509.ParsePKCS1PrivateKey(block.Bytes))
	case "EC PRIVATE KEY":
		return parsed(x509.ParseECPrivateKey(block.Bytes))
	case "PRIVATE KEY":
		return parsed(x509.ParsePKCS8PrivateKey(block.Bytes))
	}
	if private {
		return nil, fmt.Errorf("holds a %s: want a private key", strings.ToLower(block.Type))
	}
	switch block.Type {
	case "PUBLIC KEY":
		return parsed(x509.ParsePKIXPublicKey(block.Bytes))
	case "RSA PUBLIC KEY":
		return parsed(x509.ParsePKCS1PublicKey(block.Bytes))
	case "CERTIFICATE":
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return c.PublicKey, nil
	}
	return nil, fmt.Errorf("holds a %s: want a key or a certificate", strings.ToLower(block.Type))
}

func parsed[T any](key T, err error) (any, error) {
	if err != nil {
		return nil, fmt.Errorf("the key cannot be read: %w", err)
	}
	return key, nil
}

// fits reports whether the algorithm can do with the key, and leaves no private
// part where it only verifies.
func (k *Key) fits(private bool) error {
	if !private {
		k.key = public(k.key)
	}
	ok := false
	switch key := k.key.(type) {
	case []byte:
		ok = strings.HasPrefix(k.Algorithm, "HS") && len(key) > 0
	case *rsa.PrivateKey, *rsa.PublicKey:
		ok = strings.HasPrefix(k.Algorithm, "RS") || strings.HasPrefix(k.Algorithm, "PS")
	case *ecdsa.PrivateKey:
		ok = k.Algorithm == curve(key.Curve.Params().BitSize)
	case *ecdsa.PublicKey:
		ok = k.Algorithm == curve(key.Curve.Params().BitSize)
	case ed25519.PrivateKey, ed25519.PublicKey:
		ok = k.Algorithm == "EdDSA"
	}
	if !ok {
		return fmt.Errorf("the key does not go with %s: name the algorithm that it is for", k.Algorithm)
	}
	return nil
}

// curve is the algorithm that goes with a curve, by its bits.
func curve(bits int) string {
	return map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[bits]
}

// config is the key as OPA verifies with it.
func (k *Key) config() (*bundle.KeyConfig, error) {
	if secret, ok := k.key.([]byte); ok {
		return &bundle.KeyConfig{Key: string(secret), Algorithm: k.Algorithm}, nil
	}
	der, err := x509.MarshalPKIXPublicKey(public(k.key))
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return &bundle.KeyConfig{Key: string(text), Algorithm: k.Algorithm}, nil
}

func (k *Key) method() jwt.SigningMethod { return jwt.GetSigningMethod(k.Algorithm) }
