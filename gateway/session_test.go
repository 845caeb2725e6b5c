package gateway

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// testSessions is what every implementation of Sessions has to hold.
func testSessions(t *testing.T, make func(SessionConfig, func() time.Time) Sessions) {
	ctx := context.Background()
	limits := SessionConfig{Idle: time.Minute, Lifetime: 5 * time.Minute, Max: 4, PerPrincipal: 2}
	begin := func(t *testing.T) (Sessions, *clock) {
		c := &clock{t: time.Unix(1000, 0)}
		return make(limits, c.now), c
	}
	open := func(t *testing.T, s Sessions, principal string) Session {
		t.Helper()
		got, err := s.Open(ctx, Session{Principal: principal, Version: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	gone := func(t *testing.T, s Sessions, id, principal string) {
		t.Helper()
		if _, err := s.Use(ctx, id, principal); !errors.Is(err, errNoSession) {
			t.Errorf("Use(%q, %q) = %v, want errNoSession", id, principal, err)
		}
	}

	t.Run("belongs to the one who opened it", func(t *testing.T) {
		s, _ := begin(t)
		mine := open(t, s, "a")
		gone(t, s, mine.ID, "b")
		if err := s.Close(ctx, mine.ID, "b"); !errors.Is(err, errNoSession) {
			t.Errorf("Close by another = %v", err)
		}
		got, err := s.Use(ctx, mine.ID, "a")
		if err != nil || got.Version != "2025-11-25" || got.Principal != "a" {
			t.Errorf("Use = %+v, %v", got, err)
		}
		gone(t, s, "", "a")
	})
	t.Run("ends when closed", func(t *testing.T) {
		s, _ := begin(t)
		mine := open(t, s, "a")
		if err := s.Close(ctx, mine.ID, "a"); err != nil {
			t.Fatal(err)
		}
		gone(t, s, mine.ID, "a")
		if err := s.Close(ctx, mine.ID, "a"); !errors.Is(err, errNoSession) {
			t.Errorf("second Close = %v", err)
		}
	})
	t.Run("ends when idle, use keeps it", func(t *testing.T) {
		s, c := begin(t)
		used, idle := open(t, s, "a"), open(t, s, "a")
		c.add(50 * time.Second)
		if _, err := s.Use(ctx, used.ID, "a"); err != nil {
			t.Fatal(err)
		}
		c.add(50 * time.Second)
		if _, err := s.Use(ctx, used.ID, "a"); err != nil {
			t.Errorf("the used one: %v", err)
		}
		gone(t, s, idle.ID, "a")
	})
	t.Run("ends at its lifetime however much it is used", func(t *testing.T) {
		s, c := begin(t)
		mine := open(t, s, "a")
		for range 6 {
			c.add(49 * time.Second)
			_, _ = s.Use(ctx, mine.ID, "a")
		}
		c.add(10 * time.Second)
		gone(t, s, mine.ID, "a")
	})
	t.Run("one more of a principal ends its least recent", func(t *testing.T) {
		s, c := begin(t)
		first := open(t, s, "a")
		c.add(time.Second)
		second := open(t, s, "a")
		c.add(time.Second)
		if _, err := s.Use(ctx, first.ID, "a"); err != nil {
			t.Fatal(err)
		}
		third := open(t, s, "a")
		gone(t, s, second.ID, "a")
		for _, id := range []string{first.ID, third.ID} {
			if _, err := s.Use(ctx, id, "a"); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
	t.Run("full refuses others and takes none away", func(t *testing.T) {
		s, c := begin(t)
		var all []Session
		for _, p := range []string{"a", "a", "b", "b"} {
			all = append(all, open(t, s, p))
		}
		if _, err := s.Open(ctx, Session{Principal: "c"}); !errors.Is(err, errSessionsFull) {
			t.Errorf("fifth session = %v, want errSessionsFull", err)
		}
		if _, err := s.Use(ctx, all[0].ID, "a"); err != nil {
			t.Error(err)
		}
		c.add(2 * time.Minute)
		open(t, s, "c")
	})
	t.Run("ids never repeat", func(t *testing.T) {
		s, _ := begin(t)
		seen := map[string]bool{}
		for range 100 {
			id := open(t, s, "a").ID
			if seen[id] || len(id) < 22 {
				t.Fatalf("id %q", id)
			}
			seen[id] = true
		}
	})
}

func TestMemorySessions(t *testing.T) {
	testSessions(t, func(c SessionConfig, now func() time.Time) Sessions { return newMemorySessions(c, now) })
}

func TestCursorsAreSealed(t *testing.T) {
	c := newCursors()
	cursor := c.seal(7, "a", "bc")
	if n, err := c.open(cursor, "a", "bc"); err != nil || n != 7 {
		t.Fatalf("open = %d, %v", n, err)
	}
	flipped := []byte(cursor)
	flipped[0] ^= 1
	for name, try := range map[string]struct {
		cursor string
		parts  []string
	}{
		"another principal": {cursor, []string{"x", "bc"}},
		"parts cut anew":    {cursor, []string{"ab", "c"}},
		"fewer parts":       {cursor, []string{"a"}},
		"empty":             {"", []string{"a", "bc"}},
		"not ours":          {"zzz", []string{"a", "bc"}},
		"changed":           {string(flipped), []string{"a", "bc"}},
		"longer":            {cursor + "AA", []string{"a", "bc"}},
	} {
		if n, err := c.open(try.cursor, try.parts...); !errors.Is(err, errCursor) {
			t.Errorf("%s: open = %d, %v", name, n, err)
		}
	}
	if _, err := newCursors().open(cursor, "a", "bc"); !errors.Is(err, errCursor) {
		t.Errorf("another gateway's cursor: %v", err)
	}
}
