// Package issuer is a small real OAuth 2.0 issuer for tests: it authenticates
// clients, grants tokens by client credentials (RFC 6749 section 4.4) and token
// exchange (RFC 8693), signs them, and writes down what it was asked. A test can
// have it answer wrongly.
package issuer

import (
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"github.com/regogate/regogate/gateway/auth/mint"
)

// The audience of users' tokens, which is the gateway.
const Gateway = "gateway"

// Client is one that may ask for tokens: by a secret, or by a key.
type Client struct {
	Secret string
	Key    crypto.PublicKey // of ES256
	// Audiences are what it may ask tokens for.
	Audiences []string
}

// Request is one request to the token endpoint as it came.
type Request struct {
	Form   url.Values
	Client string // "" where it was not authenticated
	Method string // basic, post or private_key_jwt
	Granted
}

// Granted is what a request was given; empty for a refusal.
type Granted struct {
	Token string
	Error string // the OAuth error code
}

// Issuer serves /token and /jwks. Its exported fields are set before Start.
type Issuer struct {
	Clients map[string]Client
	// Lifetime is that of the tokens it gives: 1h. Silent leaves expires_in out.
	// Outlives has exchanged tokens last longer than the user's own.
	Lifetime         time.Duration
	Silent, Outlives bool

	URL    string
	server *httptest.Server
	signer *mint.Signer

	mu       sync.Mutex
	requests []Request
	seen     map[string]bool // jti of assertions
	serial   int
	script   func(w http.ResponseWriter, r *http.Request) bool
}

// Start serves the issuer on loopback until Close.
func (i *Issuer) Start() error {
	var err error
	if i.signer, err = mint.Generate("ES256"); err != nil {
		return err
	}
	if i.Lifetime == 0 {
		i.Lifetime = time.Hour
	}
	i.seen = map[string]bool{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /jwks", func(w http.ResponseWriter, _ *http.Request) {
		keys, err := mint.KeySet(i.signer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/jwk-set+json")
		_, _ = w.Write(keys)
	})
	i.server = httptest.NewServer(mux)
	i.URL = i.server.URL
	return nil
}

// Close ends the issuer.
func (i *Issuer) Close() {
	i.server.CloseClientConnections()
	i.server.Close()
}

// TokenURL is the token endpoint.
func (i *Issuer) TokenURL() string { return i.URL + "/token" }

// Script answers requests to the token endpoint in the issuer's place where it
// returns true; nil takes that back. The form has been parsed.
func (i *Issuer) Script(f func(w http.ResponseWriter, r *http.Request) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.script = f
}

// Requests returns the requests so far, those that a script answered included.
func (i *Issuer) Requests() []Request {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.requests)
}

// User returns the token by which a user comes to the gateway.
func (i *Issuer) User(subject string, valid time.Duration, more map[string]any) (string, error) {
	claims := map[string]any{"sub": subject, "aud": Gateway, "jti": i.next()}
	for name, value := range more {
		claims[name] = value
	}
	return i.sign(claims, valid)
}

// Verify returns the claims of a token of this issuer that is for the audience.
func (i *Issuer) Verify(token, audience string) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return i.signer.Public(), nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(i.URL), jwt.WithAudience(audience), jwt.WithExpirationRequired())
	return claims, err
}

func (i *Issuer) next() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.serial++
	return strconv.Itoa(i.serial)
}

func (i *Issuer) sign(claims map[string]any, valid time.Duration) (string, error) {
	claims["iss"], claims["iat"] = i.URL, time.Now().Unix()
	claims["exp"] = float64(time.Now().Add(valid).UnixMilli()) / 1000
	return i.signer.Sign(claims)
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := Request{Form: r.PostForm}
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.requests = append(i.requests, request)
	}()
	i.mu.Lock()
	script := i.script
	i.mu.Unlock()
	if script != nil && script(w, r) {
		return
	}
	var granted map[string]any
	var no refusal
	if request.Client, request.Method, no = i.authenticate(r); no == "" {
		granted, no = i.grant(request.Client, r.PostForm)
	}
	if no != "" {
		request.Error = string(no)
		status := http.StatusBadRequest
		if no == "invalid_client" {
			status = http.StatusUnauthorized
		}
		Answer(w, status, map[string]any{"error": string(no), "error_description": "refused by the test's issuer"})
		return
	}
	request.Token, _ = granted["access_token"].(string)
	Answer(w, http.StatusOK, granted)
}

// refusal is an OAuth error code; "" is none.
type refusal string

func (i *Issuer) authenticate(r *http.Request) (client, method string, no refusal) {
	form := r.PostForm
	if id, secret, ok := r.BasicAuth(); ok {
		id, err1 := url.QueryUnescape(id)
		secret, err2 := url.QueryUnescape(secret)
		if c, known := i.Clients[id]; known && errors.Join(err1, err2) == nil && c.Secret != "" && c.Secret == secret && !form.Has("client_secret") {
			return id, "basic", ""
		}
		return "", "", "invalid_client"
	}
	id := form.Get("client_id")
	c, known := i.Clients[id]
	switch {
	case !known:
	case form.Has("client_assertion"):
		if i.proves(form, id, c.Key) == nil {
			return id, "private_key_jwt", ""
		}
	case c.Secret != "" && c.Secret == form.Get("client_secret"):
		return id, "post", ""
	}
	return "", "", "invalid_client"
}

// proves checks a client's assertion (RFC 7523), which is good once.
func (i *Issuer) proves(form url.Values, id string, key crypto.PublicKey) error {
	if key == nil || form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
		return errors.New("no such way")
	}
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(form.Get("client_assertion"), claims, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(id), jwt.WithSubject(id), jwt.WithAudience(i.TokenURL()), jwt.WithExpirationRequired())
	if err != nil {
		return err
	}
	jti, _ := claims["jti"].(string)
	i.mu.Lock()
	defer i.mu.Unlock()
	if jti == "" || i.seen[jti] {
		return errors.New("used before")
	}
	i.seen[jti] = true
	return nil
}

func (i *Issuer) grant(client string, form url.Values) (map[string]any, refusal) {
	audience := form.Get("audience")
	if audience == "" {
		audience = form.Get("resource")
	}
	if !slices.Contains(i.Clients[client].Audiences, audience) {
		return nil, "invalid_target"
	}
	claims := map[string]any{"aud": audience, "client_id": client, "jti": i.next()}
	if scope := form.Get("scope"); scope != "" {
		claims["scope"] = scope
	}
	lifetime := i.Lifetime
	answer := map[string]any{"token_type": "Bearer"}
	const tokenType = "urn:ietf:params:oauth:token-type:access_token"
	switch form.Get("grant_type") {
	case "client_credentials":
		claims["sub"] = client
	case "urn:ietf:params:oauth:grant-type:token-exchange":
		user, err := i.Verify(form.Get("subject_token"), Gateway)
		if err != nil || form.Get("subject_token_type") != tokenType {
			return nil, "invalid_grant"
		}
		claims["sub"], claims["act"] = user["sub"], map[string]any{"sub": client}
		end, err := user.GetExpirationTime()
		if err != nil {
			return nil, "invalid_grant"
		}
		if !i.Outlives {
			lifetime = min(lifetime, time.Until(end.Time))
		}
		answer["issued_token_type"] = tokenType
	default:
		return nil, "unsupported_grant_type"
	}
	token, err := i.sign(claims, lifetime)
	if err != nil {
		return nil, "server_error"
	}
	answer["access_token"] = token
	if !i.Silent {
		answer["expires_in"] = int(lifetime.Round(time.Second).Seconds())
	}
	return answer, ""
}

// Answer writes a JSON answer as token endpoints do.
func Answer(w http.ResponseWriter, status int, body map[string]any) {
	text, err := json.Marshal(body)
	if err != nil {
		text = fmt.Appendf(nil, `{"error":"server_error","error_description":%q}`, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
