// Package credentials gets the tokens with which the gateway calls one server:
// its own by OAuth 2.0 client credentials (RFC 6749 section 4.4), or a user's by
// token exchange (RFC 8693). A user's own token goes to the issuer and nowhere
// else.
package credentials

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/regogate/regogate/registry/strictyaml"
)

// Bounds of what a Source keeps.
const (
	// remembered bounds the users whose tokens are kept. A token is 16 KiB at
	// most and seldom more than two, so the worst case is 64 MiB.
	remembered = 4096
	// longest bounds how long a token is used, whatever the issuer says, so
	// that what it has revoked ends some time.
	longest = time.Hour
	// assumed is how long a token is used of which the issuer does not say.
	assumed = time.Minute
	// pause is how long it stands that a user gets no token, and how long a
	// token is used at least that took the place of one that the server had
	// turned away.
	pause = time.Second
)

// Subject is on whose behalf a server is called. The zero value is nobody, for
// whom nothing can be exchanged.
type Subject struct {
	Issuer  string            // of Token
	Token   strictyaml.Secret // the user's own bearer token, verified
	Expires time.Time         // when Token does; zero is never

	gateway bool
}

// Gateway returns the subject of what the gateway does by itself.
func Gateway() Subject { return Subject{gateway: true} }

// Newer returns the one of two subjects whose token lasts longer, which is s
// where it is the gateway.
func (s Subject) Newer(than Subject) Subject {
	if !s.gateway && than.Expires.After(s.Expires) {
		return than
	}
	return s
}

// Refusal is the error of a token that is not given: the issuer's answer, or the
// gateway's own where asking would be of no use. Any other error says that the
// issuer could not be asked.
type Refusal struct {
	Code string // of RFC 6749 section 5.2, or "" where it is the gateway's own
	Why  string // in one line, without anything of a token
}

func (r *Refusal) Error() string {
	if r.Code == "" {
		return r.Why
	}
	text := "the issuer refused with " + r.Code
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// Source has the tokens for one server. Its methods may be called concurrently.
type Source struct {
	config Config
	key    *key // nil without private_key_jwt
	client *http.Client
	log    *slog.Logger
	now    func() time.Time

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	tokens *lru.Cache[id, *entry]
}

// id is the SHA-256 of a user's token; zero is the gateway itself.
type id [sha256.Size]byte

// entry is one token, or the attempt to get it.
type entry struct {
	done  chan struct{} // closed when token or err is set
	token strictyaml.Secret
	err   error
	until time.Time // from when on neither is of use; guarded by Source.mu
	// turnedAway is when the server last turned a token of the subject away;
	// guarded by Source.mu.
	turnedAway time.Time
}

// New returns the source of the tokens for the server of that name. The
// configuration must have passed Validate; the error is that of a file that is
// gone since. It opens no connection. The source must be closed.
func New(server string, c Config, log *slog.Logger) (*Source, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	s := &Source{config: c, log: log.With("server", server), now: time.Now}
	if c.InsecureTokenHTTP {
		s.log.Warn("insecure_token_http is set: the client's secret and tokens may go over plain http")
	}
	var err error
	if c.AuthMethod == PrivateKeyJWT {
		if s.key, err = readKey(c.PrivateKeyFile); err != nil {
			return nil, fmt.Errorf("read the private key: %w", err)
		}
	}
	if s.client, err = newClient(c); err != nil {
		return nil, fmt.Errorf("read the CA file: %w", err)
	}
	if s.tokens, err = lru.New[id, *entry](remembered); err != nil {
		return nil, err
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close ends what is under way and returns when nothing of it is left.
func (s *Source) Close() {
	s.mu.Lock()
	s.end() // nothing is begun from here on
	s.mu.Unlock()
	s.wg.Wait()
	s.client.CloseIdleConnections()
}

// Token returns a token for the server that says who the subject is: the
// gateway, or a user whose token is exchanged. It asks the issuer only where the
// last answer for this very subject is over; callers that come together share one
// request, which does not end with any of them. The error is ctx's, a *Refusal,
// or says why the issuer gave no answer.
func (s *Source) Token(ctx context.Context, of Subject) (strictyaml.Secret, error) {
	at, err := s.identify(of)
	if err != nil {
		return "", err
	}
	e, err := s.entry(at, of)
	if err != nil {
		return "", err
	}
	select {
	case <-e.done:
		return e.token, e.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// identify returns where the subject's token is kept. The error is a *Refusal.
func (s *Source) identify(of Subject) (id, error) {
	switch {
	case of.gateway || !s.config.Exchanges():
		return id{}, nil
	case of.Token == "":
		return id{}, &Refusal{Why: "the request came without a token that could be exchanged"}
	case s.config.SubjectIssuer != "" && of.Issuer != s.config.SubjectIssuer:
		return id{}, &Refusal{Why: "the user's token is not of subject_issuer"}
	case !of.Expires.IsZero() && !s.now().Before(of.Expires):
		return id{}, &Refusal{Why: "the user's token has expired"}
	}
	return sha256.Sum256([]byte(of.Token)), nil
}

// entry returns the subject's, begun now if need be.
func (s *Source) entry(at id, of Subject) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	before, ok := s.tokens.Get(at)
	if ok && (!isClosed(before.done) || now.Before(before.until)) {
		return before, nil
	}
	if s.life.Err() != nil {
		return nil, errors.New("the gateway is shutting down")
	}
	e := &entry{done: make(chan struct{})}
	if ok {
		e.turnedAway = before.turnedAway
	}
	s.tokens.Add(at, e)
	s.wg.Go(func() { s.attempt(e, of, at == id{}) })
	return e, nil
}

// attempt gets one token. What it ends with stands for others than its callers,
// and for no longer than it may.
func (s *Source) attempt(e *entry, of Subject, own bool) {
	ctx, cancel := context.WithTimeout(s.life, s.config.Timeout)
	defer cancel()
	if own {
		of = Gateway()
	}
	began := s.now()
	got, err := s.fetch(ctx, of)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("the issuer did not answer within %s", s.config.Timeout)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(e.done)
	if err == nil {
		e.token, e.until = got.token, s.until(got, of, began)
		return
	}
	e.err, e.until = err, s.now().Add(pause)
	if s.life.Err() == nil {
		code := ""
		if no := (*Refusal)(nil); errors.As(err, &no) {
			code = no.Code
		}
		s.log.Warn("no token for a server", "grant", grantOf(of), "oauth_error", code, "error", err)
	}
}

// until is when a token is to be replaced: a tenth of its life before the end,
// half a minute at most.
func (s *Source) until(got grant, of Subject, began time.Time) time.Time {
	life := min(got.lasts, longest)
	if !of.gateway && !of.Expires.IsZero() {
		life = min(life, of.Expires.Sub(began))
	}
	const margin = 30 * time.Second
	return began.Add(life - min(life/10, margin))
}

// TurnedAway tells that the server answered 401 to the subject's token, and
// reports whether Token has, or can get, another one. A token that has just
// taken the place of one that was turned away is kept: a third would fare no
// better.
func (s *Source) TurnedAway(of Subject, token strictyaml.Secret) bool {
	at, err := s.identify(of)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.tokens.Peek(at)
	if !ok || !isClosed(e.done) || e.token != token {
		return true
	}
	now := s.now()
	if now.Sub(e.turnedAway) < pause {
		return false
	}
	e.turnedAway, e.until = now, now
	return true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
