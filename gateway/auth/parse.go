package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/MicahParks/jwkset"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// builder gathers the usable keys of one document.
type builder struct {
	allowed []string
	set     keySet
	reason  error // why the first of the skipped keys was skipped
}

func (b *builder) add(id string, material any, restrict func(alg string) bool) {
	algs, err := suits(material)
	if err != nil {
		b.skip(err)
		return
	}
	algs = slices.DeleteFunc(algs, func(alg string) bool {
		return !slices.Contains(b.allowed, alg) || restrict != nil && !restrict(alg)
	})
	if len(algs) == 0 {
		b.skip(errors.New("the key suits none of the algorithms"))
		return
	}
	b.set.keys = append(b.set.keys, key{id, material, algs})
}

func (b *builder) skip(reason error) {
	b.set.skipped++
	if b.reason == nil {
		b.reason = reason
	}
}

func (b *builder) build() (*keySet, error) {
	if len(b.set.keys) == 0 && b.reason != nil {
		return nil, fmt.Errorf("no usable key among %d: %w", b.set.skipped, b.reason)
	}
	if len(b.set.keys) == 0 {
		return nil, errors.New("no key in it")
	}
	return &b.set, nil
}

// parseJWKS reads a JSON Web Key Set. A key that cannot be used for the allowed
// algorithms is skipped; a set without any usable key is an error.
func parseJWKS(doc []byte, allowed []string) (*keySet, error) {
	members, err := mcp.Members(doc)
	if err != nil {
		return nil, errors.New("not a JSON Web Key Set: not one strict JSON object")
	}
	list := mcp.Get(members, "keys")
	if list.Kind() != '[' {
		return nil, errors.New("not a JSON Web Key Set: no list of keys")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(list))
	if _, err := dec.ReadToken(); err != nil {
		return nil, fmt.Errorf("read the list of keys: %w", err)
	}
	b := builder{allowed: allowed}
	for n := 1; dec.PeekKind() != ']'; n++ {
		if n > maxKeys {
			return nil, fmt.Errorf("more than %d keys", maxKeys)
		}
		raw, err := dec.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("read key %d: %w", n, err)
		}
		b.addJWK(raw)
	}
	return b.build()
}

func (b *builder) addJWK(raw jsontext.Value) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(raw, &m); err != nil {
		b.skip(errors.New("not a JSON Web Key"))
		return
	}
	switch {
	case m.KTY == jwkset.KtyOct:
		b.skip(errors.New("a symmetric key, which is never taken from a key set"))
		return
	case m.USE != "" && m.USE != jwkset.UseSig:
		b.skip(fmt.Errorf("a key for use %s", shown(string(m.USE))))
		return
	case m.KEYOPS != nil && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify):
		b.skip(errors.New("a key whose key_ops leave out verify"))
		return
	}
	// Only the numbers of a public key are handed on: certificates and the
	// URLs of certificates vouch for nothing here, and private parts are
	// nothing that we want to hold.
	public := jwkset.JWKMarshal{KTY: m.KTY, CRV: m.CRV, X: m.X, Y: m.Y, N: m.N, E: m.E}
	jwk, err := jwkset.NewJWKFromMarshal(public, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		b.skip(err)
		return
	}
	b.add(m.KID, jwk.Key(), func(alg string) bool { return m.ALG == "" || string(m.ALG) == alg })
}

// parsePEM reads public keys and certificates. A certificate lends its key;
// its dates and its issuer are not looked at.
func parsePEM(doc []byte, allowed []string) (*keySet, error) {
	b := builder{allowed: allowed}
	for rest := doc; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			return b.build()
		}
		if rest = after; strings.Contains(block.Type, "PRIVATE KEY") {
			return nil, errors.New("a private key in it: give only the public key")
		}
		public, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", shown(block.Type), err)
		}
		if len(b.set.keys)+b.set.skipped >= maxKeys {
			return nil, fmt.Errorf("more than %d keys", maxKeys)
		}
		b.add("", public, nil)
	}
}

func parseBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	return nil, errors.New("neither a public key nor a certificate")
}

// parseSecret takes the whole document, without the white space around it, as
// a shared secret.
func parseSecret(doc []byte, allowed []string) (*keySet, error) {
	b := builder{allowed: allowed}
	b.add("", bytes.TrimSpace(doc), nil)
	return b.build()
}

// suits returns the algorithms that go with a key of this type and size.
func suits(material any) ([]string, error) {
	switch k := material.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits, want %d to %d", bits, minRSABits, maxRSABits)
		}
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PublicKey:
		switch k.Curve.Params().Name {
		case "P-256":
			return []string{"ES256"}, nil
		case "P-384":
			return []string{"ES384"}, nil
		case "P-521":
			return []string{"ES512"}, nil
		}
	case ed25519.PublicKey:
		return []string{"EdDSA", "Ed25519"}, nil
	case []byte:
		// A secret must not be shorter than the hash (RFC 7518 section 3.2).
		switch n := len(k); {
		case n >= 64:
			return []string{"HS256", "HS384", "HS512"}, nil
		case n >= 48:
			return []string{"HS256", "HS384"}, nil
		case n >= 32:
			return []string{"HS256"}, nil
		}
		return nil, fmt.Errorf("a secret of %d bytes, want at least 32, 48 or 64 for HS256, HS384 or HS512", len(k))
	}
	return nil, fmt.Errorf("a key of type %T", material)
}
