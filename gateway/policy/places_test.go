package policy

import (
	"context"
	"testing"
	"time"
)

// Lists wait for a place, within their deadline, and single questions do not.
func TestListPlaces(t *testing.T) {
	s := load(t, `allow if input.tool.name == "read"`, "", func(c *Config) { c.ListDeadline = 50 * time.Millisecond })
	q := ask(t, `{}`, alpha())
	list := func(ctx context.Context) []Decision {
		return s.AllowEach(ctx, q.Subject, NewItems([]*Item{q.Item, q.Item}), q.Method, q.Request)
	}
	expect := func(ctx context.Context, want string) {
		t.Helper()
		for i, d := range list(ctx) {
			if show(d) != want {
				t.Errorf("item %d: %s, want %s", i, show(d), want)
			}
		}
	}
	for range cap(s.lists) {
		s.lists <- struct{}{}
	}
	expect(context.Background(), "false policy_timeout: the policy did not answer before the deadline")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	expect(gone, "false policy_cancelled: the caller went away before the policy answered")
	if d := s.Allow(context.Background(), q); !d.Allowed {
		t.Errorf("a single question: %s", show(d))
	}
	for range cap(s.lists) {
		<-s.lists
	}
	for range cap(s.lists) + 1 { // no place is lost
		expect(context.Background(), "true")
	}
}
