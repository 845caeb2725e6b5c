package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// runningKey names a call as the client that cancels it does. Ids are compared
// as they were written: 7 is not "7".
type runningKey struct {
	session string
	id      mcp.ID
}

// running is the legacy-era calls under way, to be cancelled by name.
type running struct {
	mu    sync.Mutex
	calls map[runningKey]context.CancelCauseFunc
}

var errCancelled = errors.New("the client cancelled the call")

func (r *running) add(k runningKey, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[runningKey]context.CancelCauseFunc{}
	}
	r.calls[k] = cancel
}

func (r *running) remove(k runningKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, k)
}

// cancel ends the call of this session that the notification names, if it
// still runs. Anything else is ignored, as the specification asks.
func (r *running) cancel(session string, m *mcp.Message) {
	id, err := mcp.ReadCancelled(m.Params)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.calls[runningKey{session, id}]; cancel != nil {
		cancel(errCancelled)
	}
}

// slots bounds how many requests of one principal run at once.
type slots struct {
	max int
	mu  sync.Mutex
	of  map[string]int
}

// take reports whether there is room; the caller gives it back if there was.
func (s *slots) take(principal string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]int{}
	}
	if s.of[principal] >= s.max {
		return false
	}
	s.of[principal]++
	return true
}

func (s *slots) give(principal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[principal]--; s.of[principal] <= 0 {
		delete(s.of, principal)
	}
}

// every calls f after the interval, and again when that much has passed since
// the last call ended, until stop, which returns when no call of f runs any
// more. Nothing runs between the calls.
func every(interval time.Duration, f func()) (stop func()) {
	var mu sync.Mutex // held while f runs
	var timer *time.Timer
	ended := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(interval, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			f()
			timer.Reset(interval)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}

func newID() string { return rand.Text() }

func stack() string { return string(debug.Stack()) }
