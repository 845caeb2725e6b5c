package registry

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	signing "github.com/regogate/regogate/bundles/keys"
	"github.com/regogate/regogate/registry/strictyaml"
)

// signatureType is the typ of a catalogue's signature, so that neither a
// bundle's nor an access token passes for one.
const signatureType = "regogate-catalogue+jwt"

// maxSkew is how far the clock of who signs may be ahead of ours.
const maxSkew = time.Minute

// Claims are what a signature says beside what it covers.
type Claims struct {
	ExpiresIn time.Duration // how long the signature is good, in whole seconds; 0 is for ever
	// Content is the only one that is signed, for who looked at the catalogue
	// before; "" is any.
	Content string
}

// covered is the payload of a signature.
type covered struct {
	Content string `json:"content"`
	Format  int    `json:"format"`
	jwt.RegisteredClaims
}

// Sign returns the signature of what the catalogue says of servers and tools, made
// at the given time; quarantine is not covered. Who wants the catalogue to have it
// puts it into Signature and makes it anew with NewCatalogue.
func Sign(c *Catalogue, key *signing.Key, claims Claims, now time.Time) (string, error) {
	if claims.ExpiresIn < 0 || claims.ExpiresIn > 0 && claims.ExpiresIn < time.Second {
		return "", fmt.Errorf("sign the catalogue: it cannot expire in %s: want a second or more, or 0 for never", claims.ExpiresIn)
	}
	if claims.Content != "" && claims.Content != c.Content {
		return "", errors.New("sign the catalogue: it holds something else than was looked at, for somebody changed it meanwhile: look at it and sign it with regogate registry sign")
	}
	says := covered{Content: c.Content, Format: format}
	says.IssuedAt = jwt.NewNumericDate(now)
	if claims.ExpiresIn > 0 {
		says.ExpiresAt = jwt.NewNumericDate(now.Add(claims.ExpiresIn))
	}
	signature, err := key.Sign(signatureType, says)
	if err != nil {
		return "", fmt.Errorf("sign the catalogue with %s: %w", key, err)
	}
	return signature, nil
}

// VerifyConfig says which signature a catalogue must have.
type VerifyConfig struct {
	// Keys is a file: a public key or certificate in PEM, a JWKS, or the secret of
	// an HS* algorithm. It is read again when it changes.
	Keys string `yaml:"keys"`
	// Algorithm is needed for a secret; empty is the JWKS's, or the first that goes
	// with the key.
	Algorithm string `yaml:"algorithm"`
	// KeyID names the one key that counts of a JWKS, or the key in PEM.
	KeyID string `yaml:"key_id"`
}

// Validate returns every problem, with paths that begin with the given one. It
// does not read the file.
func (c *VerifyConfig) Validate(path string) []strictyaml.Problem {
	v := checker{path: path}
	if c.Keys == "" {
		v.problem("keys", "is missing; want a file with a public key in PEM or a JWKS")
	}
	v.word("algorithm", c.Algorithm, signing.Algorithms())
	return v.problems
}

// Signed is what a verified signature says. The zero value is of no signature.
type Signed struct {
	By      string    // algorithm and key, for people
	At      time.Time // whole seconds, UTC
	Expires time.Time // whole seconds, UTC; zero is never
}

func (s Signed) expired(now time.Time) bool { return !s.Expires.IsZero() && !now.Before(s.Expires) }

// Verifier verifies catalogues with the keys of a file. It is safe for concurrent
// use.
type Verifier struct {
	config VerifyConfig
	keys   atomic.Pointer[[]*signing.Key]
}

// NewVerifier reads the keys of a configuration that passed Validate.
func NewVerifier(c VerifyConfig) (*Verifier, error) {
	v := &Verifier{config: c}
	if err := v.Reload(); err != nil {
		return nil, err
	}
	return v, nil
}

// Reload reads the file again. Where that fails the keys stay as they are.
func (v *Verifier) Reload() error {
	read, err := signing.ReadVerification(v.config.Keys, v.config.Algorithm, v.config.KeyID)
	if err != nil {
		return fmt.Errorf("registry.verify.keys: %w", err)
	}
	v.keys.Store(&read)
	return nil
}

// Verify returns what the catalogue's signature says. It fails, with a line that
// says why, where there is none of one of the keys over just this content that
// counts at the time.
func (v *Verifier) Verify(c *Catalogue, now time.Time) (Signed, error) {
	if c.Signature == "" {
		return Signed{}, errors.New("it is not signed: sign it with regogate registry sign")
	}
	key, err := v.key(c.Signature)
	if err != nil {
		return Signed{}, err
	}
	var says covered
	parser := jwt.NewParser(jwt.WithValidMethods([]string{key.Algorithm}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	_, err = parser.ParseWithClaims(c.Signature, &says, func(*jwt.Token) (any, error) { return key.Public(), nil })
	if err != nil {
		return Signed{}, fmt.Errorf("its signature is not what %s made of it: another key did, or somebody changed it; sign the catalogue again", key)
	}
	return says.check(c, key, now)
}

// key returns the key that the signature has to be of, going by its header, which
// nothing vouches for yet.
func (v *Verifier) key(signature string) (*signing.Key, error) {
	token, _, err := jwt.NewParser(jwt.WithStrictDecoding()).ParseUnverified(signature, &covered{})
	if err != nil && !errors.Is(err, jwt.ErrTokenUnverifiable) { // which is the algorithm's
		return nil, errors.New("its signature is no JWS in compact form: sign the catalogue again")
	}
	if typ, _ := token.Header["typ"].(string); typ != signatureType {
		return nil, fmt.Errorf("its signature is for something else, of type %.64q: sign the catalogue with regogate registry sign", typ)
	}
	if _, critical := token.Header["crit"]; critical {
		return nil, errors.New("its signature asks for extensions that are not known here: sign the catalogue with regogate registry sign")
	}
	key, err := v.named(token.Header["kid"])
	if err != nil {
		return nil, err
	}
	if alg, _ := token.Header["alg"].(string); alg != key.Algorithm {
		return nil, fmt.Errorf("its signature is made with %.64q, and %s is expected: sign the catalogue again, or correct registry.verify", alg, key)
	}
	return key, nil
}

// named returns the key of the name that a signature has for it. A key without a
// name is the only one, and verifies under any.
func (v *Verifier) named(kid any) (*signing.Key, error) {
	all := *v.keys.Load()
	if only := all[0]; len(all) == 1 && (only.ID == "" || kid == nil) {
		return only, nil
	}
	var known []string
	for _, k := range all {
		if k.ID == kid {
			return k, nil
		}
		known = append(known, strconv.Quote(k.ID))
	}
	said := "names no key"
	if kid != nil {
		said = fmt.Sprintf("is of the key %.64q", fmt.Sprint(kid))
	}
	return nil, fmt.Errorf("its signature %s, and %s has %s: sign the catalogue again with a key that is there, or add the key",
		said, v.config.Keys, strings.Join(known, ", "))
}

// check holds what a signature of the key says against the catalogue and the time.
func (s *covered) check(c *Catalogue, key *signing.Key, now time.Time) (Signed, error) {
	if s.IssuedAt == nil {
		return Signed{}, errors.New("its signature does not say when it was made: sign the catalogue with regogate registry sign")
	}
	found := Signed{By: key.String(), At: s.IssuedAt.UTC()}
	if s.ExpiresAt != nil {
		found.Expires = s.ExpiresAt.UTC()
	}
	switch {
	case s.Format != format:
		return Signed{}, fmt.Errorf("it is signed for the format %d of catalogues, and this release has %d: sign it with this release", s.Format, format)
	case s.Content != c.Content:
		return Signed{}, fmt.Errorf("it is not what was signed at %s: sign it again, or bring back what was signed", found.At.Format(time.RFC3339))
	case found.At.After(now.Add(maxSkew)):
		return Signed{}, fmt.Errorf("its signature is from %s, which is yet to come: correct the clock here, or there and sign it again", found.At.Format(time.RFC3339))
	case found.expired(now):
		return Signed{}, fmt.Errorf("its signature expired at %s: sign it again", found.Expires.Format(time.RFC3339))
	}
	return found, nil
}
