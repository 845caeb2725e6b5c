package cases

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"
)

// Keyring makes keys and keeps them, since they take long to make. It is safe
// for concurrent use.
type Keyring struct {
	mu   sync.Mutex
	keys map[string]crypto.Signer
}

// Get returns the key of this name and kind: rsa, rsa1024, p256 or ed25519.
func (k *Keyring) Get(name, kind string) (crypto.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := kind + " " + name
	if key := k.keys[id]; key != nil {
		return key, nil
	}
	key, err := newKey(kind)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", name, err)
	}
	if k.keys == nil {
		k.keys = map[string]crypto.Signer{}
	}
	k.keys[id] = key
	return key, nil
}

func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "rsa":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "rsa1024":
		return rsa.GenerateKey(rand.Reader, 1024)
	case "p256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ed25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown kind %q: want rsa, rsa1024, p256 or ed25519", kind)
}

func algorithm(key crypto.Signer) string {
	switch key.(type) {
	case *rsa.PrivateKey:
		return "RS256"
	case *ecdsa.PrivateKey:
		return "ES256"
	}
	return "EdDSA"
}

// text encodes bytes as JOSE does.
func text(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// publicJWK returns the members of the public key.
func publicJWK(key crypto.Signer) (map[string]any, error) {
	switch k := key.Public().(type) {
	case *rsa.PublicKey:
		e := []byte{byte(k.E >> 16), byte(k.E >> 8), byte(k.E)}
		return map[string]any{"kty": "RSA", "n": text(k.N.Bytes()), "e": text(e)}, nil
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			return nil, err
		}
		return map[string]any{"kty": "EC", "crv": "P-256", "x": text(point[1:33]), "y": text(point[33:])}, nil
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "crv": "Ed25519", "x": text(k)}, nil
	}
	return nil, fmt.Errorf("no JWK for a key of type %T", key)
}

// keySet returns the key set that publishes these keys.
func (w *world) keySet(list []JWK) (string, error) {
	var keys []string
	for _, j := range list {
		one, err := w.jwk(j)
		if err != nil {
			return "", err
		}
		for range max(j.Copies, 1) {
			keys = append(keys, one)
		}
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`, nil
}

func (w *world) jwk(j JWK) (string, error) {
	if j.Raw != "" {
		return j.Raw, nil
	}
	key, err := w.key(j.Key)
	if err != nil {
		return "", err
	}
	members, err := publicJWK(key)
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{"kid": j.KID, "alg": j.Alg, "use": j.Use} {
		if value != "" {
			members[name] = value
		}
	}
	out, err := json.Marshal(members, json.Deterministic(true))
	return string(out), err
}

func (w *world) key(name string) (crypto.Signer, error) {
	kind, ok := w.spec.Keys[name]
	if !ok && name == "k1" {
		kind, ok = "rsa", true
	}
	if !ok {
		return nil, fmt.Errorf("the world has no key %q", name)
	}
	return w.keys.Get(name, kind)
}

// mint makes a token and remembers it as a secret.
func (w *world) mint(t Token) (string, error) {
	if t.Text != "" {
		return t.Text, nil
	}
	if t.Key == "" {
		t.Key = "k1"
	}
	key, err := w.key(t.Key)
	if err != nil {
		return "", err
	}
	payload, err := w.payload(t)
	if err != nil {
		return "", err
	}
	if t.Sign == "" {
		t.Sign = algorithm(key)
	}
	if t.Header == "" {
		t.Header = `{"alg":"` + t.Sign + `","kid":"` + t.Key + `","typ":"at+jwt"}`
	}
	signed := text([]byte(t.Header)) + "." + text(payload)
	signature, err := w.sign(t, key, signed)
	if err != nil {
		return "", err
	}
	token := signed + "." + text(signature)
	w.secret(token)
	return token, nil
}

func (w *world) payload(t Token) ([]byte, error) {
	if t.Payload != "" {
		return []byte(t.Payload), nil
	}
	name := t.Issuer
	if name == "" {
		name = "main"
	}
	claims := map[string]any{
		"iss": issuerName(name, w.spec.Issuers[name]), "aud": audience, "sub": "agent-1", "exp": time.Now().Add(10 * time.Minute).Unix(),
	}
	maps.Copy(claims, t.Claims)
	for _, name := range t.Without {
		delete(claims, name)
	}
	return json.Marshal(claims, json.Deterministic(true))
}

func (w *world) sign(t Token, key crypto.Signer, signed string) ([]byte, error) {
	switch {
	case t.Unsigned:
		return nil, nil
	case t.HMAC != "":
		secret, err := w.hmacSecret(t.HMAC, key)
		if err != nil {
			return nil, err
		}
		return jwt.SigningMethodHS256.Sign(signed, secret)
	}
	method := jwt.GetSigningMethod(t.Sign)
	if method == nil {
		return nil, fmt.Errorf("sign a token: unknown algorithm %q", t.Sign)
	}
	return method.Sign(signed, key)
}

// hmacSecret is what an attacker has at hand.
func (w *world) hmacSecret(kind string, key crypto.Signer) ([]byte, error) {
	switch kind {
	case "empty":
		return []byte{}, nil
	case "pem":
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
	case "modulus":
		k, ok := key.Public().(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("hmac modulus: the key is no RSA key")
		}
		return k.N.Bytes(), nil
	case "jwks":
		return []byte(w.issuers["main"].published()), nil
	}
	return nil, fmt.Errorf("hmac %q: want pem, modulus, jwks or empty", kind)
}
