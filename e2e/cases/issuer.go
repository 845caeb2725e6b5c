package cases

import (
	"net/http"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/auth"
)

// audience is whom the world's tokens are meant for.
const audience = "mcp-gateway"

// issuerName is the iss of an issuer's tokens.
func issuerName(name string, spec Issuer) string {
	switch {
	case spec.Config.Issuer != "":
		return spec.Config.Issuer
	case name == "main":
		return "https://idp.example.test"
	}
	return "https://" + name + ".example.test"
}

// issuer publishes keys and counts how often they are asked for.
type issuer struct {
	*host
	mu       sync.Mutex
	document string
	fetches  int
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.fetches++
	document := i.document
	i.mu.Unlock()
	if i.misbehave(w, r, "") {
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Header().Set("Cache-Control", "max-age=86400")
	_, _ = w.Write([]byte(document))
}

func (i *issuer) publish(document string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.document = document
}

func (i *issuer) published() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.document
}

func (i *issuer) fetched() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// newIssuer opens the issuer's address; it publishes nothing yet.
func newIssuer() (*issuer, error) {
	i := &issuer{host: newHost()}
	return i, i.open(i)
}

// config is what a gateway is told of the issuer.
func (i *issuer) config(name string, spec Issuer) auth.Issuer {
	c := spec.Config
	c.Issuer = issuerName(name, spec)
	if c.Audience == nil {
		c.Audience = []string{audience}
	}
	if c.JWKSURL == "" {
		c.JWKSURL = i.url() + "/jwks"
	}
	if c.RefreshInterval == 0 {
		c.RefreshInterval = time.Hour // so that only what a case does changes keys
	}
	return c
}

// trap is an address that nothing may ever ask for anything.
type trap struct {
	*host
	mu   sync.Mutex
	seen []string
}

func newTrap() (*trap, error) {
	t := &trap{host: newHost()}
	return t, t.open(t)
}

func (t *trap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = append(t.seen, r.Method+" "+r.RequestURI)
	w.WriteHeader(http.StatusNotFound)
}

func (t *trap) requests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.seen...)
}
