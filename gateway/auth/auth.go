// Package auth proves who sends a request: it verifies signed tokens (JWT) of
// the configured issuers, keeps the issuers' keys fresh, and builds the OAuth
// protected resource metadata and challenges (RFC 9728, RFC 6750) that lead a
// client to a token. It decides nothing else. What cannot be verified has no
// principal.
package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	lru "github.com/hashicorp/golang-lru/v2"
)

// remembered bounds the verified tokens that are kept. A token's claims are at
// most 12 KiB, so the worst case is some 50 MiB.
const remembered = 4096

// Principal is the verified identity of one request. It is shared between
// requests and never modified.
type Principal struct {
	// Issuer is the token's iss, and "" only for the anonymous principal.
	Issuer string
	// Subject is the token's sub, never empty.
	Subject string
	// Claims are the token's payload exactly as it was signed: one JSON object
	// without duplicate names at any depth.
	Claims jsontext.Value
	// Expires is the token's exp, and zero for the anonymous principal. Verify
	// accepts the token for the issuer's clock skew longer.
	Expires time.Time
}

// Key returns a string that two principals share only if both issuer and
// subject are equal.
func (p *Principal) Key() string {
	return strconv.Itoa(len(p.Issuer)) + ":" + p.Issuer + p.Subject
}

// Verifier verifies tokens. All methods may be called concurrently.
type Verifier struct {
	issuers   []*issuer
	byName    map[string]*issuer
	anonymous *Principal
	known     *lru.Cache[tokenID, *verified]
	now       func() time.Time
}

// issuer is one configured issuer and its keys.
type issuer struct {
	config     Issuer
	algorithms []string
	types      []string // nil means the default
	ring       *ring
}

// New returns a verifier. The error has a line for each problem of the
// configuration, a local file that holds no usable keys among them; a URL that
// does not answer is none. Keys are fetched and kept fresh only while Run runs.
func New(config Config, log *slog.Logger) (*Verifier, error) {
	if err := joined(config.Validate()); err != nil {
		return nil, err
	}
	known, err := lru.New[tokenID, *verified](remembered)
	if err != nil {
		return nil, err
	}
	v := &Verifier{byName: make(map[string]*issuer), known: known, now: time.Now}
	if a := config.InsecureAnonymous; a != nil {
		log.Warn("insecure_anonymous is set: requests without a token act as a fixed principal")
		if v.anonymous, err = a.principal(); err != nil {
			return nil, err
		}
	}
	var bad []Problem
	for i, c := range config.Issuers {
		iss, path, err := newIssuer(c, log)
		if err != nil {
			bad = append(bad, Problem{fmt.Sprintf("issuers[%d].%s", i, path), err.Error()})
			continue
		}
		v.issuers = append(v.issuers, iss)
		v.byName[c.Issuer] = iss
	}
	if len(bad) > 0 {
		return nil, joined(bad)
	}
	return v, nil
}

func joined(list []Problem) error {
	errs := make([]error, len(list))
	for i, p := range list {
		errs[i] = errors.New(p.String())
	}
	return errors.Join(errs...)
}

// newIssuer reads a local source at once, so that a wrong path is found when
// the gateway starts; field names it in the configuration.
func newIssuer(c Issuer, log *slog.Logger) (iss *issuer, field string, err error) {
	iss = &issuer{config: c, algorithms: c.algorithms()}
	for _, t := range c.TokenTypes {
		iss.types = append(iss.types, tokenType(t))
	}
	var from load
	parse := parseJWKS
	switch {
	case c.JWKSURL != "":
		from = loadURL(c.JWKSURL)
		if c.InsecureJWKSHTTP {
			log.Warn("insecure_jwks_http is set: signing keys may come over plain http", "issuer", c.Issuer)
		}
	case c.JWKSFile != "":
		field, from = "jwks_file", loadFile(c.JWKSFile)
	case c.PublicKeyFile != "":
		field, from, parse = "public_key_file", loadFile(c.PublicKeyFile), parsePEM
	default:
		field, from, parse = "insecure_hmac_secret_file", loadFile(c.InsecureHMACSecretFile), parseSecret
		log.Warn("insecure_hmac_secret_file is set: whoever verifies such a token can also make one", "issuer", c.Issuer)
	}
	iss.ring = newRing(c.Issuer, from, func(doc []byte) (*keySet, error) {
		return parse(doc, iss.algorithms)
	}, defaultPace(&c), log)
	if field != "" {
		_, err = iss.ring.attempt(context.Background())
	}
	return iss, field, err
}

// Run keeps the keys of all issuers fresh until ctx ends, then returns nil. It
// is called once.
func (v *Verifier) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, iss := range v.issuers {
		wg.Go(func() { iss.ring.run(ctx) })
	}
	wg.Wait()
	return nil
}

// Inherit takes over the keys that old has of issuers whose configuration is
// the same, so that a reload loses none. It is called before Run.
func (v *Verifier) Inherit(old *Verifier) {
	for _, iss := range v.issuers {
		before := old.byName[iss.config.Issuer]
		if before == nil || !reflect.DeepEqual(before.config, iss.config) {
			continue
		}
		if held := before.ring.held.Load(); held != nil {
			iss.ring.held.Store(held)
		}
	}
}

// Anonymous returns the principal of requests without a token, or nil where
// there is none.
func (v *Verifier) Anonymous() *Principal { return v.anonymous }

// Authenticate returns the principal of a request with these headers: that of
// its token, as Verify says, or the anonymous one where there is no
// Authorization header at all and the configuration allows it.
func (v *Verifier) Authenticate(ctx context.Context, h http.Header, audience []string) (*Principal, error) {
	token, err := Bearer(h)
	if v.anonymous != nil && KindOf(err) == Missing {
		return v.anonymous, nil
	}
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, token, audience)
}

// AuthorizationServers returns the issuers that are URLs, in the order of the
// configuration, for Resource.
func (v *Verifier) AuthorizationServers() []string {
	var list []string
	for _, iss := range v.issuers {
		if u, err := url.Parse(iss.config.Issuer); err == nil && u.Host != "" {
			list = append(list, iss.config.Issuer)
		}
	}
	return list
}

// Scopes returns the supported scopes of all issuers, each once, in the order
// of the configuration.
func (v *Verifier) Scopes() []string {
	var list []string
	seen := make(map[string]bool)
	for _, iss := range v.issuers {
		for _, scope := range iss.config.ScopesSupported {
			if !seen[scope] {
				seen[scope] = true
				list = append(list, scope)
			}
		}
	}
	return list
}

// Status is the state of one issuer's keys.
type Status struct {
	Issuer  string
	Usable  bool      // there are keys that are fresh enough
	Keys    int       // usable keys
	Skipped int       // keys of the source that cannot be used
	Read    time.Time // when the source last gave the keys; zero for never
	Problem string    // of the last attempt; "" after a good one
}

// Status returns the state of each issuer's keys, in the order of the
// configuration.
func (v *Verifier) Status() []Status {
	list := make([]Status, len(v.issuers))
	for i, iss := range v.issuers {
		list[i] = iss.ring.status()
	}
	return list
}
