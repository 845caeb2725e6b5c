package server

import (
	"fmt"
	"time"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
)

// Signing is how a bundle was signed.
type Signing struct {
	Algorithm   string `json:"algorithm"`
	KeyID       string `json:"key_id,omitempty"`
	Fingerprint string `json:"fingerprint"` // of the key
	Scope       string `json:"scope,omitempty"`
}

// signer signs as is wanted now. Without a key it leaves bundles as they are.
type signer struct {
	key    *keys.Key
	claims bundles.Claims
	how    Signing
}

func (s *Server) signer() (signer, error) {
	if s.config.Sign == nil {
		return signer{}, nil
	}
	key, claims, err := s.config.Sign()
	if err != nil || key == nil {
		return signer{}, err
	}
	fingerprint, err := key.Fingerprint()
	// Signatures have whole seconds.
	claims.Expires = claims.Expires.Truncate(time.Second).UTC()
	return signer{key, claims, Signing{key.Algorithm, key.ID, fingerprint, claims.Scope}}, err
}

// sign returns the bundle as it is to be served, and notes in r how it was signed.
func (s signer) sign(body []byte, r *Revision) ([]byte, error) {
	if s.key == nil {
		return body, nil
	}
	signed, err := bundles.Sign(body, s.key, s.claims)
	switch {
	case err != nil:
		return nil, err
	case len(signed) > bundles.MaxSize:
		return nil, fmt.Errorf("signed, it is larger than %d bytes, the most that is taken", bundles.MaxSize)
	}
	r.Signed, r.Expires = s.how, s.claims.Expires
	return signed, nil
}

// fresh reports whether r was signed as is wanted, and half of the time that it
// would get now, or more, is left of its own.
func (s signer) fresh(r Revision, now time.Time) bool {
	if r.Signed != s.how || r.Expires.IsZero() != s.claims.Expires.IsZero() {
		return false
	}
	left, whole := r.Expires.Sub(now), s.claims.Expires.Sub(now)
	return r.Expires.IsZero() || left >= whole/2 && left <= whole
}
