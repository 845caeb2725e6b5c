package estate_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// truth is what the registry said, and when. A tool is forbidden from the moment
// that a quarantine was confirmed to the one that its release was begun.
type truth struct {
	mu    sync.Mutex
	tools map[string][]span
}

// span is a time in which a tool was forbidden. The zero end is none yet.
type span struct{ from, to time.Time }

func newTruth() *truth { return &truth{tools: map[string][]span{}} }

func (tr *truth) set(tool int, forbidden bool, at time.Time) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	name := fmt.Sprint("t", tool)
	spans := tr.tools[name]
	if last := len(spans) - 1; last >= 0 && spans[last].to.IsZero() {
		if forbidden {
			return
		}
		spans[last].to = at
		return
	}
	if forbidden {
		tr.tools[name] = append(spans, span{from: at})
	}
}

// forbidden reports whether a tool was so at a time, and for how long already.
func (tr *truth) forbidden(name string, at time.Time) (since time.Duration, yes bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, s := range tr.tools[name] {
		if at.After(s.from) && (s.to.IsZero() || at.Before(s.to)) {
			return at.Sub(s.from), true
		}
	}
	return 0, false
}

// slack is what a call may take from the decision to the backend, on a machine
// that has much else to do.
const slack = time.Second

// audit holds every call that reached the backend against the truth: none rests
// on what a replica knew longer ago than it may. It returns how many it looked at,
// and how late the latest was that came through after a quarantine.
func (e *estate) audit(t testing.TB) (calls int, latest time.Duration) {
	t.Helper()
	for _, c := range e.backend.Calls() {
		calls++
		since, forbidden := e.truth.forbidden(c.Tool, c.Time)
		if !forbidden {
			continue
		}
		if latest = max(latest, since); since > staleness+slack {
			t.Errorf("a call of %s reached the backend %v after its quarantine", c.Tool, since)
		}
	}
	return calls, latest
}
