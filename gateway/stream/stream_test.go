package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errLost = errors.New("connection lost")

// client is what one connection brought, in order: data of events, "" for one
// without data, "retry D" and "comment".
type client struct {
	mu     sync.Mutex
	got    []string
	ids    []string
	left   int           // writes until it fails; -1 for never
	arrive bool          // the write that fails arrives
	gate   chan struct{} // a write waits for one value, unless nil
}

func newClient() *client { return &client{left: -1} }

func (c *client) take(id, what string) error {
	if c.gate != nil {
		<-c.gate
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.left == 0
	if !lost || c.arrive {
		c.got = append(c.got, what)
		if id != "" {
			c.ids = append(c.ids, id)
		}
	}
	if lost {
		return errLost
	}
	c.left--
	return nil
}

func (c *client) Event(id string, data []byte) error { return c.take(id, string(data)) }
func (c *client) Comment() error                     { return c.take("", "comment") }

func (c *client) want(t *testing.T, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.got, want) {
		t.Errorf("the client got %q, want %q", c.got, want)
	}
}

func (c *client) lastID() string { return c.ids[len(c.ids)-1] }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func wantClosed(t *testing.T, what string, ch <-chan struct{}, want bool) {
	t.Helper()
	if isClosed(ch) != want {
		t.Errorf("%s is detached: %t, want %t", what, !want, want)
	}
}

// clock is a time that only the test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newHub(config Config) (*Hub, *clock) {
	c := &clock{time.Unix(1_000_000, 0)}
	return New(config, c.now), c
}

func resume(t *testing.T, h *Hub, session, id string, c *client) <-chan struct{} {
	t.Helper()
	s, after, ok := h.Find(session, id)
	if !ok {
		t.Fatalf("event %s is not found", id)
	}
	return s.Attach(c, after, true)
}

func TestClientResumesWhereItWas(t *testing.T) {
	h, _ := newHub(Config{})
	s := h.New("alpha")
	first := newClient()
	gone := s.Attach(first, 0, false)
	s.Prime()
	s.Send([]byte("one"))
	s.Send([]byte("two"))
	first.want(t, "", "one", "two")
	if want := []string{s.ID() + "-1", s.ID() + "-2", s.ID() + "-3"}; !slices.Equal(first.ids, want) {
		t.Errorf("ids are %q, want %q", first.ids, want)
	}
	s.Detach(first)
	wantClosed(t, "the first connection", gone, true)
	s.Send([]byte("three"))

	second := newClient()
	live := resume(t, h, "alpha", first.ids[1], second) // it never saw two
	second.want(t, "two", "three")
	s.Send([]byte("answer"))
	wantClosed(t, "the second connection", live, false)
	s.Finish()
	wantClosed(t, "the second connection", live, true)
	second.want(t, "two", "three", "answer")
	first.want(t, "", "one", "two")

	third := newClient()
	wantClosed(t, "the third connection", resume(t, h, "alpha", second.lastID(), third), true)
	third.want(t)
	fourth := newClient()
	wantClosed(t, "the fourth connection", resume(t, h, "alpha", first.ids[0], fourth), true)
	fourth.want(t, "one", "two", "three", "answer")
	s.Send([]byte("late"))
	s.Prime()
	fourth.want(t, "one", "two", "three", "answer")
}

func TestOnlyIDsOfTheSessionAreFound(t *testing.T) {
	h, at := newHub(Config{Keep: time.Minute})
	s := h.New("alpha")
	c := newClient()
	s.Attach(c, 0, false)
	s.Send([]byte("one"))
	id := c.lastID()
	if got, after, ok := h.Find("alpha", id); got != s || after != 1 || !ok {
		t.Errorf("%s is found as %v, %d, %t", id, got, after, ok)
	}
	for _, r := range id {
		if r <= ' ' || r > '~' {
			t.Errorf("id %q is not visible ASCII", id)
		}
	}
	other := h.New("beta")
	for _, c := range []struct{ session, id string }{
		{"beta", id}, {"", id}, {"alpha ", id},
		{"alpha", other.ID() + "-1"},
		{"alpha", ""}, {"alpha", "-"}, {"alpha", s.ID()}, {"alpha", s.ID() + "-"},
		{"alpha", s.ID() + "-0"}, {"alpha", s.ID() + "-2"}, {"alpha", s.ID() + "-01"}, {"alpha", s.ID() + "-+1"},
		{"alpha", s.ID() + "--1"}, {"alpha", s.ID() + "-1 "}, {"alpha", " " + id}, {"alpha", strings.ToLower(id)},
		{"alpha", s.ID() + "-18446744073709551617"}, {"alpha", "X" + id},
	} {
		if _, _, ok := h.Find(c.session, c.id); ok {
			t.Errorf("session %q finds %q", c.session, c.id)
		}
	}
	s.Finish()
	at.at = at.at.Add(time.Minute - 1)
	if _, _, ok := h.Find("alpha", id); !ok {
		t.Error("a finished stream is gone before its time")
	}
	at.at = at.at.Add(1)
	if _, _, ok := h.Find("alpha", id); ok {
		t.Error("a finished stream is found after its time")
	}
	if got, want := h.Stats(), (Stats{Streams: 1}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
}

func FuzzFind(f *testing.F) {
	h, _ := newHub(Config{})
	s := h.New("alpha")
	for range 12 {
		s.Send(nil)
	}
	f.Add("alpha", "-", "1")
	f.Add("beta", "-", "12")
	f.Add("alpha", "-", "0x1")
	f.Fuzz(func(t *testing.T, session, between, number string) {
		_, after, ok := h.Find(session, s.ID()+between+number)
		good := session == "alpha" && between == "-" && after >= 1 && after <= 12 && number == fmt.Sprint(after)
		if ok != good {
			t.Errorf("session %q, %q: found as %d, %t", session, between+number, after, ok)
		}
	})
}

func TestStandingStreamWaitsForListeners(t *testing.T) {
	h, _ := newHub(Config{Events: 2})
	s := h.Standing("alpha")
	if h.Standing("alpha") != s || h.Standing("beta") == s || h.New("alpha") == s {
		t.Fatal("a session has not one standing stream of its own")
	}
	for _, data := range []string{"one", "two", "three"} {
		s.Send([]byte(data))
	}
	first, second := newClient(), newClient()
	gone := s.Attach(first, 0, false)
	first.want(t, "two", "three")
	live := s.Attach(second, 0, false)
	wantClosed(t, "the first connection", gone, true)
	second.want(t)
	s.Detach(first) // no longer the one that is attached
	wantClosed(t, "the second connection", live, false)
	s.Send([]byte("four"))
	s.KeepAlive()
	second.want(t, "four", "comment")
	first.want(t, "two", "three")
	s.Detach(second)
	s.KeepAlive()
	s.Prime()
	s.Send([]byte("five"))
	third := newClient()
	s.Attach(third, 0, false)
	third.want(t, "five")
	second.want(t, "four", "comment")
	if got := h.Stats().Lost; got != 1 {
		t.Errorf("%d events are lost, want 1", got)
	}
	s.Finish()
	if h.Standing("alpha") == s {
		t.Error("a finished stream stands")
	}
}

func TestEndDropsTheSessionAlone(t *testing.T) {
	h, _ := newHub(Config{})
	post, standing, other := h.New("alpha"), h.Standing("alpha"), h.Standing("beta")
	a, b, c := newClient(), newClient(), newClient()
	goneA, goneB, live := post.Attach(a, 0, false), standing.Attach(b, 0, false), other.Attach(c, 0, false)
	for _, s := range []*Stream{post, standing, other} {
		s.Send([]byte("x"))
	}
	h.End("alpha")
	h.End("nobody")
	wantClosed(t, "the POST", goneA, true)
	wantClosed(t, "the GET", goneB, true)
	wantClosed(t, "the other session", live, false)
	if _, _, ok := h.Find("alpha", a.lastID()); ok {
		t.Error("a stream of an ended session is found")
	}
	for _, s := range []*Stream{post, standing} {
		s.Send([]byte("y"))
		s.Prime()
		s.Finish()
		late := newClient()
		wantClosed(t, "who comes late", s.Attach(late, 0, false), true)
		late.want(t)
	}
	a.want(t, "x")
	c.want(t, "x")
	if got, want := h.Stats(), (Stats{Streams: 1, Held: 1 + overhead}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
	if h.Standing("alpha") == standing {
		t.Error("an ended stream stands")
	}
}

func TestWriteThatFails(t *testing.T) {
	for _, arrives := range []bool{false, true} {
		h, _ := newHub(Config{})
		s := h.New("alpha")
		c := newClient()
		c.left, c.arrive = 1, arrives
		gone := s.Attach(c, 0, false)
		s.Send([]byte("one"))
		wantClosed(t, "the connection", gone, false)
		s.Send([]byte("two"))
		wantClosed(t, "the connection that failed", gone, true)
		s.Send([]byte("three"))
		next := newClient()
		resume(t, h, "alpha", c.lastID(), next)
		if got := append(slices.Clone(c.got), next.got...); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("the write arrives: %t; the client got %q", arrives, got)
		}
		s.Detach(next)
		again := newClient()
		s.Attach(again, 0, false)
		again.want(t)
	}
	h, _ := newHub(Config{})
	s, c := h.New("alpha"), newClient()
	c.left, c.arrive = 0, true
	s.Attach(c, 0, false)
	s.Send([]byte("one"))
	s.Detach(c)
	resume(t, h, "alpha", c.lastID(), newClient())
	again := newClient()
	s.Attach(again, 0, false)
	again.want(t)

	for _, write := range []func(*Stream){(*Stream).KeepAlive, (*Stream).Prime} {
		s := h.New("alpha")
		c := newClient()
		c.left = 0
		gone := s.Attach(c, 0, false)
		write(s)
		wantClosed(t, "the connection that failed", gone, true)
	}
}

func TestResumingBeyondTheEndSkipsNothing(t *testing.T) {
	h, _ := newHub(Config{})
	s := h.New("alpha")
	c := newClient()
	s.Attach(c, 99, true)
	s.Detach(c)
	s.Send([]byte("one"))
	s.Attach(c, 0, false)
	c.want(t, "one")
}

func slowClient() *client {
	c := newClient()
	c.gate = make(chan struct{})
	return c
}

func TestSlowSinkSlowsItsOwnStreamAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(Config{})
		s, other := h.New("alpha"), h.New("alpha")
		slow, fast := slowClient(), newClient()
		gone := s.Attach(slow, 0, false)
		other.Attach(fast, 0, false)
		sent := make(chan string, 2)
		go func() { s.Send([]byte("one")); sent <- "one" }()
		synctest.Wait()
		go func() { s.Send([]byte("two")); sent <- "two" }()
		synctest.Wait()

		other.Send([]byte("free"))
		fast.want(t, "free")
		s.KeepAlive() // does not wait
		if _, _, ok := h.Find("alpha", fast.lastID()); !ok || len(sent) != 0 {
			t.Errorf("found: %t; %d events sent", ok, len(sent))
		}
		slow.gate <- struct{}{}
		slow.gate <- struct{}{}
		synctest.Wait()
		if len(sent) != 2 {
			t.Errorf("%d events sent, want 2", len(sent))
		}
		slow.want(t, "one", "two")
		wantClosed(t, "the slow connection", gone, false)
	})
}

func TestDetachWaitsForTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(Config{})
		s := h.New("alpha")
		slow := slowClient()
		gone := s.Attach(slow, 0, false)
		go s.Send([]byte("one"))
		synctest.Wait()
		left := make(chan struct{})
		go func() { s.Detach(slow); close(left) }()
		synctest.Wait()
		wantClosed(t, "the sink that is written to", gone, false)
		wantClosed(t, "Detach", left, false)
		s.Send([]byte("two")) // nobody is attached any more
		close(slow.gate)
		synctest.Wait()
		wantClosed(t, "the sink", gone, true)
		wantClosed(t, "Detach", left, true)
		slow.want(t, "one")
	})
}

func TestTakingOverASlowSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(Config{})
		s := h.Standing("alpha")
		slow := slowClient()
		gone := s.Attach(slow, 0, false)
		go s.Send([]byte("one"))
		synctest.Wait()
		slow.gate <- struct{}{}
		synctest.Wait()
		go s.Send([]byte("two"))
		synctest.Wait()

		// Who says what it has need not wait.
		next := newClient()
		live := resume(t, h, "alpha", slow.lastID(), next)
		next.want(t, "two")
		wantClosed(t, "the slow sink", gone, false)
		s.Detach(next)
		wantClosed(t, "the next", live, true)

		// A write that is under way is of one event that another has taken.
		fresh := newClient()
		attached := make(chan (<-chan struct{}), 1)
		go func() { attached <- s.Attach(fresh, 0, false) }()
		synctest.Wait()
		if len(attached) != 0 {
			t.Fatal("Attach did not wait for the write to the sink before")
		}
		go s.Send([]byte("three"))
		synctest.Wait()
		close(slow.gate)
		synctest.Wait()
		wantClosed(t, "the slow sink", gone, true)
		wantClosed(t, "the fresh one", <-attached, false)
		fresh.want(t, "three")
	})
}

func TestWriteUnderWayIsNotDeliveredTwice(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := newHub(Config{})
			s := h.Standing("alpha")
			slow, fresh := slowClient(), newClient()
			if fails {
				slow.left = 0
			}
			s.Attach(slow, 0, false)
			go s.Send([]byte("one"))
			synctest.Wait()
			go s.Attach(fresh, 0, false)
			synctest.Wait()
			close(slow.gate)
			synctest.Wait()
			if got := append(slices.Clone(slow.got), fresh.got...); !slices.Equal(got, []string{"one"}) {
				t.Errorf("the write fails: %t; delivered %q", fails, got)
			}
		})
	}
}

func TestEndAndFinishDoNotWait(t *testing.T) {
	for _, end := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := newHub(Config{})
			s := h.New("alpha")
			s.Send([]byte("one"))
			s.Send([]byte("two"))
			slow := slowClient()
			attached := make(chan (<-chan struct{}), 1)
			go func() { attached <- s.Attach(slow, 0, false) }()
			synctest.Wait()
			want := []string{"one"}
			if end {
				h.End("alpha")
			} else {
				s.Finish()
				want = append(want, "two")
			}
			close(slow.gate)
			synctest.Wait()
			wantClosed(t, "the connection", <-attached, true)
			slow.want(t, want...)
		})
	}
}

func TestFinishedStreamOutlivesItsTimeWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, at := newHub(Config{Keep: time.Minute})
		s, other := h.New("alpha"), h.New("alpha")
		s.Send([]byte("one"))
		s.Send([]byte("two"))
		s.Finish()
		other.Finish()
		slow := slowClient()
		go s.Attach(slow, 0, false)
		synctest.Wait()
		at.at = at.at.Add(time.Hour)
		if got := h.Stats().Streams; got != 1 {
			t.Errorf("%d streams while one is read", got)
		}
		close(slow.gate)
		synctest.Wait()
		slow.want(t, "one", "two")
		at.at = at.at.Add(time.Minute)
		if got, want := h.Stats(), (Stats{}); got != want {
			t.Errorf("stats are %+v, want %+v", got, want)
		}
	})
}
