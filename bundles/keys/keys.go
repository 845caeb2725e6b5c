// Package keys reads the keys that sign and verify what regogate publishes, policy
// bundles and catalogues alike: PEM, JWKS and secrets.
package keys

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
)

// Algorithms are the signature algorithms that the keys in OPA's configuration can
// be for. EdDSA is none of them: nothing that is sent bundles could verify it.
func Algorithms() []string {
	return []string{"ES256", "ES384", "ES512", "HS256", "HS384", "HS512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}
}

// Key signs or verifies. It is safe for concurrent use while nobody changes it.
type Key struct {
	ID        string
	Algorithm string
	key       any // what golang-jwt takes for the algorithm
}

// String tells keys apart and nothing of what they are.
func (k *Key) String() string {
	if k.ID == "" {
		return k.Algorithm
	}
	return k.Algorithm + " and key " + strconv.Quote(k.ID)
}

// Fingerprint is the same for the same key and for no other, 32 hex digits. What it
// tells of a secret is no more than a signature does.
func (k *Key) Fingerprint() (string, error) {
	if secret, ok := k.key.([]byte); ok {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte("fingerprint of a key for bundles"))
		return hex.EncodeToString(mac.Sum(nil)[:16]), nil
	}
	der, err := x509.MarshalPKIXPublicKey(public(k.key))
	if err != nil {
		return "", fmt.Errorf("the key cannot be named: %w", err)
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:16]), nil
}

// maxKeyFile is far above what keys need, in bytes.
const maxKeyFile = 1 << 20

// ReadSigning reads a private key: PEM, a JWKS with private keys, or for HS* the
// file's bytes as the secret, with a line end where there is one, as OPA has it. id
// chooses a key of a JWKS, which may be left out where there is one, and names any
// other. Without an algorithm it is the JWKS's, or the first that goes with the key.
// Errors never hold any of the key.
func ReadSigning(path, algorithm, id string) (*Key, error) {
	keys, err := readKeys(path, algorithm, id, true)
	if err != nil {
		return nil, err
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("%s: choose one of its keys by its id: %s", path, ids(keys))
	}
	return keys[0], nil
}

// ReadVerification is ReadSigning for public keys and certificates; a private
// key does for its public one. Of a JWKS without an id it returns every key that
// can verify a signature.
func ReadVerification(path, algorithm, id string) ([]*Key, error) {
	return readKeys(path, algorithm, id, false)
}

func readKeys(path, algorithm, id string, private bool) ([]*Key, error) {
	if algorithm != "" && !slices.Contains(Algorithms(), algorithm) {
		return nil, fmt.Errorf("%q is no signature algorithm that is known here: want one of %s", algorithm, strings.Join(Algorithms(), ", "))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("the key cannot be read: %w", err)
	}
	keys, err := parseKeys(text, algorithm, id, private)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

func parseKeys(text []byte, algorithm, id string, private bool) ([]*Key, error) {
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("is larger than %d bytes: want a key", maxKeyFile)
	}
	if strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return fromSet(text, algorithm, id, private)
	}
	k := &Key{ID: id, Algorithm: algorithm}
	block, rest := pem.Decode(text)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl puts it before the key
		block, _ = pem.Decode(rest)
	}
	switch secret := strings.HasPrefix(algorithm, "HS"); {
	case secret && block != nil:
		// Whoever has the public key could sign with it.
		return nil, fmt.Errorf("holds %q in PEM, and %s wants a secret", block.Type, algorithm)
	case secret && len(text) == 0:
		return nil, errors.New("is empty: want a secret")
	case secret:
		k.key = text
	case block == nil:
		return nil, errors.New("want a PEM block or a JWKS; for a secret, name the algorithm, such as HS256")
	default:
		key, err := fromPEM(block, private)
		if err != nil {
			return nil, err
		}
		k.key = key
	}
	if err := k.fit(private); err != nil {
		return nil, err
	}
	return []*Key{k}, nil
}

// fromSet returns the keys of a JWKS, or the one JWK, that the id and algorithm
// leave.
func fromSet(text []byte, algorithm, id string, private bool) (keys []*Key, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("no JWKS: %w", err)
	}
	if set.Keys == nil {
		set.Keys = []json.RawMessage{text}
	}
	var all []*Key
	var unfit error
	for i, raw := range set.Keys {
		j, err := jwkset.NewJWKFromRawJSON(raw, jwkset.JWKMarshalOptions{Private: true}, jwkset.JWKValidateOptions{})
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		m := j.Marshal()
		k := &Key{ID: m.KID, Algorithm: string(m.ALG), key: j.Key()}
		all = append(all, k)
		if id != "" && id != k.ID {
			continue
		}
		if algorithm != "" {
			k.Algorithm = algorithm
		}
		// A set may hold keys for other uses.
		if err := k.fit(private); err != nil {
			unfit = fmt.Errorf("keys[%d]: %w", i, err)
			continue
		}
		keys = append(keys, k)
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("the JWKS holds no key")
	case len(keys) == 0 && unfit != nil:
		return nil, unfit
	case len(keys) == 0:
		return nil, fmt.Errorf("no key has the id %q: choose one of %s", id, ids(all))
	}
	return keys, distinct(keys)
}

// distinct holds several keys to names that tell them apart.
func distinct(keys []*Key) error {
	seen := map[string]bool{}
	for _, k := range keys {
		switch {
		case len(keys) > 1 && k.ID == "":
			return errors.New("one of several keys has no kid: give each key of the JWKS one")
		case seen[k.ID]:
			return fmt.Errorf("two keys have the id %q: give each key of the JWKS its own", k.ID)
		}
		seen[k.ID] = true
	}
	return nil
}

func ids(keys []*Key) string {
	var list []string
	for _, k := range keys {
		list = append(list, strconv.Quote(k.ID))
	}
	return strings.Join(list, ", ")
}

func public(key any) any {
	switch p := key.(type) {
	case *rsa.PrivateKey:
		return &p.PublicKey
	case *ecdsa.PrivateKey:
		return &p.PublicKey
	}
	return key
}

func fromPEM(block *pem.Block, private bool) (any, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		return parsed(x509.ParsePKCS1PrivateKey(block.Bytes))
	case "EC PRIVATE KEY":
		return parsed(x509.ParseECPrivateKey(block.Bytes))
	case "PRIVATE KEY":
		return parsed(x509.ParsePKCS8PrivateKey(block.Bytes))
	}
	if private {
		return nil, fmt.Errorf("holds %q in PEM: want a private key, not encrypted", block.Type)
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
	return nil, fmt.Errorf("holds %q in PEM: want a key or a certificate", block.Type)
}

func parsed[T any](key T, err error) (any, error) {
	if err != nil {
		return nil, fmt.Errorf("the key cannot be read: %w", err)
	}
	return key, nil
}

// fit sees to it that the algorithm can do with the key, and leaves no private part
// where it only verifies.
func (k *Key) fit(private bool) error {
	fitting := goesWith(public(k.key))
	if len(fitting) == 0 {
		return errors.New("holds a key that nothing is signed with here: want RSA, P-256, P-384, P-521 or a secret")
	}
	switch k.key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		if private {
			return errors.New("holds a public key: want the private one")
		}
	}
	if !private {
		k.key = public(k.key)
	}
	if k.Algorithm == "" {
		k.Algorithm = fitting[0]
	}
	if !slices.Contains(fitting, k.Algorithm) {
		return fmt.Errorf("the key does not go with %q: want %s", k.Algorithm, strings.Join(fitting, ", "))
	}
	return nil
}

// goesWith are the algorithms for a public key or secret.
func goesWith(key any) []string {
	switch key := key.(type) {
	case []byte:
		if len(key) > 0 {
			return []string{"HS256", "HS384", "HS512"}
		}
	case *rsa.PublicKey:
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return []string{"ES256"}
		case elliptic.P384():
			return []string{"ES384"}
		case elliptic.P521():
			return []string{"ES512"}
		}
	}
	return nil
}

// Sign returns the claims as a JWS in compact form, whose header has the key's id,
// where it has one, and typ.
func (k *Key) Sign(typ string, claims jwt.Claims) (string, error) {
	token := jwt.NewWithClaims(jwt.GetSigningMethod(k.Algorithm), claims)
	token.Header["typ"] = typ
	if k.ID != "" {
		token.Header["kid"] = k.ID
	}
	return token.SignedString(k.key)
}

// Public is what verifies what the key signs: *rsa.PublicKey, *ecdsa.PublicKey, or
// []byte, which is the secret itself.
func (k *Key) Public() any { return public(k.key) }
