// Package server serves policy bundles to OPA and to regogate: with ETags, long
// polling, several bundles, retained revisions to roll back to, and directories
// that are watched so that saving a file publishes a new revision.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
)

// Config says what to serve.
type Config struct {
	// Bundles names directories of policies, or files of bundles, by the name that
	// the bundle is served under.
	Bundles map[string]string
	Pins    map[string]string // to set at the start, by bundle; "" ends one
	Store   *Store
	Retain  int // revisions of each bundle
	// Sign says how bundles are to be signed now; it is asked often. Without a key
	// they stay as they are, as they do where this is nil.
	Sign func() (*keys.Key, bundles.Claims, error)
	// Check returns why the bundle that was made of the source is not to be
	// published. nil finds nothing.
	Check func(source string, body []byte) error
	Token *Token // of clients; nil asks for none
	Log   *slog.Logger
}

// Server serves bundles. It is safe for concurrent use.
type Server struct {
	config  Config
	served  map[string]*served
	closing chan struct{}
}

// served is one bundle as it is served.
type served struct {
	name, source string

	// Of the one goroutine that looks after the bundle.
	sign    signer // as it was wanted last
	refused string // content that is not to be published
	why     error
	lost    string // digest of what the store has and cannot give
	unkept  error  // why the store did not take what is newer

	mu            sync.Mutex
	now           Revision
	body          []byte // nil while there is nothing
	pinned        string
	sourceProblem string // why the newest is not published
	storeProblem  string // why what is published is not served, or not kept
	waiting       int
	changed       chan struct{} // closed when the bundle changes
}

// New sets the pins, all of them or, where one is of nothing that is retained, none,
// and reads what the store has; Run publishes what is newer. What is wrong in the
// store with one bundle is that one's problem.
func New(c Config) (*Server, error) {
	s := &Server{config: c, served: map[string]*served{}, closing: make(chan struct{})}
	sign, err := s.signer()
	if err != nil {
		return nil, err
	}
	for name, source := range c.Bundles {
		if err := checkName(name); err != nil {
			return nil, err
		}
		if _, err := os.Stat(source); err != nil {
			return nil, fmt.Errorf("bundle %s: %w", name, err)
		}
		s.served[name] = &served{name: name, source: source, sign: sign, changed: make(chan struct{})}
	}
	if err := c.pin(); err != nil {
		return nil, err
	}
	for _, b := range s.served {
		s.show(b)
	}
	return s, nil
}

// pin sets all pins or none.
func (c *Config) pin() error {
	for name, revision := range c.Pins {
		if revision == "" {
			continue
		}
		if err := c.Store.Retains(name, revision); err != nil {
			return fmt.Errorf("pin: %w", err)
		}
	}
	for name, revision := range c.Pins {
		set := c.Store.Unpin
		if revision != "" {
			set = func(name string) error { return c.Store.Pin(name, revision) }
		}
		if err := set(name); err != nil {
			return err
		}
	}
	return nil
}

// Run publishes what changes until ctx is done. Whoever waits is answered then. It
// is called once.
func (s *Server) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for _, b := range s.served {
		parts.Go(func() { s.watch(ctx, b) })
	}
	<-ctx.Done()
	close(s.closing)
	parts.Wait()
	return nil
}

// show serves what the store says is to be served.
func (s *Server) show(b *served) {
	err := s.load(b)
	s.tell(b, &b.storeProblem, "bundle store fails", errors.Join(b.unkept, err))
}

func (s *Server) load(b *served) error {
	want, pin, err := s.wanted(b.name)
	if err != nil || want.Digest == "" {
		return err
	}
	b.mu.Lock()
	body, same := b.body, b.body != nil && b.now.Digest == want.Digest
	b.mu.Unlock()
	if !same {
		if body, err = s.config.Store.Read(b.name, want); err != nil {
			b.lost = want.Digest
			return err
		}
	}
	b.lost = ""
	want, body, err = s.renew(b, want, body)
	b.replace(want, body, pin, s.config.Log)
	return err
}

// renew signs what is to be served anew, where it is not signed as is wanted or half
// of its time has passed. Where that fails it is served as it is.
func (s *Server) renew(b *served, r Revision, body []byte) (Revision, []byte, error) {
	if b.sign.key == nil || b.sign.fresh(r, time.Now()) {
		return r, body, nil
	}
	next := r
	signed, err := b.sign.sign(body, &next)
	if err == nil {
		next, err = s.config.Store.Renew(b.name, signed, next)
	}
	if err != nil {
		return r, body, fmt.Errorf("sign revision %s of bundle %s anew: %w", r.Revision, b.name, err)
	}
	return next, signed, nil
}

// wanted is the pinned revision, or the newest; zero where there is none.
func (s *Server) wanted(name string) (want Revision, pin string, err error) {
	list, err := s.config.Store.Revisions(name)
	if err != nil || len(list) == 0 {
		return want, "", err
	}
	pin, err = s.config.Store.Pinned(name)
	if err != nil || pin == "" {
		return list[len(list)-1], pin, err
	}
	want, ok := find(list, pin)
	if !ok {
		err = fmt.Errorf("bundle %s is pinned to %q, which is not retained: what was served before stays; pin another, or unpin it", name, pin)
	}
	return want, pin, err
}

func (b *served) replace(r Revision, body []byte, pin string, log *slog.Logger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.body == nil || b.now.Digest != r.Digest {
		close(b.changed)
		b.changed = make(chan struct{})
		log.Info("bundle served", "bundle", b.name, "revision", r.Revision, "digest", r.Digest[:12], "size", r.Size, "pinned", pin != "")
	}
	b.now, b.body, b.pinned = r, body, pin
}

// tell keeps what is wrong with one side of a bundle, and logs it when it changes.
func (s *Server) tell(b *served, side *string, what string, err error) {
	problem := ""
	if err != nil {
		problem = oneLine(err.Error())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if *side == problem {
		return
	}
	*side = problem
	if err == nil {
		s.config.Log.Info("mended: "+what, "bundle", b.name)
		return
	}
	s.config.Log.Error(what, "bundle", b.name, "problem", problem, "revision", b.now.Revision)
}

// Status is how a bundle fares.
type Status struct {
	Bundle    string    `json:"bundle"`
	Revision  string    `json:"revision,omitempty"`
	ETag      string    `json:"etag,omitempty"`
	Published time.Time `json:"published,omitzero"`
	Expires   time.Time `json:"expires,omitzero"` // the signature
	Size      int       `json:"size"`
	Pinned    bool      `json:"pinned"`
	// Why the newest is not published, and why what is published is not served or
	// not kept.
	SourceProblem string `json:"source_problem,omitempty"`
	StoreProblem  string `json:"store_problem,omitempty"`
	Waiting       int    `json:"waiting"` // clients
}

// Status is how the bundles fare, by name. It is the caller's.
func (s *Server) Status() []Status {
	list := make([]Status, 0, len(s.served))
	for _, b := range s.served {
		list = append(list, b.status())
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Bundle, b.Bundle) })
	return list
}

func (b *served) status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := Status{
		Bundle: b.name, Revision: b.now.Revision, Published: b.now.Published, Expires: b.now.Expires, Size: b.now.Size,
		Pinned: b.pinned != "", SourceProblem: b.sourceProblem, StoreProblem: b.storeProblem, Waiting: b.waiting,
	}
	if b.body != nil {
		st.ETag = etag(b.now)
	}
	return st
}

func etag(r Revision) string { return `"` + r.Digest[:32] + `"` }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
