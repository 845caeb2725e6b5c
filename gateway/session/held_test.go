package session

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

func at(seconds int) time.Time { return newClock().t.Add(time.Duration(seconds) * time.Second) }

func holdingOf(id string, created, seen int) Session {
	return Session{ID: id, Created: at(created), Seen: at(seen)}
}

// A session that was read before it was dropped is not held again: only the
// next use, which asks Redis, knows.
func TestHeldAfterADrop(t *testing.T) {
	h := newHeld(limits)
	h.add("k", holdingOf("i", 0, 0))
	h.add("other", holdingOf("o", 0, 0))
	before := h.mark()
	if ids := h.drop("k"); !slices.Equal(ids, []string{"i"}) {
		t.Errorf("dropped %q", ids)
	}
	h.confirm("k", holdingOf("i", 0, 1), before)
	if s, ok := h.use("k", at(1), grace); ok {
		t.Errorf("held %+v", s)
	}
	h.confirm("other", holdingOf("o", 0, 31), before)
	if _, ok := h.use("other", at(60), grace); !ok {
		t.Error("what was held all along is not confirmed")
	}
	if ids := h.drop("k"); ids != nil {
		t.Errorf("dropped twice: %q", ids)
	}
	h.confirm("k", holdingOf("i", 0, 31), h.mark())
	if _, ok := h.use("k", at(31), grace); !ok {
		t.Error("what Redis had later is not held")
	}
}

// Uses that overtake each other leave the latest.
func TestHeldKeepsTheLatest(t *testing.T) {
	h := newHeld(limits)
	h.add("k", holdingOf("i", 0, 0))
	late, early := holdingOf("i", 0, 9), holdingOf("i", 0, 5)
	late.LogLevel, early.LogLevel = "late", "early"
	h.confirm("k", late, h.mark())
	h.confirm("k", early, h.mark())
	if s, ok := h.use("k", at(9+30), grace); !ok || s.LogLevel != "late" {
		t.Errorf("held %+v, %v", s, ok)
	}
}

func TestHeldBounds(t *testing.T) {
	h := newHeld(Config{Idle: 20 * time.Second, Lifetime: 25 * time.Second, Max: 1})
	h.add("k", holdingOf("i", 0, 0))
	if _, ok := h.use("k", at(21), grace); ok {
		t.Error("used although idle")
	}
	for _, second := range []int{10, 20, 25} {
		if s, ok := h.use("k", at(second), grace); !ok || !s.Seen.Equal(at(second)) {
			t.Errorf("second %d: %+v, %v", second, s, ok)
		}
	}
	if _, ok := h.use("k", at(26), grace); ok {
		t.Error("used beyond its lifetime")
	}
	for i := range unnoticed {
		if ids := h.add(fmt.Sprint(i), holdingOf(fmt.Sprint("i", i), 26, 26)); len(ids) != 0 {
			t.Fatalf("%d held, ended %q", i+1, ids)
		}
	}
	if ids := h.add("more", holdingOf("more", 26, 26)); !slices.Equal(ids, []string{"i"}) {
		t.Errorf("one too many ended %q", ids)
	}
	if ids := h.add("late", holdingOf("late", 47, 47)); len(ids) != unnoticed+1 {
		t.Errorf("%d ended as idle", len(ids))
	}
	if len(h.byKey) != 1 || h.used.Len() != 1 {
		t.Errorf("%d and %d left", len(h.byKey), h.used.Len())
	}
}

func TestHeldIsTold(t *testing.T) {
	h := newHeld(limits)
	if !h.due("k", at(0), time.Second) {
		t.Error("what is not held is not due")
	}
	h.add("k", holdingOf("i", 0, 0))
	var due []int
	for second := range 10 {
		if h.due("k", at(second), 3*time.Second) {
			due = append(due, second)
		}
	}
	if !slices.Equal(due, []int{3, 6, 9}) {
		t.Errorf("due at %v", due)
	}
}

func TestAlarmsDoNotRepeatThemselves(t *testing.T) {
	log, c := &text{}, newClock()
	a := newAlarms(slog.New(slog.NewTextHandler(log, nil)), c.now)
	for range 3 {
		a.raise(slog.LevelError, "one", "key", "k")
	}
	a.raise(slog.LevelWarn, "two")
	c.add(quietly)
	a.raise(slog.LevelError, "one", "key", "k")
	var got []string
	for line := range strings.Lines(log.String()) {
		_, after, _ := strings.Cut(strings.TrimSpace(line), " ")
		got = append(got, after)
	}
	want := []string{
		"level=ERROR msg=one key=k unreported=0", "level=WARN msg=two unreported=0", "level=ERROR msg=one key=k unreported=2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged\n%s", strings.Join(got, "\n"))
	}
}

func TestAlarmsOfAnOutage(t *testing.T) {
	log, c := &text{}, newClock()
	a := newAlarms(slog.New(slog.NewTextHandler(log, nil)), c.now)
	a.found()
	for range 3 { // a Redis that flaps
		for range 5 {
			a.lost(fmt.Errorf("why"))
		}
		if p := a.problems(); !slices.Equal(p, []string{"sessions in Redis cannot be reached: why"}) {
			t.Errorf("problems %q", p)
		}
		a.found()
		if p := a.problems(); p != nil {
			t.Errorf("problems %q", p)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}
