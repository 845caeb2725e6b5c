package credentials

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/regogate/regogate/registry/strictyaml"
)

// The values of Config.Grant and Config.AuthMethod.
const (
	ClientCredentials = "client_credentials"
	TokenExchange     = "token_exchange"

	Basic         = "basic"
	Post          = "post"
	PrivateKeyJWT = "private_key_jwt"
)

// Config says where the tokens for one server come from. Zero values mean the
// defaults. Variables in it are already expanded.
type Config struct {
	// TokenURL is the issuer's token endpoint. It is https; plain http is
	// accepted for a loopback host, and elsewhere with InsecureTokenHTTP. The
	// environment's HTTPS_PROXY, HTTP_PROXY and NO_PROXY count; redirects are
	// not followed.
	TokenURL string `yaml:"token_url"`
	// Grant is client_credentials (the default: the server sees the gateway,
	// whoever asks) or token_exchange (it sees the user, by a token that the
	// user's own was exchanged for; the gateway's own requests go by
	// client_credentials).
	Grant string `yaml:"grant"`

	ClientID     string            `yaml:"client_id"`
	ClientSecret strictyaml.Secret `yaml:"client_secret"`
	// AuthMethod is how the gateway proves itself to the issuer: basic (the
	// default), post, or private_key_jwt.
	AuthMethod string `yaml:"auth_method"`
	// PrivateKeyFile holds the key of private_key_jwt, in PEM (PKCS #8): RSA
	// (RS256), P-256 (ES256) or Ed25519 (EdDSA). KeyID is the kid that the
	// issuer knows it by; empty says none.
	PrivateKeyFile string `yaml:"private_key_file"`
	KeyID          string `yaml:"key_id"`

	// Scopes, Audience and Resource (RFC 8707) say what the token is to be good
	// for. A token_exchange needs one of the latter two.
	Scopes   []string `yaml:"scopes"`
	Audience string   `yaml:"audience"`
	Resource string   `yaml:"resource"`

	// SubjectIssuer is whose tokens a token_exchange hands to TokenURL; a user
	// with a token of another issuer is refused. Empty is everybody's.
	SubjectIssuer string `yaml:"subject_issuer"`

	TLS TLS `yaml:"tls"`
	// Timeout bounds one request to TokenURL: 5s.
	Timeout time.Duration `yaml:"timeout"`
	// InsecureTokenHTTP lets TokenURL be plain http to any host. Whoever reads
	// along then has the client's secret and the tokens.
	InsecureTokenHTTP bool `yaml:"insecure_token_http"`
}

// TLS are the settings for an https TokenURL.
type TLS struct {
	// CAFile holds the certificates, in PEM, that are trusted instead of the
	// system's.
	CAFile string `yaml:"ca_file"`
}

// defaultTimeout is that of Config.Timeout, maxTimeout what it may be at most.
const (
	defaultTimeout = 5 * time.Second
	maxTimeout     = time.Minute
)

// Exchanges reports whether the server sees the user instead of the gateway.
// It is safe to call on nil.
func (c *Config) Exchanges() bool { return c != nil && c.Grant == TokenExchange }

// Validate returns everything that is wrong with the configuration. path is
// where it stands, such as servers.stripe.oauth. It opens no connection.
func (c *Config) Validate(path string) []strictyaml.Problem {
	p := &problems{path: path}
	c.validateURL(p)
	switch c.Grant {
	case "", ClientCredentials:
		if c.SubjectIssuer != "" {
			p.add("subject_issuer", "is for grant: token_exchange; remove it")
		}
	case TokenExchange:
		if c.Audience == "" && c.Resource == "" {
			p.add("", "token_exchange needs an audience or a resource: what the server wants to see in its tokens' aud")
		}
	default:
		p.add("grant", "want client_credentials or token_exchange")
	}
	c.validateClient(p)
	for i, s := range c.Scopes {
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			p.add(strictyaml.Index("scopes", i), "is not one scope: printable ASCII without spaces, quotes and backslashes")
		}
	}
	if c.Resource != "" {
		if u, err := url.Parse(c.Resource); err != nil || !u.IsAbs() || u.Fragment != "" {
			p.add("resource", "must be an absolute URI without a fragment (#…), such as the server's own URL")
		}
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		p.add("timeout", "must be between 0s and %s", maxTimeout)
	}
	return p.list
}

func (c *Config) validateURL(p *problems) {
	u, err := url.Parse(c.TokenURL)
	switch {
	case c.TokenURL == "":
		p.add("token_url", "is missing: name the issuer's token endpoint, such as https://idp.example.com/oauth/token")
		return
	case err != nil: // the error would repeat it, credentials included
		p.add("token_url", "is not a URL")
		return
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		p.add("token_url", "must be an https URL")
		return
	case u.User != nil || u.Fragment != "":
		p.add("token_url", "must not have a user, a password or a fragment; credentials are client_id and client_secret")
	case u.Scheme == "http" && !loopback(u.Hostname()) && !c.InsecureTokenHTTP:
		p.add("token_url", "must be https, or else whoever reads along has the client's secret and the tokens; insecure_token_http: true allows it")
	}
	if c.TLS.CAFile == "" {
		return
	}
	if _, err := c.TLS.Roots(); err != nil {
		p.add("tls.ca_file", "%v", err)
	}
	if u.Scheme == "http" {
		p.add("tls.ca_file", "has no effect with an http:// token_url; use https:// or remove it")
	}
}

func (c *Config) validateClient(p *problems) {
	if c.ClientID == "" {
		p.add("client_id", "is missing: register the gateway as a client of the issuer")
	}
	switch c.AuthMethod {
	case "", Basic, Post:
		if c.ClientSecret == "" {
			p.add("client_secret", "is missing: give it as ${NAME} or ${file:PATH}, or use auth_method: private_key_jwt")
		}
		if c.PrivateKeyFile != "" || c.KeyID != "" {
			p.add("private_key_file", "private_key_file and key_id are for auth_method: private_key_jwt; remove them")
		}
	case PrivateKeyJWT:
		if c.ClientSecret != "" {
			p.add("client_secret", "is of no use with auth_method: private_key_jwt; remove it")
		}
		if _, err := readKey(c.PrivateKeyFile); err != nil {
			p.add("private_key_file", "%v", err)
		}
	default:
		p.add("auth_method", "want basic, post or private_key_jwt")
	}
}

type problems struct {
	path string
	list []strictyaml.Problem
}

// add adds a problem of the whole, or of what lies at a path below it.
func (p *problems) add(below, format string, args ...any) {
	path := p.path
	if below != "" {
		path += "." + below
	}
	p.list = append(p.list, strictyaml.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// Roots returns the certificates that are trusted, nil for the system's. The
// error does not repeat the path.
func (t TLS) Roots() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("holds no certificate in PEM form")
	}
	return pool, nil
}
