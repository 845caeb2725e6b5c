package gateway

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"
)

// get serves the legacy era's server-to-client stream: it tells the client
// when the set of tools that it may see has changed, and only then. A session
// has one such stream; opening another ends the one before.
func (x *exchange) get() *fault {
	if _, sse := accepts(x.r.Header); !sse {
		return faultAccept()
	}
	if f := x.findSession(); f != nil {
		return f
	}
	x.version = x.session.Version
	end := x.g.streams.open(x.session.ID)
	defer x.g.streams.close(x.session.ID, end)
	x.answer.stream()
	x.watch(end)
	return nil
}

// watch runs until the client leaves, the token expires, another stream takes
// over or the gateway drains.
func (x *exchange) watch(end <-chan struct{}) {
	var expires <-chan time.Time // never, for the anonymous principal
	if at := x.principal.Expires; !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		expires = timer.C
	}
	alive := time.NewTicker(keepAliveEvery)
	defer alive.Stop()
	change := x.g.changes.next()
	seen, known := x.fingerprint()
	for !x.answer.failed() {
		select {
		case <-x.ctx.Done():
			return
		case <-x.g.draining:
			return
		case <-end:
			return
		case <-expires:
			return
		case <-alive.C:
			// A session with an open stream is in use; one that ended for
			// its age takes its stream along.
			if _, err := x.g.sessions.Use(x.ctx, x.session.ID, x.principal.Key()); err != nil {
				return
			}
			x.answer.keepAlive()
		case <-change:
			change = x.g.changes.next()
			print, ok := x.fingerprint()
			if ok && known && print != seen {
				x.answer.event([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
			}
			if ok {
				seen, known = print, true
			}
		}
	}
}

// fingerprint identifies the set of tools that the principal may see now; ok
// is false while that cannot be decided, or not in time.
func (x *exchange) fingerprint() (sum [sha256.Size]byte, ok bool) {
	now, f := x.pin()
	if f != nil {
		return sum, false
	}
	visible, f := x.see(now, now.catalog.route(x.server))
	x.hand() // a stream is long: its records must neither wait for its end nor pile up
	if f != nil {
		return sum, false
	}
	h := sha256.New()
	for _, t := range visible {
		h.Write(t.digest[:])
	}
	h.Sum(sum[:0])
	return sum, true
}

// endSession serves DELETE.
func (x *exchange) endSession() *fault {
	if f := x.findSession(); f != nil {
		return f
	}
	if err := x.g.sessions.Close(x.ctx, x.session.ID, x.principal.Key()); err != nil {
		return faultSession(err)
	}
	x.answer.empty(http.StatusNoContent)
	return nil
}

// streams is the open server-to-client streams, by session.
type streams struct {
	mu   sync.Mutex
	ends map[string]chan struct{}
}

// open makes the caller's stream the session's only one; the channel closes
// when it has to end.
func (s *streams) open(session string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = map[string]chan struct{}{}
	}
	if before := s.ends[session]; before != nil {
		close(before)
	}
	end := make(chan struct{})
	s.ends[session] = end
	return end
}

// close forgets the caller's stream if it is still the session's.
func (s *streams) close(session string, end chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends[session] == end {
		delete(s.ends, session)
	}
}

// end ends the session's stream, if it has one.
func (s *streams) end(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.ends[session]; end != nil {
		close(end)
		delete(s.ends, session)
	}
}

// broadcast wakes everybody who waits, at once and any number of times.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns the channel that the next send closes.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
