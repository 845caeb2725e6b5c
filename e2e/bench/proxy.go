package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// proxy forwards everything to one URL: it reads the whole request, sends it,
// reads the whole answer and writes that. It is the least that anything in
// front of a backend does which has to read a message before it lets it
// through.
type proxy struct {
	target string
	client *http.Client
	// verify is asked about the bearer token of every request; nil lets all
	// through.
	verify func(token string) error
}

const maxBody = 4 << 20

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.verify != nil {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || p.verify(token) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.target, bytes.NewReader(body))
	if err != nil {
		http.Error(w, "cannot make the request", http.StatusInternalServerError)
		return
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Authorization")
	out.Header.Del("Connection")
	resp, err := p.client.Do(out)
	if err != nil {
		http.Error(w, "cannot reach the backend", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		http.Error(w, "cannot read the answer", http.StatusBadGateway)
		return
	}
	for key, values := range resp.Header {
		w.Header()[key] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer) // where the client has gone nobody is left to tell
}

// verifier returns a check of a token's signature, issuer, audience and times
// that remembers nothing, so that every request pays for it.
func verifier(public any, alg, issuer, audience string) func(string) error {
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{alg}),
		jwt.WithIssuer(issuer),
		jwt.WithAudience(audience),
		jwt.WithExpirationRequired(),
	)
	key := func(*jwt.Token) (any, error) { return public, nil }
	return func(token string) error {
		_, err := parser.Parse(token, key)
		return err
	}
}
