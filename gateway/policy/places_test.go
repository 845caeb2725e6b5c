package policy

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Lists wait for a place, within their deadline, and single questions do not.
func TestListPlaces(t *testing.T) {
	s := load(t, `allow if input.tool.name == "read"`, "", func(c *Config) { c.ListDeadline = 50 * time.Millisecond })
	q := ask(t, `{}`, alpha())
	expect := func(ctx context.Context, want, unfinished string) {
		t.Helper()
		answers := s.AllowEach(ctx, q.Subject, NewItems([]*Item{q.Item, q.Item}), q.Method, q.Request)
		decisions, code := unpack(answers), answers.Unfinished
		if code != unfinished {
			t.Errorf("unfinished for %q, want %q", code, unfinished)
		}
		for i, d := range decisions {
			if show(d) != want {
				t.Errorf("item %d: %s, want %s", i, show(d), want)
			}
		}
	}
	for range cap(s.places) {
		s.places <- struct{}{}
	}
	expect(context.Background(), "false policy_timeout: the policy did not answer before the deadline", CodeTimeout)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	expect(gone, "false policy_cancelled: the caller went away before the policy answered", CodeCancelled)
	each(t, s, q.Subject, nil) // nothing to wait for
	if d := s.Allow(context.Background(), q); !d.Allowed {
		t.Errorf("a single question: %s", show(d))
	}
	for range cap(s.places) {
		<-s.places
	}
	for range cap(s.places) + 1 { // no place is lost
		expect(context.Background(), "true", "")
	}
}

// Questions with large arguments wait for a place, too, and small ones do not:
// 32 clients with 3.5 MB of arguments each took 4 GB.
func TestLargeArgumentsPlaces(t *testing.T) {
	s := load(t, "allow := true\n\ncall if input.arguments.text\n\nreasons contains \"said\" if input.arguments.text", "",
		func(c *Config) { c.Deadline = 50 * time.Millisecond })
	q := ask(t, `{}`, alpha())
	small := jsontext.Value(`{"text": "x"}`)
	large := jsontext.Value(`{"text": "` + strings.Repeat("x", largeArguments) + `"}`)
	expect := func(arguments jsontext.Value, want string) {
		t.Helper()
		if d := s.Call(context.Background(), q, arguments); show(d) != want {
			t.Errorf("call: %s, want %s", show(d), want)
		}
		if e := s.Explain(context.Background(), q, arguments); (e.Err == nil) != (want == "true") {
			t.Errorf("explain: %v", e.Err)
		}
	}
	for range cap(s.large) {
		s.large <- struct{}{}
	}
	expect(large, "false policy_timeout: the policy did not answer before the deadline")
	expect(small, "true")
	for range cap(s.large) {
		<-s.large
	}
	for range cap(s.large) + 1 { // no place is lost
		expect(large, "true")
	}
}
