package auth

import (
	"bytes"
	"crypto"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

const (
	maxDocument = 1 << 20 // bytes of a key set, key file or secret
	maxKeys     = 1000

	// maxTries bounds the signature checks that one token can cause. It
	// matters only to tokens without kid and to keys that share one.
	maxTries = 16

	minRSABits = 2048
	maxRSABits = 8192
)

// method returns the implementation of a signature algorithm, or nil where it
// is not supported. It is our own table and not the library's registry, which
// holds none and which any package in the process can extend.
func method(alg string) jwt.SigningMethod {
	switch alg {
	case "RS256":
		return jwt.SigningMethodRS256
	case "RS384":
		return jwt.SigningMethodRS384
	case "RS512":
		return jwt.SigningMethodRS512
	case "PS256":
		return jwt.SigningMethodPS256
	case "PS384":
		return jwt.SigningMethodPS384
	case "PS512":
		return jwt.SigningMethodPS512
	case "ES256":
		return jwt.SigningMethodES256
	case "ES384":
		return jwt.SigningMethodES384
	case "ES512":
		return jwt.SigningMethodES512
	case "EdDSA", "Ed25519": // RFC 9864 renamed the first to the second
		return jwt.SigningMethodEdDSA
	case "HS256":
		return jwt.SigningMethodHS256
	case "HS384":
		return jwt.SigningMethodHS384
	case "HS512":
		return jwt.SigningMethodHS512
	}
	return nil
}

// key is one key and the algorithms that it may verify.
type key struct {
	id       string // "" where it has none
	material any
	algs     []string
}

// keySet is the usable keys of one document. It is immutable; its address
// stands for one generation of keys.
type keySet struct {
	keys    []key
	skipped int // keys of the document that cannot be used
}

// verify reports whether a key of the set verifies the token, and whether the
// token names a key of the set. A token that names one is checked with keys of
// this name only; any other is checked with the keys that have no name, and one
// that names none with all. Only keys that suit its alg count, the first
// maxTries of them. A nil set holds no key.
func (s *keySet) verify(t *token) (verified, named bool) {
	if s == nil {
		return false, false
	}
	if t.kid != "" {
		named = slices.ContainsFunc(s.keys, func(k key) bool { return k.id == t.kid })
	}
	m, tries := method(t.alg), 0
	for i := range s.keys {
		k := &s.keys[i]
		switch {
		case named && k.id != t.kid, !named && t.kid != "" && k.id != "":
			continue
		case !slices.Contains(k.algs, t.alg):
			continue
		}
		if tries++; tries > maxTries {
			return false, named
		}
		if m.Verify(t.signed, t.signature, k.material) == nil {
			return true, named
		}
	}
	return false, named
}

// same reports whether two sets hold the same keys, in whatever order.
func (s *keySet) same(other *keySet) bool {
	within := func(a, b *keySet) bool {
		for i := range a.keys {
			if !slices.ContainsFunc(b.keys, a.keys[i].equal) {
				return false
			}
		}
		return true
	}
	return len(s.keys) == len(other.keys) && s.skipped == other.skipped && within(s, other) && within(other, s)
}

func (k *key) equal(other key) bool {
	if k.id != other.id || !slices.Equal(k.algs, other.algs) {
		return false
	}
	if secret, ok := k.material.([]byte); ok {
		theirs, ok := other.material.([]byte)
		return ok && bytes.Equal(secret, theirs)
	}
	public, ok := k.material.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(other.material)
}
