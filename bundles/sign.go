package bundles

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/regogate/regogate/bundles/keys"
)

// Claims are what a signature says beside the digests of the files.
type Claims struct {
	Scope string // must be the one that the verifier asks for
	// Expires ends the signature; zero never does. OPA alone does not look at it.
	// Verify does, and a gateway, of what it downloads and of the copy that it kept.
	Expires time.Time
}

// Sign returns the bundle with a signature of all its files in place of any that it
// had. The files themselves stay as they are. A bundle that OPA cannot read, or
// cannot verify because it is a delta, is refused.
func Sign(body []byte, key *keys.Key, claims Claims) ([]byte, error) {
	files, err := unpack(body, time.Time{})
	if err != nil {
		return nil, err
	}
	if isDelta(files) {
		return nil, errors.New("is a delta bundle, which OPA cannot verify: sign the whole one")
	}
	if _, err := read(body, nil); err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f file) bool { return bundle.IsSignaturesFile(f.name) })
	token, err := sign(files, key, claims)
	if err != nil {
		return nil, fmt.Errorf("sign the bundle: %w", err)
	}
	text, err := json.MarshalIndent(map[string]any{"signatures": []string{token}}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("sign the bundle: %w", err)
	}
	return pack(append(files, file{"/.signatures.json", text}))
}

// digest is the algorithm that OPA's own signatures use for files.
const digest = bundle.SHA256

func sign(files []file, key *keys.Key, claims Claims) (string, error) {
	hasher, err := bundle.NewSignatureHasher(digest)
	if err != nil {
		return "", err
	}
	var digests []bundle.FileInfo
	for _, f := range files {
		var value any = f.body
		if bundle.IsStructuredDoc(f.name) {
			// What such a file says is signed, not how it is spelt.
			if err := util.Unmarshal(f.body, &value); err != nil {
				return "", fmt.Errorf("%s: %s", f.covered(), oneLine(err))
			}
		}
		sum, err := hasher.HashFile(value)
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.covered(), err)
		}
		digests = append(digests, bundle.NewFile(f.covered(), hex.EncodeToString(sum), digest.String()))
	}
	says := jwt.MapClaims{"files": digests}
	if claims.Scope != "" {
		says["scope"] = claims.Scope
	}
	if !claims.Expires.IsZero() {
		says["exp"] = claims.Expires.Unix()
	}
	if key.ID != "" {
		says["keyid"] = key.ID // where older versions of OPA look for it
	}
	return key.Sign("JWT", says)
}

// config is the key as OPA verifies with it.
func config(k *keys.Key) (*bundle.KeyConfig, error) {
	if secret, ok := k.Public().([]byte); ok {
		return &bundle.KeyConfig{Key: string(secret), Algorithm: k.Algorithm}, nil
	}
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return &bundle.KeyConfig{Key: string(text), Algorithm: k.Algorithm}, nil
}

// Verify reads a bundle that must be signed with one of the keys, as OPA does, and
// must not be expired at the time. It fails for a file that the signature does not
// cover, and for one that is missing. A single key verifies whatever name the
// signature has for it; of several, the one that the signature names does.
func Verify(body []byte, with []*keys.Key, scope string, at time.Time) (*Info, error) {
	files, err := unpack(body, at)
	if err != nil {
		return nil, err
	}
	configs := map[string]*bundle.KeyConfig{}
	only := ""
	for _, k := range with {
		c, err := config(k)
		if err != nil {
			return nil, err
		}
		id := k.ID
		if len(with) == 1 {
			if id == "" {
				id = "default"
			}
			only = id
		}
		configs[id] = c
	}
	b, err := read(body, bundle.NewVerificationConfig(configs, only, scope, nil))
	if err != nil {
		return nil, unverified(err, files, with, scope)
	}
	return describe(b, files, len(body)), nil
}

// unverified says beside OPA's reason what people then look for: what the bundle is
// signed with, or what to do.
func unverified(err error, files []file, with []*keys.Key, scope string) error {
	tokens, says := signatures(files), err.Error()
	switch {
	case isDelta(files):
		return errors.New("not verified: it is a delta bundle, which cannot be signed: use the whole one")
	case len(tokens) == 0:
		return errors.New("not verified: it is not signed: sign it with regogate bundle sign")
	case strings.Contains(says, "scope mismatch"):
		return fmt.Errorf("not verified: the signature is for the scope %q, not %q: name its scope, or sign the bundle for this one",
			signature(tokens[0]).Scope, scope)
	case strings.Contains(says, "verify JWT signature"), strings.Contains(says, "verification key"):
		var have []string
		for _, k := range with {
			have = append(have, k.String())
		}
		return fmt.Errorf("not verified: %w (the signature says that it is made with %s; verified with %s)",
			err, signature(tokens[0]).made(), strings.Join(have, " or "))
	case strings.Contains(says, "digest mismatch"), strings.Contains(says, "bundle signature"):
		return fmt.Errorf("not verified: %w: its files are not those that were signed: get it anew, or sign it again", err)
	}
	return fmt.Errorf("not verified: %w", err)
}
