package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// A short soak. The gateway's process is this test's own program, so the race
// detector looks at it, too.
func TestShortSoak(t *testing.T) {
	o, err := readOptions(strings.Fields("-sessions 16 -principals 4 -for 12s -pace 400ms -call-timeout 3s -idle 2s -fate 5s -every 1s"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.keep, o.polite, o.settled = t.TempDir(), true, 3*time.Second
	r, err := soak(t.Context(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.write(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.clean(); err != nil {
		t.Errorf("%v\n%s", err, text.String())
	}
	// Sessions with servers idle on for a minute; those of clients do not.
	if peak := median(r.looks, quantities[0].of); float64(r.after.Goroutines-r.before.Goroutines) > peak/2 {
		t.Errorf("%d goroutines before the clients, %.0f with them and %d after them", r.before.Goroutines, peak, r.after.Goroutines)
	}
	// What was never done proves nothing.
	for _, kind := range []string{
		"legacy call: answer", "modern call: answer", "legacy session: begun", "elicitation", "modern call: input_required", "progress",
		"legacy: resource update of legacy", "modern: resource update of modern", "log message of the call", "legacy session: ended",
		"notifications/subscriptions/acknowledged",
	} {
		if r.counts[kind] == 0 {
			t.Errorf("%q has not occurred once", kind)
		}
	}
	failures := 0
	for kind, n := range r.counts {
		if strings.Contains(kind, ": backend_") {
			failures += n
		}
	}
	if failures == 0 {
		t.Error("no server failed")
	}
}

// The judges are judged: what is not as it should be is a fault.
func TestFaults(t *testing.T) {
	c := &client{crowd: &crowd{book: newBook(), servers: []string{"legacy", "stdio"}}, principal: "p1", name: "p1.s2"}
	structured := func(mark, server, owner string) (a answer) {
		a.Structured.Mark, a.Structured.Server, a.Structured.Owner = mark, server, owner
		return a
	}
	told := func(method string, params object) message {
		return message{Method: method, Params: encode(params)}
	}
	progress := func(token int, mark string) message {
		return told("notifications/progress", object{"progressToken": token, "message": mark})
	}
	final := func(raw string) reply {
		m, err := one([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return reply{status: 200, final: &m}
	}
	broken := `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"m","data":{"server":"s","reason":"REASON"}}}`
	for _, k := range []struct {
		what string
		do   func()
		bad  bool
	}{
		{"the right answer", func() { c.right("legacy call", "p1.s2.7", "legacy", structured("p1.s2.7", "legacy", "p1.s2")) }, false},
		{"another call's answer", func() { c.right("legacy call", "p1.s2.7", "legacy", structured("p1.s2.8", "legacy", "p1.s2")) }, true},
		{"another server's answer", func() { c.right("legacy call", "p1.s2.7", "legacy", structured("p1.s2.7", "old", "p1.s2")) }, true},
		{"another session's server", func() { c.right("legacy call", "p1.s2.7", "legacy", structured("p1.s2.7", "legacy", "p1.s3")) }, true},
		{"the principal's server", func() { c.right("modern call", "p1.s2.7", "legacy", structured("p1.s2.7", "legacy", "p1.s3")) }, false},
		{"another principal's server", func() { c.right("modern call", "p1.s2.7", "legacy", structured("p1.s2.7", "legacy", "p11.s3")) }, true},
		{"progress", func() { c.during("legacy call", "p1.s2.7", "stdio", 7, progress(7, "p1.s2.7")) }, false},
		{"progress of another token", func() { c.during("legacy call", "p1.s2.7", "stdio", 7, progress(8, "p1.s2.7")) }, true},
		{"another call's progress", func() { c.during("legacy call", "p1.s2.7", "stdio", 7, progress(7, "p1.s2.8")) }, true},
		{"a log message of stdio", func() {
			c.during("legacy call", "p1.s2.7", "stdio", 7, told("notifications/message", object{"data": "p1.s2.8"}))
		}, false},
		{"another session's", func() {
			c.during("legacy call", "p1.s2.7", "stdio", 7, told("notifications/message", object{"data": "p1.s22.8"}))
		}, true},
		{"another call's", func() {
			c.during("legacy call", "p1.s2.7", "legacy", 7, told("notifications/message", object{"data": "p1.s2.8"}))
		}, true},
		{"an update", func() { c.updated("legacy", "note://stdio/p1.s2") }, false},
		{"another's update", func() { c.updated("legacy", "note://stdio/p1.s22") }, true},
		{"poison", func() { _, _ = c.parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"mark":"poison"}}`)) }, true},
		{"an answer to another id", func() { c.ended("call", 7, final(`{"jsonrpc":"2.0","id":8,"result":{}}`)) }, true},
		{"no answer", func() { c.ended("call", 7, reply{status: 200}) }, true},
		{"hung", func() { c.ended("call", 7, reply{err: context.DeadlineExceeded}) }, true},
		{"a server's failure", func() { c.ended("call", 7, final(strings.ReplaceAll(broken, "REASON", "backend_broken"))) }, false},
		{"another failure", func() { c.ended("call", 7, final(strings.ReplaceAll(broken, "REASON", "x"))) }, true},
		{"unknown tool", func() { c.ended("call", 7, final(`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"m"}}`)) }, true},
	} {
		_, before := c.crowd.told()
		k.do()
		if _, after := c.crowd.told(); (after > before) != k.bad {
			t.Errorf("%s: %d faults more, want some: %v", k.what, after-before, k.bad)
		}
	}
}

func TestPlateau(t *testing.T) {
	rise := func(by int) (looks []look) {
		for n := range 50 {
			looks = append(looks, look{Goroutines: 1000 + n*by, Heap: 20e6, Files: 200, Children: 3})
		}
		return looks
	}
	if got := plateau(rise(1)); got != nil {
		t.Errorf("steady, and yet %v", got)
	}
	if got := plateau(rise(10)); len(got) != 1 || got[0] != "goroutines grew from 1140 in the second fifth to 1440 in the last" {
		t.Errorf("it grows, and all that is said is %v", got)
	}
	was := look{Goroutines: 50, Heap: 2e6, Files: 20, Children: 1}
	if got := returned(was, look{Goroutines: 55, Heap: 3e6, Files: 22, Children: 1}); got != nil {
		t.Errorf("back, and yet %v", got)
	}
	if got := returned(was, look{Goroutines: 66, Heap: 9e6, Files: 31, Children: 2}); len(got) != 4 {
		t.Errorf("nothing is back, and all that is said is %v", got)
	}
}
