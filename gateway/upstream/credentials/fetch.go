package credentials

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/regogate/regogate/registry/strictyaml"
)

// Names of RFC 8693.
const (
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccess    = "urn:ietf:params:oauth:token-type:access_token"
	typeJWT       = "urn:ietf:params:oauth:token-type:jwt"
)

// maxToken is the longest token that is taken, maxAnswer the longest answer.
const (
	maxToken  = 16 << 10
	maxAnswer = 128 << 10
)

// grant is what an issuer gave.
type grant struct {
	token strictyaml.Secret
	lasts time.Duration
}

func grantOf(of Subject) string {
	if of.gateway {
		return ClientCredentials
	}
	return TokenExchange
}

// newClient returns a client that reaches nothing but the token endpoint.
func newClient(c Config) (*http.Client, error) {
	roots, err := c.TLS.Roots()
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: strict{&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // so that the bound is one
			MaxConnsPerHost:        32,
			MaxIdleConnsPerHost:    4,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		}},
		// Nobody but the configured issuer gets the client's credentials.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// fetch asks the issuer once.
func (s *Source) fetch(ctx context.Context, of Subject) (grant, error) {
	conf, err := s.request(of)
	if err != nil {
		return grant{}, err
	}
	t, err := conf.Token(context.WithValue(ctx, oauth2.HTTPClient, s.client))
	if err != nil {
		return grant{}, s.failure(err, of)
	}
	return s.check(t, of)
}

// request words what is asked of the issuer.
func (s *Source) request(of Subject) (*clientcredentials.Config, error) {
	c := &s.config
	conf := &clientcredentials.Config{
		TokenURL: c.TokenURL, ClientID: c.ClientID, ClientSecret: string(c.ClientSecret), Scopes: c.Scopes,
		AuthStyle: oauth2.AuthStyleInHeader, EndpointParams: url.Values{},
	}
	if c.AuthMethod == Post || c.AuthMethod == PrivateKeyJWT {
		conf.AuthStyle = oauth2.AuthStyleInParams
	}
	set := conf.EndpointParams.Set
	if c.Audience != "" {
		set("audience", c.Audience)
	}
	if c.Resource != "" {
		set("resource", c.Resource)
	}
	if s.key != nil {
		assertion, err := s.key.assertion(c.ClientID, c.KeyID, c.TokenURL, s.now())
		if err != nil {
			return nil, err
		}
		set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		set("client_assertion", assertion)
	}
	if !of.gateway {
		set("grant_type", grantExchange)
		set("subject_token", string(of.Token))
		set("subject_token_type", typeAccess)
		set("requested_token_type", typeAccess)
	}
	return conf, nil
}

// check takes nothing as a token that is none for the server.
func (s *Source) check(t *oauth2.Token, of Subject) (grant, error) {
	kind, _ := t.Extra("issued_token_type").(string)
	lasts := assumed
	switch {
	case !strings.EqualFold(t.TokenType, "bearer"):
		return grant{}, errors.New("the issuer gave a token whose token_type is not Bearer")
	case !of.gateway && kind != "" && kind != typeAccess && kind != typeJWT:
		return grant{}, errors.New("the issuer gave another type of token than an access token")
	case len(t.AccessToken) > maxToken:
		return grant{}, fmt.Errorf("the issuer gave a token longer than %d bytes", maxToken)
	case strings.ContainsFunc(t.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }):
		return grant{}, errors.New("the issuer gave a token with characters that no token has")
	case !of.gateway && t.AccessToken == string(of.Token):
		return grant{}, errors.New("the issuer gave the user's own token back, which is not for the server")
	case t.Extra("expires_in") != nil:
		if lasts = time.Until(t.Expiry); t.Expiry.IsZero() || lasts <= 0 {
			return grant{}, errors.New("the issuer gave a token that has already expired")
		}
	}
	return grant{strictyaml.Secret(t.AccessToken), lasts}, nil
}

// failure is the error of a request that brought no token: a *Refusal where the
// issuer said no.
func (s *Source) failure(err error, of Subject) error {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		var u *url.Error
		if errors.As(err, &u) { // its URL may hold a credential in its query
			err = u.Err
		}
		return fmt.Errorf("ask the issuer: %w", err)
	}
	status := answer.Response.StatusCode
	code := strings.Map(printable, answer.ErrorCode)
	switch {
	case code == "" && status >= 300 && status < 400:
		return fmt.Errorf("the issuer answered %d: redirects are not followed; set token_url to where it leads", status)
	case code == "":
		return fmt.Errorf("the issuer answered %d without an OAuth error", status)
	case status >= 500, status == http.StatusTooManyRequests, code == "temporarily_unavailable", code == "server_error", code == "slow_down":
		return fmt.Errorf("the issuer answered %d with %s", status, clip(code, 64))
	}
	return &Refusal{Code: clip(code, 64), Why: s.harmless(answer.ErrorDescription, of)}
}

// harmless is an issuer's text without anything that could be a credential.
func (s *Source) harmless(text string, of Subject) string {
	for _, secret := range []string{string(of.Token), string(s.config.ClientSecret)} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	words := strings.Fields(strings.Map(printable, text))
	for i, w := range words {
		if len(w) > longestWord {
			words[i] = "[…]"
		}
	}
	return clip(strings.Join(words, " "), 200)
}

// longestWord is what no word of an explanation is longer than, and every token
// is.
const longestWord = 40

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return ' '
	}
	return r
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// strict lets nothing through but one JSON object of bounded size without
// duplicate names.
type strict struct{ *http.Transport }

func (t strict) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return resp, nil
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("it answered %d with more than %d bytes", resp.StatusCode, maxAnswer)
	case kind != "application/json":
		return nil, fmt.Errorf("it answered %d with something else than application/json", resp.StatusCode)
	case jsontext.Value(body).Kind() != '{' || !jsontext.Value(body).IsValid():
		return nil, fmt.Errorf("it answered %d with what is not one JSON object", resp.StatusCode)
	}
	return resp, nil
}
