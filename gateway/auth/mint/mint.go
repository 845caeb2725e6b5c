// Package mint makes signed tokens and the key sets that verify them, for tests,
// the demonstration and the command line. A gateway that verifies tokens never
// needs it.
package mint

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/MicahParks/jwkset"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// Signer signs tokens with one private key. Its methods may be called
// concurrently.
type Signer struct {
	key    crypto.Signer
	method jwt.SigningMethod
	id     string
}

// Generate makes a new key for RS256, ES256 or EdDSA.
func Generate(alg string) (*Signer, error) {
	var key crypto.Signer
	var err error
	switch alg {
	case "RS256":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "EdDSA":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, fmt.Errorf("generate a signing key: algorithm %q, want RS256, ES256 or EdDSA", alg)
	}
	if err != nil {
		return nil, fmt.Errorf("generate a signing key for %s: %w", alg, err)
	}
	return New(key)
}

// New returns a signer for an RSA key of at least 2048 bits (RS256), a P-256
// key (ES256) or an Ed25519 key (EdDSA).
func New(key crypto.Signer) (*Signer, error) {
	s := &Signer{key: key}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < 2048 {
			return nil, fmt.Errorf("use a signing key: an RSA key of %d bits, want at least 2048", k.N.BitLen())
		}
		s.method = jwt.SigningMethodRS256
	case *ecdsa.PrivateKey:
		if k.Curve != elliptic.P256() {
			return nil, fmt.Errorf("use a signing key: curve %s, want P-256", k.Curve.Params().Name)
		}
		s.method = jwt.SigningMethodES256
	case ed25519.PrivateKey:
		s.method = jwt.SigningMethodEdDSA
	default:
		return nil, fmt.Errorf("use a signing key: type %T, want RSA, P-256 or Ed25519", key)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	s.id = base64.RawURLEncoding.EncodeToString(sum[:12])
	return s, nil
}

// Parse reads a private key in PEM (PKCS #8).
func Parse(text []byte) (*Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("read a signing key: no PEM block PRIVATE KEY (PKCS #8)")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read a signing key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("use a signing key: type %T, want RSA, P-256 or Ed25519", key)
	}
	return New(signer)
}

// Open reads the key in the file, whatever its algorithm. Where there is no
// file it makes a key for alg and writes it, readable by its owner only.
func Open(path, alg string) (*Signer, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return create(path, alg)
	}
	if err != nil {
		return nil, fmt.Errorf("read a signing key: %w", err)
	}
	s, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func create(path, alg string) (*Signer, error) {
	s, err := Generate(alg)
	if err != nil {
		return nil, err
	}
	text, err := s.PEM()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write a signing key: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("write a signing key: %w", err)
	}
	return s, nil
}

// PEM returns the private key as Parse reads it.
func (s *Signer) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, fmt.Errorf("encode a signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ID returns the key's id, which follows from its public key.
func (s *Signer) ID() string { return s.id }

// Algorithm returns what the signer signs with: RS256, ES256 or EdDSA.
func (s *Signer) Algorithm() string { return s.method.Alg() }

// Public returns the public key: *rsa.PublicKey, *ecdsa.PublicKey or
// ed25519.PublicKey.
func (s *Signer) Public() crypto.PublicKey { return s.key.Public() }

// Sign returns a token of type at+jwt with these claims, nothing added.
func (s *Signer) Sign(claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode the claims: %w", err)
	}
	return s.SignBytes(s.Header(), payload)
}

// Header returns the header of the tokens that Sign makes.
func (s *Signer) Header() jsontext.Value {
	return jsontext.Value(`{"alg":"` + s.Algorithm() + `","kid":"` + s.id + `","typ":"at+jwt"}`)
}

// SignBytes signs a header and a payload as they are, whatever they say, with
// the signer's own algorithm.
func (s *Signer) SignBytes(header, payload []byte) (string, error) {
	enc := base64.RawURLEncoding
	text := enc.EncodeToString(header) + "." + enc.EncodeToString(payload)
	sig, err := s.method.Sign(text, s.key)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return text + "." + enc.EncodeToString(sig), nil
}

// KeySet returns a JSON Web Key Set with the public keys of the signers.
func KeySet(signers ...*Signer) (jsontext.Value, error) {
	set := jwkset.JWKSMarshal{Keys: []jwkset.JWKMarshal{}}
	for _, s := range signers {
		jwk, err := jwkset.NewJWKFromKey(s.Public(), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{
			ALG: jwkset.ALG(s.Algorithm()), KID: s.id, USE: jwkset.UseSig,
		}})
		if err != nil {
			return nil, fmt.Errorf("encode a public key: %w", err)
		}
		set.Keys = append(set.Keys, jwk.Marshal())
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encode the key set: %w", err)
	}
	return doc, nil
}
