package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/replica"
)

// TestRedisAway kills Redis for five seconds: sessions that are in use go on,
// nobody gets a new one, and soon after its return all is as before.
func TestRedisAway(t *testing.T) {
	f := newFleet(t, 2)
	var all []*client
	for n := range 6 {
		all = append(all, open(t, f.url(n), f.token(t, fmt.Sprint("p", n%3))))
	}
	use := func(when string) {
		t.Helper()
		for n, c := range all {
			for at := range f.replicas {
				mark := fmt.Sprint(when, " ", n, " at ", at)
				if got := c.call(f.url(at), "old__echo", fmt.Sprint("p", n%3), mark).said(); got != mark {
					t.Errorf("%s: %s", mark, got)
				}
			}
		}
	}
	use("before")
	f.store.Kill()
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
		use("without Redis, " + strconv.FormatInt(time.Now().UnixMilli(), 10))
		r := (&client{token: f.token(t, "new")}).initialize(f.url(0))
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
			t.Errorf("a new session without Redis: %d, Retry-After %q, %v; want 503 and a time", r.status, r.header.Get("Retry-After"), r.err)
		}
		if r := (&client{token: f.token(t, "ann"), session: "none"}).do(f.url(1), "ping", object{}); r.status != http.StatusServiceUnavailable {
			t.Errorf("a session that the replica does not know, without Redis: %d, want 503", r.status)
		}
	}
	for n := range f.replicas {
		if got := f.replicas[n].Status(); got != "degraded" {
			t.Errorf("replica %d is %q without Redis, want degraded", n, got)
		}
	}
	f.store.Start()
	took := replica.Within(t, 5*time.Second, "new sessions after Redis came back", func() bool {
		for n := range f.replicas {
			if (&client{token: f.token(t, "new")}).initialize(f.url(n)).status != http.StatusOK {
				return false
			}
		}
		return true
	})
	t.Logf("new sessions %v after Redis came back", took.Round(time.Millisecond))
	use("after")
	replica.Within(t, 5*time.Second, "the replicas are ready", func() bool { return f.replicas[0].Status() == "ready" && f.replicas[1].Status() == "ready" })
}

// load is sessions that are used all the time through a balancer.
type load struct {
	t        *testing.T
	f        *fleet
	balancer *balancer
	sent     atomic.Int64
	again    atomic.Int64 // requests that were cut off before they were taken, and sent again
	streams  atomic.Int64 // opened
	updates  atomic.Int64
}

// use makes calls in one session until life ends. Each fourth is under way for
// longer than a replica needs to begin to drain.
func (l *load) use(life context.Context, c *client, owner string) {
	for n := 0; life.Err() == nil; n++ {
		tool := "old__echo"
		switch n % 4 {
		case 1:
			tool = "old__slow"
		case 2:
			tool = "new__echo"
		}
		l.one(c, tool, owner, fmt.Sprint(owner, " ", n))
		select {
		case <-life.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// one makes a call, which has to come back with its own mark. A connection that
// a closing listener reset may be tried again if nothing came of it.
func (l *load) one(c *client, tool, owner, mark string) {
	for {
		r := c.call(l.balancer.URL, tool, owner, mark)
		l.sent.Add(1)
		if r.err != nil && l.f.old.count(mark)+l.f.new.count(mark) == 0 {
			l.again.Add(1)
			continue
		}
		if got := r.said(); got != mark {
			l.t.Errorf("%s of %s: status %d: %s", tool, mark, r.status, got)
		}
		return
	}
}

// listen keeps the session's own stream open, wherever that leads.
func (l *load) listen(life context.Context, c *client) {
	for life.Err() == nil {
		stream, err := c.listen(life, l.balancer.URL)
		if err != nil {
			if life.Err() == nil && !reset(err) {
				l.t.Errorf("a stream: %v", err)
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		l.streams.Add(1)
		for range stream {
			l.updates.Add(1)
		}
	}
}

// reset reports whether a stream was not opened because the connection was
// closed, which says nothing of the session.
func reset(err error) bool { return err.Error()[:4] != "GET:" }

// TestRollingRestart restarts one replica after the other while twenty sessions
// are in use: none of them is lost, no request is, and streams go on elsewhere.
func TestRollingRestart(t *testing.T) {
	f := newFleet(t, 3)
	l := &load{t: t, f: f, balancer: newBalancer(t, f.replicas)}
	var all, streams sync.WaitGroup
	life, end := context.WithCancel(t.Context())
	listening, hang := context.WithCancel(t.Context())
	defer func() { end(); all.Wait(); hang(); streams.Wait() }()
	const sessions, listeners = 20, 5
	for n := range sessions {
		owner := fmt.Sprint("p", n)
		c := open(t, f.url(n), f.token(t, owner))
		if n < listeners {
			if r := c.do(f.url(n+1), "resources/subscribe", object{"uri": noteURI}); r.message.Result == nil {
				t.Fatalf("subscribing: %d %+v %v", r.status, r.message.Error, r.err)
			}
			streams.Go(func() { l.listen(listening, c) })
		}
		all.Go(func() { l.use(life, c, owner) })
	}
	replica.Within(t, 10*time.Second, "all streams are open", func() bool { return l.streams.Load() == listeners })
	for n, r := range f.replicas {
		before := l.sent.Load()
		replica.Within(t, 20*time.Second, "there is load", func() bool { return l.sent.Load() > before+5*sessions })
		r.Stop(t)
		f.replicas[n] = f.start(t, fmt.Sprint("replica", n, "again"), f.config)
		l.balancer.put(n, f.replicas[n].URL)
	}
	before := l.sent.Load()
	replica.Within(t, 20*time.Second, "there is load after all restarts", func() bool { return l.sent.Load() > before+5*sessions })
	end()
	all.Wait()
	// Every replica that a stream was on has gone meanwhile.
	if got := l.streams.Load(); got < 2*listeners {
		t.Errorf("%d streams were opened, want every one of %d again at least once", got, listeners)
	}
	told := l.updates.Load()
	replica.Within(t, 10*time.Second, "an update reaches every listener", func() bool { f.old.change(); return l.updates.Load() >= told+listeners })
	hang()
	streams.Wait()
	if twice := append(f.old.twice(), f.new.twice()...); len(twice) > 0 {
		t.Errorf("calls that were carried out twice: %v", twice)
	}
	t.Logf("%d calls, %d of them sent again, %d streams", l.sent.Load(), l.again.Load(), l.streams.Load())
}
