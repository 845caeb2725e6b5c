// Package stream holds the event streams of legacy-era sessions, which outlive
// the connections that carry them: a client that lost its connection resumes
// with Last-Event-ID and gets what it missed of that stream, and of no other.
package stream

import (
	"container/heap"
	"container/list"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Sink is one HTTP response that carries a stream for a while. It is
// comparable, as a pointer is. The stream calls it from whichever goroutine has
// something to write, one call at a time; a call ends by itself within a
// deadline of the sink's own, does not call the stream or its hub, and does not
// panic. An error says that the connection is lost. data is only lent.
type Sink interface {
	// Event writes an event; data may be empty.
	Event(id string, data []byte) error
	// Comment writes a sign of life that is no event.
	Comment() error
}

// Config bounds what is held for clients that may come back. What is zero or
// less stands for the default.
type Config struct {
	Events int           // held per stream; 256
	Budget int64         // bytes held over all streams, 64 for each event and 512 for each finished stream included; 64 MiB
	Keep   time.Duration // how long a finished stream can be resumed; 1m
}

// What an event counts for beside its data, and a finished stream beside its
// events: what is empty is not free.
const (
	overhead = 64
	stub     = 512
)

// Hub is the streams of all sessions. Its methods, and those of its streams,
// may be called by several goroutines at once. None of the hub's waits for a
// sink.
//
// What is held over the budget goes in this order: whole streams that are
// finished and delivered, in the order in which they became so; then events,
// the oldest of the stream that holds the most, except for a stream's last
// event that nobody has got; then those last events, the largest first.
type Hub struct {
	config Config
	now    func() time.Time

	// mu guards the streams, too: what happens under it is short, and no sink
	// is called under it.
	mu       sync.Mutex
	streams  map[string]*Stream
	sessions map[string]*session
	finished *list.List // *Stream, by the time they finished
	settled  *list.List // *Stream, finished with nothing to deliver, by the time they became so
	holding  holders
	held     int64
	lost     uint64
}

type session struct {
	streams  map[*Stream]struct{}
	standing *Stream
}

// Stats is the hub's state at one moment.
type Stats struct {
	Streams int    // that can be found or written to
	Held    int64  // bytes that count against the budget
	Lost    uint64 // events that were dropped before anybody got them, since the start; those of ended sessions are not lost
}

// New returns a hub without streams. now tells the time; it is called under a
// lock and does not call the hub.
func New(config Config, now func() time.Time) *Hub {
	if config.Events <= 0 {
		config.Events = 256
	}
	if config.Budget <= 0 {
		config.Budget = 64 << 20
	}
	if config.Keep <= 0 {
		config.Keep = time.Minute
	}
	return &Hub{
		config: config, now: now,
		streams: map[string]*Stream{}, sessions: map[string]*session{},
		finished: list.New(), settled: list.New(),
	}
}

// New returns a new stream of the session, for the answer to one POST. It
// stays until it is finished and its time is over, or its session ends.
// Whoever calls this for a session that has ended ends it again.
func (h *Hub) New(id string) *Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep()
	return h.add(id)
}

// Standing returns the session's one stream that belongs to no POST, made when
// it is first asked for, or asked for after the last one finished. Of ended
// sessions it is as with New.
func (h *Hub) Standing(id string) *Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep()
	if s := h.sessions[id]; s != nil && s.standing != nil {
		return s.standing
	}
	s := h.add(id)
	h.sessions[id].standing = s
	return s
}

func (h *Hub) add(id string) *Stream {
	s := &Stream{hub: h, session: id, id: rand.Text(), at: -1}
	s.changed.L = &h.mu
	h.streams[s.id] = s
	of := h.sessions[id]
	if of == nil {
		of = &session{streams: map[*Stream]struct{}{}}
		h.sessions[id] = of
	}
	of.streams[s] = struct{}{}
	return s
}

// Find returns the stream that the event with the given id belongs to, and
// where to resume it. ok is true only for an id that a stream of this very
// session has given out, while that stream is held.
func (h *Hub) Find(id, lastEventID string) (s *Stream, after uint64, ok bool) {
	name, number, found := strings.Cut(lastEventID, "-")
	if !found {
		return nil, 0, false
	}
	after, err := strconv.ParseUint(number, 10, 64)
	if err != nil || strconv.FormatUint(after, 10) != number {
		return nil, 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep()
	s = h.streams[name]
	if s == nil || s.session != id || after == 0 || after > s.last {
		return nil, 0, false
	}
	return s, after, true
}

// End drops all streams of the session. Sinks that are attached are detached:
// at once, or as soon as the write that is under way returns.
func (h *Hub) End(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.sessions[id]
	if of == nil {
		return
	}
	for s := range of.streams {
		h.remove(s)
	}
}

// Stats returns the state of now.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep()
	return Stats{Streams: len(h.streams), Held: h.held, Lost: h.lost}
}

// remove forgets a stream for good.
func (h *Hub) remove(s *Stream) {
	s.ended = true
	s.replace(nil)
	for len(s.events) > 0 {
		s.drop()
	}
	h.rank(s)
	if s.finished {
		h.held -= stub
		h.finished.Remove(s.expiry)
	}
	if s.settled != nil {
		h.settled.Remove(s.settled)
	}
	delete(h.streams, s.id)
	// A standing stream has finished, or goes with its whole session.
	of := h.sessions[s.session]
	delete(of.streams, s)
	if len(of.streams) == 0 {
		delete(h.sessions, s.session)
	}
}

// sweep forgets the finished streams whose time is over.
func (h *Hub) sweep() {
	for e := h.finished.Front(); e != nil; e = h.finished.Front() {
		s := e.Value.(*Stream)
		now := h.now()
		if now.Sub(s.finishedAt) < h.config.Keep {
			return
		}
		if s.conn == nil {
			h.remove(s)
			continue
		}
		// Somebody is being given the rest of it.
		s.finishedAt = now
		h.finished.MoveToBack(e)
	}
}

// fit brings what is held within the budget. Every finished stream is settled
// or holds events, so while anything is counted there is something to drop.
func (h *Hub) fit() {
	for h.held > h.config.Budget {
		if e := h.settled.Front(); e != nil {
			h.remove(e.Value.(*Stream))
			continue
		}
		s := h.holding[0]
		if s.events[0].n > s.sent {
			h.lost++
		}
		s.drop()
		h.rank(s)
		s.settle()
	}
}

// rank puts a stream into its place after what it holds or has sent changed.
func (h *Hub) rank(s *Stream) {
	switch {
	case s.at < 0 && len(s.events) > 0:
		heap.Push(&h.holding, s)
	case s.at >= 0 && len(s.events) == 0:
		heap.Remove(&h.holding, s.at)
	case s.at >= 0:
		heap.Fix(&h.holding, s.at)
	}
}

// holders is a heap of the streams that hold events, the one that loses the
// next at the front.
type holders []*Stream

func (q holders) Len() int { return len(q) }

func (q holders) Less(i, j int) bool {
	a, b := q[i], q[j]
	if x, y := a.spare(), b.spare(); x != y {
		return x > y
	}
	return a.held > b.held
}

func (q holders) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *holders) Push(x any) {
	s := x.(*Stream)
	s.at = len(*q)
	*q = append(*q, s)
}

func (q *holders) Pop() any {
	old := *q
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	s.at = -1
	return s
}
