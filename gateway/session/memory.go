package session

import (
	"container/list"
	"context"
	"crypto/rand"
	"sync"
	"time"
)

// Memory keeps sessions in this process: a restart ends them, and no other
// replica knows them.
type Memory struct {
	limits Config
	now    func() time.Time
	ended  func(id string)

	mu      sync.Mutex
	byID    map[string]*kept
	of      map[string]map[string]*kept // by principal, then id
	seen    *list.List                  // of *kept, the least recently used first
	created *list.List                  // of *kept, the oldest first
	gone    []string                    // ids that ended has yet to hear of
}

type kept struct {
	Session
	inSeen, inCreated *list.Element
}

// NewMemory returns an empty store. ended, where not nil, is told once of each
// session that ends, in the call that ends it or finds that it has ended, and
// may call the store.
func NewMemory(limits Config, now func() time.Time, ended func(id string)) *Memory {
	if ended == nil {
		ended = func(string) {}
	}
	return &Memory{
		limits: limits, now: now, ended: ended,
		byID: map[string]*kept{}, of: map[string]map[string]*kept{}, seen: list.New(), created: list.New(),
	}
}

// Open implements Store.
func (m *Memory) Open(_ context.Context, s Session) (Session, error) {
	s = s.clone()
	if _, err := encode(s); err != nil {
		return Session{}, err
	}
	now, leave := m.enter()
	defer leave()
	s.ID, s.Created, s.Seen = rand.Text(), now, now
	for mine := m.of[s.Principal]; len(mine) > 0 && len(mine) >= m.limits.PerPrincipal; {
		m.forget(leastRecent(mine))
	}
	if len(m.byID) >= m.limits.Max {
		return Session{}, ErrFull
	}
	k := &kept{Session: s}
	k.inSeen, k.inCreated = m.seen.PushBack(k), m.created.PushBack(k)
	if m.of[s.Principal] == nil {
		m.of[s.Principal] = map[string]*kept{}
	}
	m.byID[s.ID], m.of[s.Principal][s.ID] = k, k
	return s.clone(), nil
}

// Use implements Store.
func (m *Memory) Use(_ context.Context, id, principal string) (Session, error) {
	now, leave := m.enter()
	defer leave()
	k := m.byID[id]
	if k == nil || k.Principal != principal {
		return Session{}, ErrUnknown
	}
	k.Seen = now
	m.seen.MoveToBack(k.inSeen)
	return k.clone(), nil
}

// Save implements Store.
func (m *Memory) Save(_ context.Context, s Session) error {
	s = s.clone()
	_, leave := m.enter()
	defer leave()
	k := m.byID[s.ID]
	if k == nil || k.Principal != s.Principal {
		return ErrUnknown
	}
	next := k.Session
	next.LogLevel, next.Subscriptions = s.LogLevel, s.Subscriptions
	if _, err := encode(next); err != nil {
		return err
	}
	k.Session = next
	return nil
}

// Close implements Store.
func (m *Memory) Close(_ context.Context, id, principal string) error {
	_, leave := m.enter()
	defer leave()
	k := m.byID[id]
	if k == nil || k.Principal != principal {
		return ErrUnknown
	}
	m.forget(k)
	return nil
}

// Known implements Store.
func (m *Memory) Known() int {
	_, leave := m.enter()
	defer leave()
	return len(m.byID)
}

// enter locks the store, forgets what is over its limits, which the order of
// the lists makes cheap, and returns the time. leave unlocks and tells of what
// was forgotten.
func (m *Memory) enter() (now time.Time, leave func()) {
	m.mu.Lock()
	now = m.now()
	for e := m.seen.Front(); e != nil && now.Sub(e.Value.(*kept).Seen) > m.limits.Idle; e = m.seen.Front() {
		m.forget(e.Value.(*kept))
	}
	for e := m.created.Front(); e != nil && now.Sub(e.Value.(*kept).Created) > m.limits.Lifetime; e = m.created.Front() {
		m.forget(e.Value.(*kept))
	}
	return now, func() {
		gone := m.gone
		m.gone = nil
		m.mu.Unlock()
		for _, id := range gone {
			m.ended(id)
		}
	}
}

func (m *Memory) forget(k *kept) {
	m.seen.Remove(k.inSeen)
	m.created.Remove(k.inCreated)
	delete(m.byID, k.ID)
	delete(m.of[k.Principal], k.ID)
	if len(m.of[k.Principal]) == 0 {
		delete(m.of, k.Principal)
	}
	m.gone = append(m.gone, k.ID)
}

func leastRecent(sessions map[string]*kept) *kept {
	var least *kept
	for _, k := range sessions {
		if least == nil || k.Seen.Before(least.Seen) {
			least = k
		}
	}
	return least
}
