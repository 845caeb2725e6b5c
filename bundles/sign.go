package bundles

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"

	"github.com/regogate/regogate/gateway/policy/plane"
)

// Claims are what a signature says beside the digests of the files.
type Claims struct {
	Scope string // must be the one that the verifier asks for
	// Expires ends the signature; zero never does. OPA alone does not look at it,
	// regogate does when it is sent such a bundle.
	Expires time.Time
}

// Sign returns the bundle with a signature in place of any that it had. Nothing
// else of it changes.
func Sign(body []byte, key *Key, claims Claims) ([]byte, error) {
	b, err := read(body, nil, time.Time{})
	if err != nil {
		return nil, err
	}
	if b.Type() == bundle.DeltaBundleType {
		return nil, errors.New("is a delta bundle, which OPA cannot verify: sign the whole one")
	}
	return write(b, key, claims)
}

// Verify reads a bundle that must be signed with one of the keys, as OPA does, and
// must not be expired at the time. It fails for a file that the signature does not
// cover, and for one that is missing.
func Verify(body []byte, keys []*Key, scope string, at time.Time) (*Info, error) {
	configs := map[string]*bundle.KeyConfig{}
	for _, k := range keys {
		c, err := k.config()
		if err != nil {
			return nil, err
		}
		configs[k.ID] = c
	}
	id := ""
	if len(keys) == 1 { // by whatever name
		id = keys[0].ID
		if id == "" {
			id = "default"
			configs = map[string]*bundle.KeyConfig{id: configs[""]}
		}
	}
	b, err := read(body, bundle.NewVerificationConfig(configs, id, scope, nil), at)
	if err != nil {
		return nil, err
	}
	return describe(b, body), nil
}

// read unpacks a bundle within bounds. With keys it is verified, at a time.
func read(body []byte, keys *bundle.VerificationConfig, at time.Time) (*bundle.Bundle, error) {
	if err := plane.Inspect(body, at); err != nil {
		return nil, err
	}
	r := bundle.NewReader(bytes.NewReader(body)).WithRegoVersion(ast.RegoV1).WithSkipBundleVerification(keys == nil)
	if keys != nil {
		r = r.WithBundleVerificationConfig(keys)
	}
	b, err := r.Read()
	if err != nil {
		return nil, errors.New(oneLine(err))
	}
	return &b, nil
}

// digester has OPA compute the digests; nobody keeps what it signs with.
const digester = "HS256"

// sign puts the one signature into the bundle.
func sign(b *bundle.Bundle, key *Key, claims Claims) error {
	b.Signatures = bundle.SignaturesConfig{}
	if err := b.GenerateSignature(bundle.NewSigningConfig(digester, digester, ""), "", true); err != nil {
		return fmt.Errorf("compute the digests: %w", err)
	}
	_, rest, _ := strings.Cut(b.Signatures.Signatures[0], ".")
	payload, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return fmt.Errorf("compute the digests: %w", err)
	}
	var digests struct {
		Files json.RawMessage `json:"files"`
	}
	if err := json.Unmarshal(raw, &digests); err != nil {
		return fmt.Errorf("compute the digests: %w", err)
	}
	says := jwt.MapClaims{"files": digests.Files}
	if claims.Scope != "" {
		says["scope"] = claims.Scope
	}
	if !claims.Expires.IsZero() {
		says["exp"] = claims.Expires.Unix()
	}
	token := jwt.NewWithClaims(key.method(), says)
	if key.ID != "" {
		token.Header["kid"] = key.ID
		says["keyid"] = key.ID // where older versions of OPA look for it
	}
	signed, err := token.SignedString(key.key)
	if err != nil {
		return fmt.Errorf("sign the bundle: %w", err)
	}
	b.Signatures = bundle.SignaturesConfig{Signatures: []string{signed}}
	return nil
}
