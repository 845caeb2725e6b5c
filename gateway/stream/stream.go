package stream

import (
	"container/list"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"
)

// Stream is one event stream of a session, and the last of its events. Its
// methods may be called by several goroutines at once. Those that write wait
// while the sink that is attached is being written to, and so a slow sink
// slows down its own stream and no other.
type Stream struct {
	hub     *Hub
	session string
	id      string

	// The hub's mutex guards what follows.

	events   []event // held, the oldest first
	held     int64   // their size
	last     uint64  // number of the last event, held or not
	sent     uint64  // number of the last one that a sink took
	conn     *conn   // what is attached, or nil
	leaving  []*conn // detached while being written to
	changed  sync.Cond
	finished bool
	ended    bool

	finishedAt time.Time
	expiry     *list.Element // in hub.finished
	settled    *list.Element // in hub.settled
	at         int           // in hub.holding, or -1
}

// event is one event that is held. Numbers only grow and leave gaps where an
// event was never held.
type event struct {
	n    uint64
	data []byte
}

func (e event) size() int64 { return int64(len(e.data)) + overhead }

// conn is one attachment of a sink. While busy, one goroutine is writing to
// the sink or about to. While a conn that is attached is not busy, nothing that
// is held comes after pos.
type conn struct {
	sink     Sink
	pos      uint64 // number of the last event that it took or that was skipped for it
	busy     bool
	detached chan struct{}
}

// ID returns the part of the stream's event ids that names it.
func (s *Stream) ID() string { return s.id }

// Send holds an event with the given data, which nobody modifies from then on,
// and writes it to the sink that is attached. It waits until the sink has taken
// it, and never fails: a sink that fails is detached, and the event waits for
// the next one. It does nothing once the stream has finished or ended.
func (s *Stream) Send(data []byte) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := s.idle()
	if !ok {
		return
	}
	h.sweep()
	s.last++
	e := event{s.last, data}
	s.hold(e)
	if c == nil {
		h.fit()
		return
	}
	// Written from here and not from what is held: what is larger than the
	// budget still arrives where somebody listens.
	c.busy = true
	h.fit()
	s.deliver(c, e)
	s.release(c)
}

// Prime gives the sink that is attached an event with an id and no data, so
// that the client has something to resume from. It is not held, and nothing
// happens where nobody is attached.
func (s *Stream) Prime() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	c, ok := s.idle()
	if !ok || c == nil {
		return
	}
	s.last++
	c.busy = true
	s.deliver(c, event{n: s.last})
	s.release(c)
}

// KeepAlive writes a comment to the sink that is attached, if any. It does not
// wait where something else is being written: that is life enough.
func (s *Stream) KeepAlive() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	c := s.conn
	if c == nil || c.busy {
		return
	}
	c.busy = true
	s.write(c, c.sink.Comment)
	s.release(c)
}

// Finish says that no more events come. What is held can be resumed for as
// long as the hub keeps it; the sink that is attached is detached once it has
// taken everything. It does not wait, and does nothing when called again.
func (s *Stream) Finish() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.finished || s.ended {
		return
	}
	h.sweep()
	s.finished, s.finishedAt = true, h.now()
	s.expiry = h.finished.PushBack(s)
	h.held += stub
	if of := h.sessions[s.session]; of.standing == s {
		of.standing = nil
	}
	if c := s.conn; c != nil && !c.busy {
		s.replace(nil)
	}
	s.settle()
	s.changed.Broadcast()
	h.fit()
}

// Attach makes sink the one that the stream is written to, in place of the one
// before. It writes what is held and came after the event with number after,
// where resume is true, and else what no sink has taken; then it returns, and
// the stream goes on live. What the hub has dropped is left out without a
// sign.
//
// detached is closed once the sink failed, another took over, the stream
// finished or ended, or Detach was called; the sink is not called any more from
// then on. Without resume Attach waits for a write to the sink before, since
// only that write's end tells whether the event has been taken.
func (s *Stream) Attach(sink Sink, after uint64, resume bool) (detached <-chan struct{}) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &conn{sink: sink, detached: make(chan struct{})}
	if s.ended {
		close(c.detached)
		return c.detached
	}
	c.busy = true
	s.replace(c)
	if resume {
		c.pos = min(after, s.last)
		// A write that failed may have arrived all the same.
		s.taken(c.pos)
	} else {
		for s.conn == c && len(s.leaving) > 0 {
			s.changed.Wait()
		}
		c.pos = s.sent
	}
	for s.conn == c {
		i := sort.Search(len(s.events), func(i int) bool { return s.events[i].n > c.pos })
		if i == len(s.events) {
			break
		}
		s.deliver(c, s.events[i])
	}
	s.release(c)
	return c.detached
}

// Detach says that the connection behind sink is going away; the stream lives
// on. It waits for a write to the sink that is under way: after it the sink is
// not called any more. A sink that is not attached is left alone.
func (s *Stream) Detach(sink Sink) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.conn != nil && s.conn.sink == sink {
		s.replace(nil)
	}
	for slices.ContainsFunc(s.leaving, func(c *conn) bool { return c.sink == sink }) {
		s.changed.Wait()
	}
}

// idle waits until nobody is writing to the sink that is attached, and returns
// it; nil where there is none. ok is false where the stream takes nothing more.
func (s *Stream) idle() (c *conn, ok bool) {
	for !s.finished && !s.ended && s.conn != nil && s.conn.busy {
		s.changed.Wait()
	}
	return s.conn, !s.finished && !s.ended
}

// deliver writes an event to a conn that the caller has made busy.
func (s *Stream) deliver(c *conn, e event) {
	id := s.id + "-" + strconv.FormatUint(e.n, 10)
	if s.write(c, func() error { return c.sink.Event(id, e.data) }) {
		c.pos = e.n
		s.taken(e.n)
	}
}

// taken notes that a client has everything up to the event with number n.
func (s *Stream) taken(n uint64) {
	if n > s.sent {
		s.sent = n
		s.hub.rank(s)
	}
}

// write calls a sink without the lock, and detaches it where it fails.
func (s *Stream) write(c *conn, call func() error) bool {
	s.hub.mu.Unlock()
	err := call()
	s.hub.mu.Lock()
	if err != nil && s.conn == c {
		s.replace(nil)
	}
	return err == nil
}

// release ends the caller's use of a conn that it has made busy.
func (s *Stream) release(c *conn) {
	c.busy = false
	switch {
	case s.conn != c:
		s.leaving = slices.DeleteFunc(s.leaving, func(l *conn) bool { return l == c })
		close(c.detached)
	case s.finished:
		s.replace(nil)
	}
	s.settle()
	s.changed.Broadcast()
}

// replace detaches what is attached, and attaches c, which may be nil.
func (s *Stream) replace(c *conn) {
	before := s.conn
	s.conn = c
	switch {
	case before == nil:
		return
	case before.busy:
		s.leaving = append(s.leaving, before)
	default:
		close(before.detached)
	}
	s.changed.Broadcast()
}

// settle notes that a finished stream is needed by nobody but a client that
// asks for it again.
func (s *Stream) settle() {
	if s.finished && !s.ended && s.settled == nil && (s.sent == s.last || len(s.events) == 0) {
		s.settled = s.hub.settled.PushBack(s)
	}
}

// hold adds an event, in place of the oldest where the stream holds enough.
func (s *Stream) hold(e event) {
	for len(s.events) >= s.hub.config.Events {
		if s.events[0].n > s.sent {
			s.hub.lost++
		}
		s.drop()
	}
	s.events = append(s.events, e)
	s.held += e.size()
	s.hub.held += e.size()
	s.hub.rank(s)
}

// drop forgets the oldest event; the caller ranks the stream anew.
func (s *Stream) drop() {
	size := s.events[0].size()
	s.events[0] = event{}
	s.events = s.events[1:]
	s.held -= size
	s.hub.held -= size
}

// spare is the size of what is dropped before anybody's last event.
func (s *Stream) spare() int64 {
	if n := len(s.events); n > 0 && s.events[n-1].n > s.sent {
		return s.held - s.events[n-1].size()
	}
	return s.held
}
