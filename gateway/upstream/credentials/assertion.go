package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// key signs what proves the gateway to an issuer (RFC 7523 section 2.2).
type key struct {
	private crypto.PrivateKey
	method  jwt.SigningMethod
}

// readKey reads a private key in PEM (PKCS #8). The error repeats neither the
// path nor anything of the key.
func readKey(path string) (*key, error) {
	if path == "" {
		return nil, errors.New("is missing: auth_method: private_key_jwt signs with it")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("holds no PEM block PRIVATE KEY (PKCS #8)")
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("holds no private key that can be read (PKCS #8)")
	}
	switch k := private.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() >= 2048 {
			return &key{k, jwt.SigningMethodRS256}, nil
		}
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() {
			return &key{k, jwt.SigningMethodES256}, nil
		}
	case ed25519.PrivateKey:
		return &key{k, jwt.SigningMethodEdDSA}, nil
	}
	return nil, errors.New("holds a key of another kind: want RSA of 2048 bits or more, P-256 or Ed25519")
}

// assertion returns a token that proves the client to the token endpoint, once
// and for a minute.
func (k *key) assertion(clientID, keyID, tokenURL string, now time.Time) (string, error) {
	t := jwt.NewWithClaims(k.method, jwt.MapClaims{
		"iss": clientID, "sub": clientID, "aud": tokenURL, "jti": uuid.NewString(),
		"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	})
	if keyID != "" {
		t.Header["kid"] = keyID
	}
	signed, err := t.SignedString(k.private)
	if err != nil {
		return "", fmt.Errorf("sign the client's assertion: %w", err)
	}
	return signed, nil
}
