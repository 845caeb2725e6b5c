package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Session is what the gateway remembers of one legacy-era client. It is facts
// only and never authentication: every request brings its own token.
type Session struct {
	ID           string
	Principal    string // Key of the principal that opened it
	Version      string // negotiated protocol revision
	Client       Implementation
	Capabilities jsontext.Value // what the client said it can do
	Created      time.Time
	Seen         time.Time
}

// Implementation is the name and version that a client gives of itself.
// Untrusted.
type Implementation struct {
	Name    string
	Version string
}

// Sessions is where sessions live. Implementations are safe for concurrent
// use. A session is only ever given to the principal that opened it: to
// everybody else it does not exist.
type Sessions interface {
	// Open stores s under a new id that cannot be guessed and returns it.
	// The error is errSessionsFull when no more fit.
	Open(ctx context.Context, s Session) (Session, error)
	// Use returns the session and marks it as used now. The error is
	// errNoSession when it is unknown, over its limits or someone else's.
	Use(ctx context.Context, id, principal string) (Session, error)
	// Close forgets the session; errNoSession as in Use.
	Close(ctx context.Context, id, principal string) error
}

var (
	errNoSession    = errors.New("no such session")
	errSessionsFull = errors.New("no more sessions fit")
)

// SessionConfig bounds the sessions of legacy-era clients.
type SessionConfig struct {
	Idle         time.Duration `yaml:"idle"`          // ends when unused for this long
	Lifetime     time.Duration `yaml:"lifetime"`      // ends this long after initialize
	Max          int           `yaml:"max"`           // in all; one more is refused
	PerPrincipal int           `yaml:"per_principal"` // one more ends the principal's least recently used one
}

// memorySessions keeps sessions in this process.
type memorySessions struct {
	limits SessionConfig
	now    func() time.Time
	ended  func(id string) // told of each session that is forgotten; does not call back

	mu   sync.Mutex
	byID map[string]*Session
	of   map[string]map[string]*Session // by principal, then id
}

func newMemorySessions(limits SessionConfig, now func() time.Time) *memorySessions {
	return &memorySessions{
		limits: limits, now: now, ended: func(string) {},
		byID: map[string]*Session{}, of: map[string]map[string]*Session{},
	}
}

func (m *memorySessions) Open(_ context.Context, s Session) (Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.ID = rand.Text()
	s.Created, s.Seen = m.now(), m.now()
	mine := m.of[s.Principal]
	for len(mine) > 0 && len(mine) >= m.limits.PerPrincipal {
		m.forget(leastRecent(mine))
	}
	if len(m.byID) >= m.limits.Max {
		m.sweep()
	}
	if len(m.byID) >= m.limits.Max {
		return Session{}, errSessionsFull
	}
	if m.of[s.Principal] == nil {
		m.of[s.Principal] = map[string]*Session{}
	}
	m.byID[s.ID], m.of[s.Principal][s.ID] = &s, &s
	return s, nil
}

func (m *memorySessions) Use(_ context.Context, id, principal string) (Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.byID[id]
	if s == nil || s.Principal != principal {
		return Session{}, errNoSession
	}
	if m.over(s) {
		m.forget(s)
		return Session{}, errNoSession
	}
	s.Seen = m.now()
	return *s, nil
}

func (m *memorySessions) Close(_ context.Context, id, principal string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.byID[id]
	if s == nil || s.Principal != principal {
		return errNoSession
	}
	over := m.over(s)
	m.forget(s)
	if over {
		return errNoSession
	}
	return nil
}

func (m *memorySessions) over(s *Session) bool {
	now := m.now()
	return now.Sub(s.Seen) > m.limits.Idle || now.Sub(s.Created) > m.limits.Lifetime
}

func (m *memorySessions) forget(s *Session) {
	delete(m.byID, s.ID)
	delete(m.of[s.Principal], s.ID)
	if len(m.of[s.Principal]) == 0 {
		delete(m.of, s.Principal)
	}
	m.ended(s.ID)
}

func (m *memorySessions) sweep() {
	for _, s := range m.byID {
		if m.over(s) {
			m.forget(s)
		}
	}
}

func leastRecent(sessions map[string]*Session) *Session {
	var least *Session
	for _, s := range sessions {
		if least == nil || s.Seen.Before(least.Seen) {
			least = s
		}
	}
	return least
}
