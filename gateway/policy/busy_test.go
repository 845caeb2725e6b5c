package policy

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// B077: 20 clients whose lists never end cost at most their deadline each, end
// at once when they go away, and leave others served.
func TestEndlessPolicies(t *testing.T) {
	s := load(t, slow, "", func(c *Config) { c.ListDeadline = time.Second })
	var items []*Item
	for range 50 {
		items = append(items, item(t, alpha()))
	}
	list := NewItems(items)
	endless, normal := subject(t, `{"sub": "slow"}`), ask(t, `{"sub": "quick"}`, alpha())

	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	var lists, slowest atomic.Int64
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				for i, d := range s.AllowEach(ctx, endless, list, "tools/call", Request{}) {
					if d.Allowed || d.Code != CodeTimeout && d.Code != CodeCancelled {
						t.Errorf("item %d: %s", i, show(d))
					}
				}
				slowest.Store(max(slowest.Load(), int64(time.Since(start))))
				lists.Add(1)
			}
		})
	}
	served, asked := 0, 0
	for lists.Load() < 40 {
		asked++
		switch d := s.Allow(context.Background(), normal); {
		case d.Allowed:
			served++
		case d.Code != CodeTimeout:
			t.Errorf("a normal decision: %s", show(d))
		}
		time.Sleep(time.Millisecond) // a client's own pace
	}
	leave()
	left := time.Now()
	clients.Wait()
	if took := time.Since(left); took > 2*time.Second {
		t.Errorf("evaluations went on for %v after their clients had left", took)
	}
	if took := time.Duration(slowest.Load()); took > 10*time.Second {
		t.Errorf("a list with a second's time took %v", took)
	}
	// Most, because a loaded machine may not get to one in time.
	if served*10 < asked*9 {
		t.Errorf("only %d of %d normal decisions were made in time", served, asked)
	}
	t.Logf("%d of %d normal decisions in time, slowest list %v", served, asked, time.Duration(slowest.Load()))
}
