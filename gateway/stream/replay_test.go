package stream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reader is the client of one stream: it keeps what all its connections
// brought and resumes from the last id, or opens the stream anew while it has
// none.
type reader struct {
	got  []string
	last string
}

func (r *reader) attach(t *rapid.T, h *Hub, s *Stream, c *client) {
	if r.last == "" {
		s.Attach(c, 0, false)
		return
	}
	found, after, ok := h.Find("alpha", r.last)
	if !ok || found != s {
		t.Fatalf("event %s is not found", r.last)
	}
	s.Attach(c, after, true)
}

// collect takes over what a connection has brought since it was last asked.
func (r *reader) collect(c *client) {
	for _, got := range c.got {
		if strings.HasPrefix(got, "event") {
			r.got = append(r.got, got)
		}
	}
	if len(c.ids) > 0 {
		r.last = c.ids[len(c.ids)-1]
	}
	c.got, c.ids = nil, nil
}

// TestEveryEventArrivesOnce holds that over any sequence of connections, which
// fail at any write whether it arrives or not, the client gets each event once
// and in order, and misses exactly those that the ring had lost when it was
// away.
func TestEveryEventArrivesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ring = 5
		h, _ := newHub(Config{Events: ring})
		s := h.New("alpha")
		var r reader
		c := (*client)(nil)
		var sent, want []string // want is what the ring could give so far
		var waiting []string    // sent while the client was away, and in the ring
		sync := func() {
			if c != nil {
				r.collect(c)
			}
			if c != nil && s.conn == nil {
				c = nil
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if !slices.Equal(r.got, want) {
					t.Fatalf("of %q the client got %q, want %q", sent, r.got, want)
				}
			},
			"send": func(t *rapid.T) {
				data := fmt.Sprint("event ", len(sent))
				sent = append(sent, data)
				before := len(r.got)
				s.Send([]byte(data))
				sync()
				if c != nil || len(r.got) > before {
					want = append(want, data)
					// A write that arrived and failed, too, is in the ring.
					return
				}
				if waiting = append(waiting, data); len(waiting) > ring {
					waiting = waiting[1:]
				}
			},
			"prime": func(*rapid.T) { s.Prime(); sync() },
			"alive": func(*rapid.T) { s.KeepAlive(); sync() },
			"leave": func(*rapid.T) {
				if c != nil {
					s.Detach(c)
					sync()
				}
			},
			"connect": func(t *rapid.T) {
				c = newClient()
				c.left, c.arrive = rapid.IntRange(-1, 8).Draw(t, "writes"), rapid.Bool().Draw(t, "arrives")
				before := len(r.got)
				r.attach(t, h, s, c)
				sync()
				n := min(len(r.got)-before, len(waiting))
				if c != nil && n != len(waiting) {
					t.Fatalf("replayed %q, want %q", r.got[before:], waiting)
				}
				want = append(want, waiting[:n]...)
				waiting = waiting[n:]
			},
		})
		for c = nil; c == nil; {
			c = newClient()
			r.attach(t, h, s, c)
			sync()
		}
		want = append(want, waiting...)
		s.Finish()
		if !slices.Equal(r.got, want) {
			t.Fatalf("of %q the client got %q, want %q", sent, r.got, want)
		}
	})
}

// line is a connection that the client can leave at any moment: what is
// written to it from then on fails, and is not seen.
type line struct {
	r     *shared
	after int // writes until it breaks by itself
}

type shared struct {
	mu      sync.Mutex
	current *line
	got     []string
	last    string
}

func (l *line) take(id, data string) error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.current != l || l.after == 0 {
		return errLost
	}
	l.after--
	if id != "" {
		l.r.last = id
	}
	if data != "" {
		l.r.got = append(l.r.got, data)
	}
	return nil
}

func (l *line) Event(id string, data []byte) error { return l.take(id, string(data)) }
func (l *line) Comment() error                     { return l.take("", "") }

// TestEveryEventArrivesOnceAtOnce is TestEveryEventArrivesOnce with all of it
// at the same time.
func TestEveryEventArrivesOnceAtOnce(t *testing.T) {
	const rounds, senders, each = 40, 4, 25
	for round := range rounds {
		h := New(Config{}, time.Now)
		s := h.New("alpha")
		var r shared
		var sending, rest sync.WaitGroup
		for from := range senders {
			sending.Go(func() {
				for i := range each {
					s.Send(fmt.Appendf(nil, "%d:%02d", from, i))
				}
			})
		}
		for _, do := range []func(){s.KeepAlive, s.Prime, func() { h.Stats() }} {
			rest.Go(func() {
				for range 50 {
					do()
				}
			})
		}
		done := make(chan struct{})
		go func() {
			sending.Wait()
			s.Finish()
			close(done)
		}()
		for over := false; !over; {
			over = isClosed(done)
			r.connect(t, h, s, over)
		}
		rest.Wait()

		slices.Sort(r.got)
		var want []string
		for from := range senders {
			for i := range each {
				want = append(want, fmt.Sprintf("%d:%02d", from, i))
			}
		}
		if !slices.Equal(r.got, want) {
			t.Fatalf("round %d: the client got %d of %d events: %q", round, len(r.got), len(want), r.got)
		}
		check(t, h)
	}
}

// connect has a connection for a while; the last one lasts.
func (r *shared) connect(t *testing.T, h *Hub, s *Stream, last bool) {
	l := &line{r: r, after: rand.IntN(30)}
	if last {
		l.after = -1
	}
	r.mu.Lock()
	r.current = l // what is on its way to the one before is lost
	id := r.last
	r.mu.Unlock()
	after, resume := uint64(0), id != ""
	if resume {
		var found *Stream
		var ok bool
		if found, after, ok = h.Find("alpha", id); !ok || found != s {
			t.Fatalf("event %s is not found", id)
		}
	}
	detached := s.Attach(l, after, resume)
	switch {
	case last || rand.IntN(3) == 0:
		<-detached
	case rand.IntN(2) == 0:
		s.Detach(l)
		if !isClosed(detached) {
			t.Error("Detach returned before the sink was detached")
		}
	}
}

// TestEverythingAtOnce is for the race detector, and holds that the books are
// exact afterwards and that every connection was told of its end.
func TestEverythingAtOnce(t *testing.T) {
	h := New(Config{Events: 8, Budget: 8 << 10, Keep: time.Microsecond}, time.Now)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 300 {
				id := "session " + strconv.Itoa(random.IntN(3))
				s := h.Standing(id)
				if random.IntN(2) == 0 {
					s = h.New(id)
				}
				c := newClient()
				c.left = random.IntN(6) - 1
				detached := s.Attach(c, random.Uint64N(4), random.IntN(2) == 0)
				for range random.IntN(6) {
					s.Send(make([]byte, random.IntN(900)))
				}
				s.KeepAlive()
				switch random.IntN(4) {
				case 0:
					h.End(id)
				case 1:
					s.Finish()
				case 2:
					h.Find(id, s.ID()+"-2")
				}
				s.Detach(c)
				if !isClosed(detached) {
					t.Error("a sink that left is not detached")
				}
			}
		})
	}
	all.Wait()
	check(t, h)
	for i := range 3 {
		h.End("session " + strconv.Itoa(i))
	}
	if got := h.Stats(); got.Held != 0 || got.Streams != 0 {
		t.Errorf("after all sessions ended: %+v", got)
	}
}
