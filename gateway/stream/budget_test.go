package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check holds the hub's books against what is there.
func check(t interface{ Fatalf(string, ...any) }, h *Hub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var held int64
	holding, standing, ofSessions := 0, 0, 0
	for id, s := range h.streams {
		var own int64
		for i, e := range s.events {
			own += int64(len(e.data)) + overhead
			if e.n > s.last || i > 0 && e.n <= s.events[i-1].n {
				t.Fatalf("event %d of a stream is number %d", i, e.n)
			}
		}
		if own != s.held || s.id != id || s.ended || len(s.events) > h.config.Events {
			t.Fatalf("stream %+v holds %d", s, own)
		}
		if (s.at >= 0) != (len(s.events) > 0) || s.at >= 0 && h.holding[s.at] != s {
			t.Fatalf("stream with %d events is at %d", len(s.events), s.at)
		}
		if s.finished {
			held += stub
		}
		if (s.expiry != nil) != s.finished || s.settled != nil && (!s.finished || s.sent < s.last && own > 0) || s.finished && s.settled == nil && own == 0 {
			t.Fatalf("stream %+v is on the wrong lists", s)
		}
		if _, ok := h.sessions[s.session].streams[s]; !ok {
			t.Fatalf("stream %+v is not its session's", s)
		}
		if s.at >= 0 {
			holding++
		}
		held += own
	}
	for i := range h.holding {
		if parent := (i - 1) / 2; i > 0 && h.holding.Less(i, parent) {
			t.Fatalf("the heap is out of order at %d", i)
		}
	}
	for _, of := range h.sessions {
		ofSessions += len(of.streams)
		if of.standing != nil {
			standing++
		}
	}
	if held != h.held || h.held > h.config.Budget || holding != len(h.holding) || ofSessions != len(h.streams) || standing > len(h.sessions) {
		t.Fatalf("held %d, counted %d of %d; %d streams of %d hold; %d of sessions", h.held, held, h.config.Budget, len(h.holding), len(h.streams), ofSessions)
	}
}

func data(of string, n int) []byte { return []byte(strings.Repeat(of, n)) }

func heldBy(s *Stream) (list []string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, e := range s.events {
		list = append(list, fmt.Sprintf("%.1s%d", e.data, len(e.data)))
	}
	return list
}

func wantHeld(t *testing.T, s *Stream, want ...string) {
	t.Helper()
	if got := heldBy(s); !slices.Equal(got, want) {
		t.Errorf("the stream holds %q, want %q", got, want)
	}
}

func TestBudgetTakesWhatIsNeededLeastFirst(t *testing.T) {
	const size = 10_000
	h, at := newHub(Config{Budget: 10*size + 3*stub, Keep: time.Minute})
	event := func(of string) []byte { return data(of, size-overhead) }
	deliver := func(s *Stream) {
		c := newClient()
		s.Attach(c, 0, false)
		s.Detach(c)
	}
	done1, done2, unread := h.New("a"), h.New("b"), h.New("c")
	for _, s := range []*Stream{done1, done2, unread} {
		s.Send(event("p"))
		s.Send(event("q"))
		s.Finish()
		at.at = at.at.Add(time.Second)
	}
	deliver(done2) // before the other
	deliver(done1)
	large, small := h.New("d"), h.New("e")
	for _, of := range []string{"1", "2", "3"} {
		large.Send(event(of))
	}
	small.Send(event("s"))
	check(t, h)
	if got := h.Stats(); got.Held != 10*size+3*stub || got.Streams != 5 {
		t.Fatalf("stats are %+v", got)
	}

	small.Send(event("t")) // the first finished and delivered goes, as a whole
	wantHeld(t, done2)
	wantHeld(t, done1, "p9936", "q9936")
	small.Send(event("u"))
	small.Send(event("v")) // the second
	wantHeld(t, done1)
	wantHeld(t, large, "19936", "29936", "39936")
	wantHeld(t, small, "s9936", "t9936", "u9936", "v9936")
	check(t, h)

	// Nothing is delivered and finished any more: the largest loses its oldest.
	small.Send(event("w"))
	small.Send(event("x"))
	wantHeld(t, small, "t9936", "u9936", "v9936", "w9936", "x9936")
	wantHeld(t, unread, "p9936", "q9936")

	// What came last and nobody has got stays while anything else can go.
	big := h.New("f")
	big.Send(data("B", 7*size-overhead))
	wantHeld(t, unread, "q9936")
	wantHeld(t, large, "39936")
	wantHeld(t, small, "x9936")
	wantHeld(t, big, "B69936")
	check(t, h)

	// And of those the largest goes first.
	another := h.New("g")
	another.Send(data("C", 2*size-overhead))
	wantHeld(t, big)
	wantHeld(t, unread, "q9936")
	wantHeld(t, another, "C19936")
	check(t, h)
	c := newClient()
	unread.Attach(c, 0, false)
	c.want(t, string(event("q")))
	if got, want := h.Stats(), (Stats{Streams: 5, Held: 5*size + stub, Lost: 1 + 2 + 5 + 1}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
}

func TestEventBeyondTheBudgetArrivesWhereSomebodyListens(t *testing.T) {
	h, _ := newHub(Config{Budget: 1000})
	listened, unheard := h.New("a"), h.New("a")
	c := newClient()
	listened.Attach(c, 0, false)
	unheard.Send([]byte("small"))
	listened.Send(data("L", 1000))
	listened.Send([]byte("after"))
	c.want(t, string(data("L", 1000)), "after")
	wantHeld(t, listened, "a5")
	unheard.Send(data("U", 1000))
	wantHeld(t, unheard)
	check(t, h)
}

func TestFinishedStreamsAreNotFree(t *testing.T) {
	h, _ := newHub(Config{Budget: 10 * stub})
	for range 100 {
		h.New("a").Finish()
		check(t, h)
	}
	if got, want := h.Stats(), (Stats{Streams: 10, Held: 10 * stub}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
	h, _ = newHub(Config{Budget: stub - 1})
	s := h.New("a")
	s.Send(data("L", stub))
	s.Finish()
	check(t, h)
	if got, want := h.Stats(), (Stats{Lost: 1}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
}

func TestDefaults(t *testing.T) {
	if got, want := New(Config{}, time.Now).config, (Config{Events: 256, Budget: 64 << 20, Keep: time.Minute}); got != want {
		t.Errorf("defaults are %+v, want %+v", got, want)
	}
	h, _ := newHub(Config{})
	s := h.New("a")
	for range 300 {
		s.Send(nil)
	}
	if got, want := h.Stats(), (Stats{Streams: 1, Held: 256 * overhead, Lost: 44}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
}

// TestBooksAreExact does anything in any order, with sinks that fail at any
// time, and holds the books after each step.
func TestBooksAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, at := newHub(Config{Events: 4, Budget: 1500, Keep: time.Minute})
		sessions := rapid.SampledFrom([]string{"a", "b", "c"})
		var streams []*Stream
		attached := map[*Stream]*client{}
		pick := func(t *rapid.T) *Stream {
			if len(streams) == 0 {
				t.Skip("no streams")
			}
			return rapid.SampledFrom(streams).Draw(t, "stream")
		}
		t.Repeat(map[string]func(*rapid.T){
			"":         func(t *rapid.T) { check(t, h) },
			"new":      func(t *rapid.T) { streams = append(streams, h.New(sessions.Draw(t, "session"))) },
			"standing": func(t *rapid.T) { streams = append(streams, h.Standing(sessions.Draw(t, "session"))) },
			"send":     func(t *rapid.T) { pick(t).Send(make([]byte, rapid.IntRange(0, 600).Draw(t, "size"))) },
			"prime":    func(t *rapid.T) { pick(t).Prime() },
			"alive":    func(t *rapid.T) { pick(t).KeepAlive() },
			"finish":   func(t *rapid.T) { pick(t).Finish() },
			"end":      func(t *rapid.T) { h.End(sessions.Draw(t, "session")) },
			"time":     func(t *rapid.T) { at.at = at.at.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "s")) * time.Second) },
			"attach": func(t *rapid.T) {
				s, c := pick(t), newClient()
				c.left = rapid.IntRange(-1, 5).Draw(t, "writes")
				s.Attach(c, rapid.Uint64Range(0, 20).Draw(t, "after"), rapid.Bool().Draw(t, "resume"))
				attached[s] = c
			},
			"detach": func(t *rapid.T) {
				s := pick(t)
				if c := attached[s]; c != nil {
					s.Detach(c)
				}
			},
		})
		for _, id := range []string{"a", "b", "c"} {
			h.End(id)
		}
		if got := h.Stats(); got.Held != 0 || got.Streams != 0 || len(h.sessions) != 0 || h.finished.Len() != 0 || h.settled.Len() != 0 || len(h.holding) != 0 {
			t.Fatalf("after all sessions ended: %+v, %d sessions, %d finished, %d settled", got, len(h.sessions), h.finished.Len(), h.settled.Len())
		}
	})
}
