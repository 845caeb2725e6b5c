package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/stream"
)

// get serves a stream of the legacy era: the rest of one that was cut off, or
// the session's own, which tells the client what belongs to none of its
// requests. A session has one such stream; opening another ends the one before.
func (x *exchange) get() *fault {
	if _, sse := accepts(x.r.Header); !sse {
		return faultAccept()
	}
	if f := x.findSession(); f != nil {
		return f
	}
	own := x.talk.stream()
	if own == nil {
		return faultSession(session.ErrUnknown)
	}
	s, after, resume := x.g.hub.Find(x.session.ID, x.r.Header.Get("Last-Event-ID"))
	if !resume {
		s = own
	}
	x.answer.resumable = nil // it is a stream that is there
	x.answer.stream()
	detached := s.Attach(&x.answer, after, resume)
	defer s.Detach(&x.answer)
	if s != own {
		x.lasts(detached, func() bool { s.KeepAlive(); return true }, func() bool { return true })
		return nil
	}
	x.watch(s, detached)
	return nil
}

// lasts runs until the client leaves, the token expires, the gateway drains or
// end is closed. tick is called now and then, change at once and whenever the
// policy or the catalog is another one; either ends it by false.
func (x *exchange) lasts(end <-chan struct{}, tick, change func() bool) {
	var expires <-chan time.Time // never, for the anonymous principal
	if at := x.principal.Expires; !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		expires = timer.C
	}
	alive := time.NewTicker(keepAliveEvery)
	defer alive.Stop()
	changes := x.g.changes.next()
	for on := change(); on; {
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
			on = tick()
		case <-changes:
			changes = x.g.changes.next()
			on = change()
		}
	}
}

// watch keeps the session's own stream.
func (x *exchange) watch(s *stream.Stream, detached <-chan struct{}) {
	judge := x.judge()
	x.talk.opened(judge)
	defer x.talk.closed(judge)
	w := &watcher{x: x, wanted: everyList, seen: x.talk.knows()}
	tell := func() bool {
		for _, method := range w.changed() {
			s.Send(mcp.NewRequest(mcp.ID{}, method, nil).Append(nil))
		}
		x.talk.know(w.seen)
		return true
	}
	x.lasts(detached, func() bool {
		// A session with an open stream is in use; one that ended for its age
		// takes its stream along.
		if _, err := x.g.sessions.Use(x.ctx, x.session.ID, x.owner()); errors.Is(err, session.ErrUnknown) {
			return false
		}
		x.talk.use()
		s.KeepAlive()
		return !w.missed || tell()
	}, tell)
}

// prints identify what a principal may see of each list.
type prints [listings]print

type print struct {
	sum   [sha256.Size]byte
	known bool
}

var everyList = [listings]bool{true, true, true, true}

// watcher finds out which lists have changed for one client.
type watcher struct {
	x      *exchange
	wanted [listings]bool
	seen   prints
	missed bool // something could not be decided
}

// changed returns the notifications that are due: of lists that are known to be
// other ones than before.
func (w *watcher) changed() (methods []string) {
	after := w.x.prints(w.wanted)
	w.missed = false
	for list := range listings {
		switch {
		case !w.wanted[list]:
			continue
		case !after[list].known:
			w.missed = true
			continue
		case w.seen[list].known && w.seen[list] != after[list] && !slices.Contains(methods, lists[list].changed):
			methods = append(methods, lists[list].changed)
		}
		w.seen[list] = after[list]
	}
	return methods
}

// prints looks at the lists that are wanted. Those that cannot be decided now,
// or not in time, stay unknown.
func (x *exchange) prints(wanted [listings]bool) (p prints) {
	now, f := x.pin()
	if f != nil {
		return p
	}
	for list := range listings {
		if !wanted[list] {
			continue
		}
		if len(now.catalog.shelf(x.server).lists[list].offers) == 0 {
			p[list].known = true
			continue
		}
		if seen, f := x.see(now, list); f == nil {
			p[list] = now.catalog.shelf(x.server).print(list, seen)
		}
	}
	x.hand() // a stream is long: its records must neither wait for its end nor pile up
	return p
}

// print identifies what is visible of a list. A server that announces a change
// may have the same list as before, with something else behind it: those who
// see all that it has are told of that as they would be without a gateway, and
// nobody learns anything of what is hidden.
func (s shelf) print(list listing, seen *visible) print {
	p := print{known: true}
	if len(seen.offers) == 0 {
		return p
	}
	h := sha256.New()
	hidden := map[string]int{}
	for _, o := range s.lists[list].offers {
		hidden[o.server]++
	}
	h.Write([]byte{byte(seen.mark)})
	for _, o := range seen.offers {
		h.Write(o.digest[:])
		hidden[o.server]--
	}
	for _, site := range s.sites {
		if n, some := hidden[site.name]; some && n == 0 {
			_ = binary.Write(h, binary.BigEndian, site.state.Announced[list]) // a hash takes everything
		}
	}
	h.Sum(p.sum[:0])
	return p
}

// endSession serves DELETE.
func (x *exchange) endSession() *fault {
	if f := x.findSession(); f != nil {
		return f
	}
	if err := x.g.sessions.Close(x.ctx, x.session.ID, x.owner()); err != nil {
		return faultSession(err)
	}
	x.g.endConversation(x.session.ID)
	x.answer.empty(http.StatusNoContent)
	return nil
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
