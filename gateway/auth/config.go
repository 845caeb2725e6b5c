package auth

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds and defaults of the configuration.
const (
	DefaultClockSkew = 30 * time.Second
	MaxClockSkew     = 5 * time.Minute

	DefaultRefreshInterval     = 5 * time.Minute // of a URL
	DefaultFileRefreshInterval = 2 * time.Second
	MinRefreshInterval         = time.Second
	MaxRefreshInterval         = 24 * time.Hour

	DefaultMaxStaleness = 24 * time.Hour
	MaxMaxStaleness     = 30 * 24 * time.Hour
)

// Config says whose tokens are accepted. Once New has it, nobody modifies it.
type Config struct {
	Issuers []Issuer `yaml:"issuers"`
	// InsecureAnonymous, where set, is the principal of requests that bring no
	// token. A token that is not valid is refused all the same.
	InsecureAnonymous *Anonymous `yaml:"insecure_anonymous"`
}

// Anonymous is the fixed principal of requests without a token.
type Anonymous struct {
	// Claims are what policies see as input.claims. At least one is needed.
	Claims map[string]any `yaml:"claims"`
}

// Issuer is one party that signs tokens. Exactly one of the four key sources
// is set.
type Issuer struct {
	// Issuer is compared with the token's iss byte for byte: case, a slash at
	// the end and a port all count.
	Issuer string `yaml:"issuer"`
	// Audience lists what the token's aud may name, compared byte for byte; one
	// match is enough. A route can have a list of its own instead.
	Audience []string `yaml:"audience"`
	// Algorithms lists the signature algorithms that are accepted, out of RS256
	// RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519. The default
	// is RS256 ES256 EdDSA. With insecure_hmac_secret_file it is out of HS256
	// HS384 HS512, by default HS256.
	Algorithms []string `yaml:"algorithms"`

	// JWKSURL is fetched in the background. It is https; plain http is accepted
	// for a loopback host, and elsewhere with InsecureJWKSHTTP.
	JWKSURL string `yaml:"jwks_url"`
	// JWKSFile holds a JSON Web Key Set.
	JWKSFile string `yaml:"jwks_file"`
	// PublicKeyFile holds public keys or certificates in PEM. They have no key
	// id, so each is tried for any token whose alg suits it.
	PublicKeyFile string `yaml:"public_key_file"`
	// InsecureHMACSecretFile holds a secret shared with the issuer, white space
	// around it ignored. Whoever can verify such a token can also make one.
	InsecureHMACSecretFile string `yaml:"insecure_hmac_secret_file"`

	// InsecureJWKSHTTP lets jwks_url be plain http to any host. Whoever can
	// answer in its place can then sign tokens.
	InsecureJWKSHTTP bool `yaml:"insecure_jwks_http"`

	// TokenTypes lists the values of the header parameter typ that are accepted,
	// case and the prefix "application/" ignored; a token without typ is then
	// refused. By default at+jwt, JWT and no typ at all are accepted.
	TokenTypes []string `yaml:"token_types"`
	// ScopesSupported are published in the protected resource metadata.
	ScopesSupported []string `yaml:"scopes_supported"`

	// ClockSkew is how far the clocks may differ. It is 30 s by default, 5 min
	// at most.
	ClockSkew *time.Duration `yaml:"clock_skew"`
	// RefreshInterval is how often the keys are read again. A key that left the
	// source stops verifying that much later at most. 0 means 5 min for a URL,
	// 2 s for a file.
	RefreshInterval time.Duration `yaml:"refresh_interval"`
	// MaxStaleness is how long the last good keys are used while the source
	// cannot be read or gives no usable key. 0 means 24 h.
	MaxStaleness time.Duration `yaml:"max_staleness"`
}

// Problem is one thing that is wrong in a Config. Path is relative to it, such
// as issuers[0].audience.
type Problem struct {
	Path    string
	Message string
}

func (p Problem) String() string { return p.Path + ": " + p.Message }

// Validate returns every problem at once, in the order of the configuration,
// and nil where there is none. It reads no file and opens no connection.
func (c *Config) Validate() []Problem {
	p := &problems{}
	if len(c.Issuers) == 0 && c.InsecureAnonymous == nil {
		p.add("issuers", "no issuer: add one, or set insecure_anonymous for a trial without tokens")
	}
	seen := make(map[string]int, len(c.Issuers))
	for i := range c.Issuers {
		iss := &c.Issuers[i]
		p.prefix = fmt.Sprintf("issuers[%d].", i)
		iss.validate(p)
		if first, ok := seen[iss.Issuer]; ok && iss.Issuer != "" {
			p.add("issuer", "is the same as issuers[%d].issuer: give each issuer once", first)
		} else {
			seen[iss.Issuer] = i
		}
	}
	p.prefix = "insecure_anonymous."
	if c.InsecureAnonymous != nil {
		if _, err := c.InsecureAnonymous.principal(); err != nil {
			p.add("claims", "%s", err)
		}
	}
	return p.list
}

type problems struct {
	prefix string
	list   []Problem
}

func (p *problems) add(path, format string, args ...any) {
	p.list = append(p.list, Problem{p.prefix + path, fmt.Sprintf(format, args...)})
}

func (c *Issuer) validate(p *problems) {
	if c.Issuer == "" || strings.TrimSpace(c.Issuer) != c.Issuer {
		p.add("issuer", "must be the exact value of the tokens' iss, without white space around it")
	}
	if len(c.Audience) == 0 {
		p.add("audience", "must name at least one audience, such as the URL that clients use")
	}
	for i, a := range c.Audience {
		if a == "" {
			p.add(fmt.Sprintf("audience[%d]", i), "must not be empty")
		}
	}
	c.validateAlgorithms(p)
	c.validateSource(p)
	for i, t := range c.TokenTypes {
		if t == "" || tokenType(t) == grantType {
			p.add(fmt.Sprintf("token_types[%d]", i), "%q is not the type of an access token", t)
		}
	}
	if c.TokenTypes != nil && len(c.TokenTypes) == 0 {
		p.add("token_types", "must not be empty: leave it out for the default")
	}
	for i, s := range c.ScopesSupported {
		if !validScope(s) {
			p.add(fmt.Sprintf("scopes_supported[%d]", i), "is not one scope: printable ASCII without spaces, quotes and backslashes")
		}
	}
	c.validateTimes(p)
}

func (c *Issuer) validateAlgorithms(p *problems) {
	if c.Algorithms != nil && len(c.Algorithms) == 0 {
		p.add("algorithms", "must not be empty: leave it out for the default")
	}
	for i, alg := range c.Algorithms {
		hmac := strings.HasPrefix(alg, "HS")
		switch path := fmt.Sprintf("algorithms[%d]", i); {
		case method(alg) == nil:
			p.add(path, "%q is not supported: use RS256, PS256, ES256 or EdDSA, or their longer forms", alg)
		case hmac && c.InsecureHMACSecretFile == "":
			p.add(path, "%s needs insecure_hmac_secret_file", alg)
		case !hmac && c.InsecureHMACSecretFile != "":
			p.add(path, "%s does not go with insecure_hmac_secret_file: use HS256, HS384 or HS512", alg)
		}
	}
}

func (c *Issuer) validateSource(p *problems) {
	given := 0
	for _, s := range []string{c.JWKSURL, c.JWKSFile, c.PublicKeyFile, c.InsecureHMACSecretFile} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		p.add("jwks_url", "set exactly one of jwks_url, jwks_file, public_key_file and insecure_hmac_secret_file (%d are set)", given)
	}
	if c.JWKSURL == "" {
		return
	}
	u, err := url.Parse(c.JWKSURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		p.add("jwks_url", "must be an https URL")
	case u.User != nil || u.Fragment != "":
		p.add("jwks_url", "must not have a user, a password or a fragment")
	case u.Scheme == "http" && !loopback(u.Hostname()) && !c.InsecureJWKSHTTP:
		p.add("jwks_url", "must be https, or else whoever answers in its place can sign tokens; insecure_jwks_http: true allows it")
	}
}

func (c *Issuer) validateTimes(p *problems) {
	if s := c.skew(); s < 0 || s > MaxClockSkew {
		p.add("clock_skew", "must be between 0s and %s", MaxClockSkew)
	}
	if r := c.refresh(); r < MinRefreshInterval || r > MaxRefreshInterval {
		p.add("refresh_interval", "must be between %s and %s", MinRefreshInterval, MaxRefreshInterval)
	}
	if s := c.staleness(); s < c.refresh() || s > MaxMaxStaleness {
		p.add("max_staleness", "must be between refresh_interval (%s) and %s", c.refresh(), MaxMaxStaleness)
	}
}

func (c *Issuer) skew() time.Duration {
	if c.ClockSkew == nil {
		return DefaultClockSkew
	}
	return *c.ClockSkew
}

func (c *Issuer) refresh() time.Duration {
	switch {
	case c.RefreshInterval != 0:
		return c.RefreshInterval
	case c.JWKSURL != "":
		return DefaultRefreshInterval
	}
	return DefaultFileRefreshInterval
}

func (c *Issuer) staleness() time.Duration {
	if c.MaxStaleness == 0 {
		return DefaultMaxStaleness
	}
	return c.MaxStaleness
}

func (c *Issuer) algorithms() []string {
	switch {
	case len(c.Algorithms) > 0:
		return c.Algorithms
	case c.InsecureHMACSecretFile != "":
		return []string{"HS256"}
	}
	return []string{"RS256", "ES256", "EdDSA"}
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// principal returns the principal that the claims make. Its issuer is empty,
// which no token's is.
func (a *Anonymous) principal() (*Principal, error) {
	if len(a.Claims) == 0 {
		return nil, errors.New("needs at least one claim, such as sub: anonymous")
	}
	subject := "anonymous"
	if sub, ok := a.Claims["sub"]; ok {
		if subject, ok = sub.(string); !ok || subject == "" {
			return nil, errors.New("sub must be a string that is not empty")
		}
	}
	claims, err := json.Marshal(a.Claims, json.Deterministic(true))
	if err != nil {
		return nil, errors.New("a value in it cannot be written as JSON")
	}
	return &Principal{Subject: subject, Claims: jsontext.Value(claims)}, nil
}
