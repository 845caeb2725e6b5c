// Package server serves policy bundles to OPA and to regogate: with ETags, long
// polling, several bundles, retained revisions to roll back to, and directories
// that are watched so that saving a file publishes a new revision.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/regogate/regogate/bundles"
)

// Config says what to serve.
type Config struct {
	// Bundles names directories of policies, or files of bundles, by the name that
	// the bundle is served under.
	Bundles map[string]string
	Store   *Store
	Retain  int // revisions of each bundle
	Key     *bundles.Key
	Claims  func() bundles.Claims // of a new signature
	// Check returns why a directory is not to be published; nil finds nothing.
	Check func(dir string) error
	Token *Token // of clients; nil asks for none
	Log   *slog.Logger
}

// How often the sources and the pins are looked at, beside what the file system
// reports.
const (
	lookEvery = 2 * time.Second
	pinEvery  = 500 * time.Millisecond
)

// Server serves bundles. It is safe for concurrent use.
type Server struct {
	config  Config
	served  map[string]*served
	closing chan struct{}
	close   func()
}

// served is one bundle as it is served.
type served struct {
	name, source string
	showing      sync.Mutex // held while what is served is looked up and put in place

	mu      sync.Mutex
	now     Revision
	body    []byte // nil while there is nothing
	pinned  string
	problem string // why the newest is not served
	failed  string // content that was refused
	waiting int
	changed chan struct{} // closed when the bundle changes
}

// New reads what the store has; Run publishes what is newer.
func New(c Config) (*Server, error) {
	s := &Server{config: c, served: map[string]*served{}, closing: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closing) })
	for name, source := range c.Bundles {
		if !nameRule.MatchString(name) {
			return nil, fmt.Errorf("bundle name %q: want lower-case letters, digits, - and _, at most 64", name)
		}
		if _, err := os.Stat(source); err != nil {
			return nil, fmt.Errorf("bundle %s: %w", name, err)
		}
		b := &served{name: name, source: source, changed: make(chan struct{})}
		s.served[name] = b
		if err := s.show(b); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run publishes what changes until ctx is done. Whoever waits is answered then.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	var parts sync.WaitGroup
	defer parts.Wait()
	for _, b := range s.served {
		s.publish(b)
		parts.Go(func() { s.watch(ctx, b) })
	}
	pins := time.NewTicker(pinEvery)
	defer pins.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pins.C:
			for _, b := range s.served {
				if err := s.show(b); err != nil {
					b.refuse("", err.Error(), s.config.Log)
				}
			}
		}
	}
}

// show serves what the store says is to be served: the pinned revision, or the
// newest.
func (s *Server) show(b *served) error {
	b.showing.Lock()
	defer b.showing.Unlock()
	list, err := s.config.Store.Revisions(b.name)
	if err != nil || len(list) == 0 {
		return err
	}
	pin, err := s.config.Store.Pinned(b.name)
	if err != nil {
		return err
	}
	want := list[len(list)-1]
	if pin != "" {
		r, ok := find(list, pin)
		if !ok {
			return fmt.Errorf("bundle %s is pinned to %s, which is not retained: what was served before stays; pin another, or unpin it", b.name, pin)
		}
		want = r
	}
	b.mu.Lock()
	same := b.body != nil && b.now.Digest == want.Digest && b.pinned == pin
	b.mu.Unlock()
	if same {
		return nil
	}
	body, err := s.config.Store.Read(b.name, want)
	if err != nil {
		return err
	}
	b.replace(want, body, pin, s.config.Log)
	return nil
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

// refuse notes why something newer is not served, and tells it once.
func (b *served) refuse(content, problem string, log *slog.Logger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problem != problem {
		log.Error("bundle not published", "bundle", b.name, "problem", problem, "revision", b.now.Revision)
	}
	b.problem, b.failed = problem, content
}

func (b *served) mended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problem, b.failed = "", ""
}

// Status is how the bundles fare, by name.
type Status struct {
	Bundle    string    `json:"bundle"`
	Revision  string    `json:"revision,omitempty"`
	ETag      string    `json:"etag,omitempty"`
	Published time.Time `json:"published,omitzero"`
	Size      int       `json:"size"`
	Pinned    bool      `json:"pinned"`
	Problem   string    `json:"problem,omitempty"`
	Waiting   int       `json:"waiting"` // clients
}

// Status is the caller's.
func (s *Server) Status() []Status {
	list := make([]Status, 0, len(s.served))
	for _, b := range s.served {
		b.mu.Lock()
		st := Status{
			Bundle: b.name, Revision: b.now.Revision, Published: b.now.Published, Size: b.now.Size,
			Pinned: b.pinned != "", Problem: b.problem, Waiting: b.waiting,
		}
		if b.body != nil {
			st.ETag = etag(b.now)
		}
		b.mu.Unlock()
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b Status) int {
		if a.Bundle < b.Bundle {
			return -1
		}
		return 1
	})
	return list
}

func etag(r Revision) string { return `"` + r.Digest[:32] + `"` }
