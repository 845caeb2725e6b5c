package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

type options struct {
	sessions   int
	principals int
	length     time.Duration // with everything going wrong
	pace       time.Duration
	callWait   time.Duration // the gateway's bound of one call
	idle       time.Duration // of sessions of clients, and with servers
	fate       time.Duration // between two things that befall one server
	every      time.Duration // between two looks
	seed       uint64
	polite     bool          // every session is ended by its client
	settled    time.Duration // how long it may take to be as before, without clients
	keep       string        // directory for logs and stacks; a temporary one where empty
}

// field is a soak under way.
type field struct {
	options
	*book
	crowd *crowd
	gate  *gate
	doors []*door
	looks []look
	begun time.Time
}

// soak runs clients and servers around a gateway and reports. The error is
// about the run; what the gateway did wrong is in the report.
func soak(ctx context.Context, o options, log *slog.Logger) (r *report, err error) {
	dir := o.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "regogate-soak-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
	}
	f := &field{options: o, book: newBook()}
	defer func() {
		for _, d := range f.doors {
			d.shut()
		}
	}()
	servers, err := f.serve()
	if err != nil {
		return nil, err
	}
	if f.gate, err = startGate(ctx, dir, servers, o); err != nil {
		return nil, err
	}
	r, err = f.run(ctx, log)
	if e := f.gate.stop(); e != nil {
		f.fault("%v", e)
	}
	for _, line := range f.gate.alarms() {
		f.fault("in the gateway's log: %s", clip([]byte(line)))
	}
	if r != nil {
		r.conclude(f)
	}
	return r, err
}

// serve opens the servers and returns how the gateway reaches them.
func (f *field) serve() (object, error) {
	servers := object{}
	limits := func(o object) object {
		o["call_timeout"], o["idle_timeout"] = f.callWait.String(), f.idle.String()
		o["max_concurrent"] = 2 * f.sessions // hung calls would fill the default
		return o
	}
	for _, kind := range []string{"legacy", "modern", "old"} {
		p, path := newPlace(kind, f.seed, f.book), "/mcp"
		var h http.Handler
		switch kind {
		case "legacy":
			h = legacyHTTP{p}
		case "modern":
			h = modernHTTP{p}
		case "old":
			h, path = oldSSE{p}, "/sse"
		}
		d, err := openDoor(p, h)
		if err != nil {
			return nil, err
		}
		f.doors = append(f.doors, d)
		server := limits(object{"url": "http://" + d.address + path})
		server["max_sessions"] = 3 * f.sessions // listening clients have one each
		servers[kind] = server
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stdio := limits(object{"command": self, "env": object{
		roleVariable: roleServer, seedVariable: strconv.FormatUint(f.seed, 10),
	}})
	// Fewer than there are clients, so that processes make room for others.
	stdio["max_sessions"] = max(4, f.sessions/2)
	servers["stdio"] = stdio
	return servers, nil
}

// run is the soak itself: a look before, the clients, a look after.
func (f *field) run(ctx context.Context, log *slog.Logger) (*report, error) {
	life, end := context.WithCancel(ctx)
	defer end()
	fates, life := errgroup.WithContext(life)
	for _, d := range f.doors {
		fates.Go(func() error { return d.fate(life, f.fate) })
		fates.Go(func() error { d.gossip(life); return nil })
	}
	f.crowd = &crowd{
		book: f.book, gate: f.gate, pace: f.pace, polite: f.polite, servers: []string{"legacy", "modern", "old", "stdio"},
		patience: f.callWait + 3*askWait, tokens: map[string]token{},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4 * f.sessions, IdleConnTimeout: time.Minute}},
	}
	f.begun = time.Now()
	r := &report{options: f.options}
	if err := f.see(); err != nil {
		return nil, err
	}
	r.before = f.looks[0]
	people, leave := context.WithCancel(life)
	defer leave()
	var all sync.WaitGroup
	for n := range f.sessions {
		principal := fmt.Sprintf("p%d", n%f.principals)
		c := &client{crowd: f.crowd, principal: principal, name: fmt.Sprintf("%s.s%d", principal, n)}
		c.dice = newDice(f.seed, c.name)
		if n/f.principals%2 == 0 {
			all.Go(func() { c.liveLegacy(people) })
		} else {
			all.Go(func() { c.liveModern(people) })
		}
	}
	err := f.watch(life, log)
	leave()
	for _, d := range f.doors {
		d.calm.Store(true)
	}
	all.Wait()
	f.crowd.http.CloseIdleConnections()
	if err == nil {
		r.after, err = f.settle(ctx, r.before, log)
	}
	end()
	return r, errors.Join(err, fates.Wait())
}

// watch looks at the gateway until the time is over.
func (f *field) watch(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for time.Since(f.begun) < f.length {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if err := f.see(); err != nil {
			return err
		}
		l := f.looks[len(f.looks)-1]
		_, wrong := f.told()
		log.Info("looked", "at", l.At.Round(time.Second), "goroutines", l.Goroutines, "heap", l.Heap, "files", l.Files, "children", l.Children, "faults", wrong)
	}
	return f.gate.stacks(f.gate.dir + "/stacks-under-way.txt")
}

func (f *field) see() error {
	l, err := f.gate.look()
	if err != nil {
		return err
	}
	l.At = time.Since(f.begun)
	l.Legacy, l.Streams = int(f.crowd.legacy.Load()), int(f.crowd.streams.Load())
	for _, d := range f.doors {
		l.Servers += d.count()
	}
	f.looks = append(f.looks, l)
	return nil
}

// sweep is how often the gateway looks for what is idle: what idles with
// servers when it reads their lists again, and what is left of sessions.
const sweep = 70 * time.Second

// settle waits until the gateway is as it was before there were clients, or for
// as long as it may take.
func (f *field) settle(ctx context.Context, before look, log *slog.Logger) (after look, err error) {
	until := time.Now().Add(f.settled)
	for {
		if after, err = f.gate.look(); err != nil {
			return after, err
		}
		after.At = time.Since(f.begun)
		for _, d := range f.doors {
			after.Servers += d.count()
		}
		log.Info("settling", "goroutines", after.Goroutines, "heap", after.Heap, "files", after.Files, "children", after.Children)
		if len(returned(before, after)) == 0 || time.Now().After(until) {
			return after, f.gate.stacks(f.gate.dir + "/stacks-after.txt")
		}
		select {
		case <-ctx.Done():
			return after, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
