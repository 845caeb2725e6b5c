package reload_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// took is one request: when it was to be sent, and how long it took from then on.
type took struct {
	due time.Time
	d   time.Duration
}

// nearby is how long before and after a revision comes into force a request
// belongs to its reload: fetching, compiling and the streams that look anew.
const nearby = 100 * time.Millisecond

// pauses measures what reloads do to requests: the same clients list and call at
// the same steady pace, and time with a reload each second takes turns with as much
// time without, so that what else the machine does is in both.
func pauses(t *testing.T) {
	r := start(t, options{long: true})
	var clients []*client
	for _, g := range groups {
		for _, legacy := range []bool{true, false} {
			c := r.join(t, g, legacy)
			c.hear(t)
			clients = append(clients, c)
		}
	}
	const turns, each = 10, 3
	steady(t, clients, func() { time.Sleep(2 * time.Second) }) // everything has run once
	var calm, stirred []took
	for range turns {
		calm = append(calm, steady(t, clients, func() { time.Sleep(each * time.Second) })...)
		stirred = append(stirred, steady(t, clients, func() {
			for range each {
				next := r.newest() + 1
				r.good(t, next)
				r.inForce(t, next)
				time.Sleep(time.Second)
			}
		})...)
	}
	near := slices.DeleteFunc(slices.Clone(stirred), func(x took) bool {
		r.journal.mu.Lock()
		defer r.journal.mu.Unlock()
		for _, at := range r.journal.at {
			if x.due.Add(x.d).After(at.Add(-nearby)) && x.due.Before(at.Add(nearby)) {
				return false
			}
		}
		return true
	})
	usual := report(t, "without reloads", calm, 0)
	report(t, fmt.Sprintf("with %d reloads", turns*each), stirred, usual)
	report(t, fmt.Sprintf("at most %s from a reload", nearby), near, usual)
}

// steady sends requests at a steady pace while f runs. A request that waits for
// the one before it has been waiting since it was due.
func steady(t *testing.T, clients []*client, f func()) []took {
	const workers, every = 8, time.Second * 8 / pace
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	all := make([][]took, workers)
	began := time.Now()
	for w := range workers {
		running.Go(func() {
			due := began.Add(every * time.Duration(w) / workers)
			for n := w; ; n += workers {
				timer := time.NewTimer(time.Until(due))
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					return
				}
				c, err := clients[n/2%len(clients)], error(nil)
				if n%2 == 0 {
					_, _, err = c.list(context.WithoutCancel(ctx))
				} else {
					_, err = c.call(context.WithoutCancel(ctx), probe)
				}
				if err != nil {
					t.Errorf("%s: %v", c, err)
				}
				all[w] = append(all[w], took{due, time.Since(due)})
				due = due.Add(every)
			}
		})
	}
	f()
	stop()
	running.Wait()
	return slices.Concat(all...)
}

// report prints how long requests took, and returns the median. The slowest is
// compared with usual, or else with that.
func report(t *testing.T, what string, requests []took, usual time.Duration) time.Duration {
	t.Helper()
	var d []time.Duration
	for _, x := range requests {
		d = append(d, x.d)
	}
	if len(d) == 0 {
		t.Fatalf("%s: no requests", what)
	}
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1))] }
	if usual == 0 {
		usual = at(0.5)
	}
	beyond, _ := slices.BinarySearch(d, 3*usual)
	t.Logf("%s: %d requests, median %s, p99 %s, most %s, which is %.1f times the usual median; %d took more than 3 times that",
		what, len(d), at(0.5).Round(time.Microsecond), at(0.99).Round(time.Microsecond), at(1).Round(time.Microsecond), float64(at(1))/float64(usual), len(d)-beyond)
	return at(0.5)
}
