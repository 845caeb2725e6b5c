package session

import (
	"container/list"
	"sync"
	"time"
)

// held is what one replica remembers of the sessions in Redis that were used
// on it: enough to go on for a while when Redis does not answer, and to say
// which have ended. It is bounded, safe for concurrent use and holds nothing
// that another replica's Use depends on.
type held struct {
	limits Config

	mu      sync.Mutex
	byKey   map[string]*holding
	used    *list.List // of *holding, the least recently used first
	dropped uint64     // how often something was dropped
}

// unnoticed is how many sessions may be held beyond those that there can be:
// they have ended elsewhere, and nobody has used them here since.
const unnoticed = 1024

type holding struct {
	key       string
	s         Session
	confirmed time.Time // when Redis was last asked and had it
	noted     time.Time // when Redis was last told of a use
	inUsed    *list.Element
}

func newHeld(limits Config) *held {
	return &held{limits: limits, byKey: map[string]*holding{}, used: list.New()}
}

// mark is a point in time. A session that is read from Redis later may have
// been dropped by the time it is to be held; confirm tells by the mark.
func (h *held) mark() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dropped
}

// due reports whether Redis is to be told that the session is in use, and
// leaves that to the caller who is told so.
func (h *held) due(key string, now time.Time, every time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byKey[key]
	if e == nil {
		return true
	}
	if now.Sub(e.noted) < every {
		return false
	}
	e.noted = now
	return true
}

// add keeps a session that was opened just now. It returns the ids of those
// that make way: unused here for too long, or one too many.
func (h *held) add(key string, s Session) (ended []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := &holding{key: key, s: s.clone(), confirmed: s.Seen, noted: s.Seen}
	e.inUsed = h.used.PushBack(e)
	h.byKey[key] = e
	return h.sweep(s.Seen)
}

// confirm keeps a session that Redis had when it was asked at s.Seen, which
// was after the mark. It returns the ids of those that make way, as add does.
func (h *held) confirm(key string, s Session, mark uint64) (ended []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byKey[key]
	if e == nil && mark != h.dropped {
		// It may be the one that was dropped, by somebody who knew better.
		return nil
	}
	if e == nil {
		e = &holding{key: key, noted: s.Seen}
		e.inUsed = h.used.PushBack(e)
		h.byKey[key] = e
	}
	h.used.MoveToBack(e.inUsed)
	if !s.Seen.Before(e.confirmed) {
		e.s, e.confirmed = s.clone(), s.Seen
	}
	return h.sweep(s.Seen)
}

func (h *held) sweep(now time.Time) (ended []string) {
	for front := h.used.Front(); front != nil; front = h.used.Front() {
		least := front.Value.(*holding)
		if len(h.byKey) <= h.limits.Max+unnoticed && now.Sub(least.s.Seen) <= h.limits.Idle {
			break
		}
		ended = append(ended, h.remove(least))
	}
	return ended
}

// change alters what is held of a session that was saved.
func (h *held) change(key string, s Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byKey[key]; e != nil {
		e.s.LogLevel, e.s.Subscriptions = s.LogLevel, s.clone().Subscriptions
	}
}

func (h *held) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKey)
}

// use returns a session that Redis had at most grace ago and that is within
// its limits, as used now.
func (h *held) use(key string, now time.Time, grace time.Duration) (Session, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byKey[key]
	if e == nil || now.Sub(e.confirmed) > grace || now.Sub(e.s.Seen) > h.limits.Idle || now.Sub(e.s.Created) > h.limits.Lifetime {
		return Session{}, false
	}
	e.s.Seen = now
	h.used.MoveToBack(e.inUsed)
	return e.s.clone(), true
}

// drop forgets a session and returns its id, or nothing where none is held.
func (h *held) drop(key string) (ended []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byKey[key]; e != nil {
		return []string{h.remove(e)}
	}
	return nil
}

func (h *held) remove(e *holding) (id string) {
	delete(h.byKey, e.key)
	h.used.Remove(e.inUsed)
	h.dropped++
	return e.s.ID
}
