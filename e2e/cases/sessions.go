package cases

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// sessions is those of one backend over HTTP or SSE. It is safe for concurrent
// use.
type sessions struct {
	mu   sync.Mutex
	made int
	byID map[string]*conversation
}

// conversation is one session.
type conversation struct {
	id    string
	ctx   context.Context // ends with the session
	end   context.CancelFunc
	out   chan note // what goes over its stream
	tells bool      // it has an open stream; guarded by sessions.mu
	work  sync.WaitGroup
}

// note is one message for a stream.
type note struct {
	text    string
	written chan struct{} // closed once it is under way
}

// begin opens a session, which lasts as long as ctx at most.
func (s *sessions) begin(ctx context.Context, of string) *conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	c := &conversation{id: fmt.Sprintf("session-%d-of-%s", s.made, of), out: make(chan note)}
	c.ctx, c.end = context.WithCancel(ctx)
	if s.byID == nil {
		s.byID = map[string]*conversation{}
	}
	s.byID[c.id] = c
	return c
}

func (s *sessions) find(id string) *conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// finish ends a session and reports whether it was one.
func (s *sessions) finish(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byID[id]
	if c == nil {
		return false
	}
	delete(s.byID, id)
	c.end()
	return true
}

// run runs f beside the session, unless that is over.
func (s *sessions) run(c *conversation, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[c.id] != c {
		return false
	}
	c.work.Go(f)
	return true
}

// forget ends all sessions.
func (s *sessions) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.byID {
		c.end()
	}
	clear(s.byID)
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// listeners returns the sessions with an open stream.
func (s *sessions) listeners() (all []*conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.byID {
		if c.tells {
			all = append(all, c)
		}
	}
	return all
}

// notify sends a message over every open stream, and waits for the first one to
// be opened.
func (s *sessions) notify(text string) error {
	deadline := time.Now().Add(lateness)
	to := s.listeners()
	for len(to) == 0 {
		if time.Now().After(deadline) {
			return fmt.Errorf("nobody opened a stream within %s", lateness)
		}
		time.Sleep(5 * time.Millisecond)
		to = s.listeners()
	}
	for _, c := range to {
		c.send(text)
	}
	return nil
}

// send returns once the message is on its way, or can no longer be.
func (c *conversation) send(text string) {
	n := note{text, make(chan struct{})}
	select {
	case c.out <- n:
	case <-c.ctx.Done():
		return
	}
	select {
	case <-n.written:
	case <-c.ctx.Done():
	}
}

// stream serves the session's stream until one of the two sides ends it. first
// is what it begins with.
func (s *sessions) stream(w http.ResponseWriter, r *http.Request, c *conversation, first string) {
	flush := http.NewResponseController(w).Flush
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(first)) // who has gone is seen below
	_ = flush()
	s.setTells(c, true)
	defer s.setTells(c, false)
	for {
		select {
		case n := <-c.out:
			_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", n.text)
			_ = flush()
			close(n.written)
		case <-c.ctx.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *sessions) setTells(c *conversation, tells bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.tells = tells
}
