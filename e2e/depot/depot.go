// Package depot is a bundle server and a sink for what OPA's management plane
// uploads. It does what it is told to, however wrong that is, and writes down
// who asked for what. Tests and cases put a gateway in front of it.
package depot

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Depot serves /bundles/NAME, and takes /logs and /status. It is safe for
// concurrent use. Make it with New; a test gives it a listener.
type Depot struct {
	// Long says that requests which wait for a change are kept waiting. It is set
	// before the depot serves.
	Long bool

	keys keyring
	sink sink

	mu       sync.Mutex
	shelves  map[string]*shelf
	requests []Request
	answers  int
}

// shelf is what is given under one name.
type shelf struct {
	what   *parcel       // nil is 404
	turned chan struct{} // closed when there is something else
}

// Request is one request for a bundle.
type Request struct {
	Time   time.Time
	Bundle string
	Known  string // If-None-Match
	Prefer string
	Token  string // Authorization
}

// New returns a depot that has nothing.
func New() *Depot { return &Depot{shelves: map[string]*shelf{}} }

// Publish gives p under the name from now on. It fails where p makes no sense.
func (d *Depot) Publish(name string, p Publication) error {
	what, err := d.wrap(p)
	if err != nil {
		return fmt.Errorf("publish %s: %w", name, err)
	}
	d.put(name, what)
	return nil
}

// Withdraw has requests for the name answered with 404.
func (d *Depot) Withdraw(name string) { d.put(name, nil) }

func (d *Depot) put(name string, what *parcel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.shelf(name)
	s.what = what
	close(s.turned)
	s.turned = make(chan struct{})
}

// shelf is called with the lock held.
func (d *Depot) shelf(name string) *shelf {
	if d.shelves[name] == nil {
		d.shelves[name] = &shelf{turned: make(chan struct{})}
	}
	return d.shelves[name]
}

// Requests returns the requests for a bundle so far, oldest first.
func (d *Depot) Requests(name string) []Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Request
	for _, r := range d.requests {
		if r.Bundle == name {
			out = append(out, r)
		}
	}
	return out
}

// Known returns what requests for a bundle have said that they know, each once,
// sorted.
func (d *Depot) Known(name string) []string {
	var out []string
	for _, r := range d.Requests(name) {
		out = append(out, r.Known)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *Depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/bundles/")
	switch {
	case ok && r.Method == http.MethodGet:
		d.note(name, r)
		d.give(w, r, name)
	case r.Method == http.MethodPost:
		d.sink.take(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (d *Depot) note(name string, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, Request{
		Time: time.Now(), Bundle: name, Token: r.Header.Get("Authorization"),
		Known: r.Header.Get("If-None-Match"), Prefer: r.Header.Get("Prefer"),
	})
}

// give answers a request for a bundle, once there is something to say.
func (d *Depot) give(w http.ResponseWriter, r *http.Request, name string) {
	patience := d.patience(r)
	for {
		d.mu.Lock()
		s := d.shelf(name)
		what, turned := s.what, s.turned
		d.mu.Unlock()
		if what == nil {
			http.NotFound(w, r)
			return
		}
		if !what.known(r.Header.Get("If-None-Match")) || what.fault == Early {
			d.send(w, r, what, turned)
			return
		}
		select {
		case <-turned:
		case <-r.Context().Done():
			return
		case <-patience:
			w.Header().Set("ETag", what.etag)
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
}

// patience is how long a request is ready to wait for a change.
func (d *Depot) patience(r *http.Request) <-chan time.Time {
	for part := range strings.SplitSeq(r.Header.Get("Prefer"), ";") {
		if text, ok := strings.CutPrefix(part, "wait="); ok && d.Long {
			if n, err := strconv.Atoi(text); err == nil {
				return time.After(time.Duration(n) * time.Second)
			}
		}
	}
	return time.After(0)
}

// etag is the header of the next answer.
func (d *Depot) etag(what *parcel) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers++
	if what.changing {
		return `"answer-` + strconv.Itoa(d.answers) + `"`
	}
	return what.etag
}
