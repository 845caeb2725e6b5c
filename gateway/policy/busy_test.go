package policy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// B077: 20 clients whose lists never end cost at most their deadline each, end
// at once when they go away, and leave others served.
func TestEndlessPolicies(t *testing.T) {
	s := load(t, slow, "", uncached, func(c *Config) { c.Deadline, c.ListDeadline = 10*time.Second, time.Second })
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
				answers := s.AllowEach(ctx, endless, list, "tools/call", Request{})
				decisions, unfinished := unpack(answers), answers.Unfinished
				if unfinished != CodeTimeout && unfinished != CodeCancelled {
					t.Errorf("a list that does not end is unfinished for %q", unfinished)
				}
				for i, d := range decisions {
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
	if took := time.Since(left); took > 20*time.Second {
		t.Errorf("evaluations went on for %v after their clients had left", took)
	}
	if took := time.Duration(slowest.Load()); took > 20*time.Second {
		t.Errorf("a list with a second's time took %v", took)
	}
	// Most, because a loaded machine may not get to one in time.
	if served*10 < asked*9 {
		t.Errorf("only %d of %d normal decisions were made in time", served, asked)
	}
	t.Logf("%d of %d normal decisions in time, slowest list %v", served, asked, time.Duration(slowest.Load()))
}

// A policy that waits for a server, where the operator lets it, waits no longer
// than its deadline.
func TestEndlessServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := load(t, fmt.Sprintf(`allow if http.send({"method": "get", "url": "http://%s/"}).status_code == 200`, silent.Addr()), "",
		func(c *Config) { c.Deadline = 50 * time.Millisecond; c.InsecureBuiltins = []string{"http.send"} })
	start := time.Now()
	d := s.Allow(context.Background(), ask(t, `{}`, alpha()))
	if d.Allowed || d.Code != CodeTimeout {
		t.Errorf("got %s", show(d))
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("50ms took %v", took)
	}
}

// No built-in that is on reaches the network, remote JSON schemas included.
func TestNoNetwork(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = w.Write([]byte(`{"type": "object"}`))
	}))
	defer server.Close()
	rego := fmt.Sprintf("allow if json.match_schema(input.claims, {\"$ref\": %q})[0]\n\ncall if json.verify_schema({\"$ref\": %q})[0]", server.URL, server.URL)
	s := load(t, rego, "")
	q := ask(t, `{}`, alpha())
	if d := s.Allow(context.Background(), q); d.Allowed {
		t.Error("allowed by a schema from the network")
	}
	if d := s.Call(context.Background(), q, nil); d.Allowed {
		t.Error("a schema from the network is valid")
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
