package auth

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// pace is the times that a ring keeps.
type pace struct {
	interval  time.Duration // between two good refreshes, at most
	staleness time.Duration // how long the last good keys live without one
	timeout   time.Duration // of one attempt
	retry     time.Duration // after a first failure; doubles
	retryMax  time.Duration
	demand    time.Duration // between two refreshes that tokens ask for in vain
	wait      time.Duration // how long a token waits for one
}

func defaultPace(c *Issuer) pace {
	return pace{
		interval: c.refresh(), staleness: c.staleness(),
		timeout: 5 * time.Second, retry: 500 * time.Millisecond, retryMax: 5 * time.Second,
		demand: 2 * time.Second, wait: time.Second,
	}
}

// ring holds the keys of one issuer and keeps them fresh. All reading of the
// source happens in run; everything else only asks for it.
type ring struct {
	issuer string
	load   load
	parse  func(doc []byte) (*keySet, error)
	pace   pace
	now    func() time.Time
	log    *slog.Logger

	held atomic.Pointer[held] // nil until there was a good document
	kick chan struct{}        // wakes run; capacity 1

	mu       sync.Mutex
	busy     bool          // an attempt is under way or asked for
	done     chan struct{} // closed when the next attempt ends
	demanded time.Time     // when a token last asked in vain
	problem  string        // of the last attempt, "" after a good one
	usable   bool          // whether there were fresh keys after it
}

// held is a good key set, the document that it was read from, and when the
// source last gave it.
type held struct {
	set      *keySet
	document [sha256.Size]byte
	good     time.Time
}

func newRing(issuer string, load load, parse func([]byte) (*keySet, error), p pace, log *slog.Logger) *ring {
	return &ring{
		issuer: issuer, load: load, parse: parse, pace: p, now: time.Now,
		log:  log.With("issuer", issuer),
		kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// current returns the key set, or nil where there is none that is fresh enough.
func (r *ring) current() *keySet {
	h := r.held.Load()
	if h == nil || r.now().Sub(h.good) > r.pace.staleness {
		return nil
	}
	return h.set
}

// run refreshes until ctx ends. At most one attempt is under way at a time.
func (r *ring) run(ctx context.Context) {
	failures := 0
	for {
		if r.refresh(ctx) == nil {
			failures = 0
		} else {
			failures++
		}
		timer := time.NewTimer(r.pace.next(failures))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.kick:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// next is how long to wait for the next attempt. The jitter only shortens it,
// so that the interval stays a bound and replicas drift apart.
func (p *pace) next(failures int) time.Duration {
	wait := p.interval
	if failures > 0 {
		wait = min(p.retry<<min(failures-1, 16), p.retryMax)
	}
	return wait - rand.N(wait/10+1)
}

func (r *ring) refresh(ctx context.Context) error {
	r.mu.Lock()
	r.busy = true
	select {
	case <-r.kick: // this attempt is the one that was asked for
	default:
	}
	r.mu.Unlock()

	attempt, cancel := context.WithTimeout(ctx, r.pace.timeout)
	changed, err := r.attempt(attempt)
	cancel()

	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	close(r.done)
	r.done = make(chan struct{})
	if changed {
		r.demanded = time.Time{}
	}
	if ctx.Err() == nil {
		r.report(changed, err)
	}
	return err
}

// attempt reads the source once. The keys held change only to a good set, and
// only if that has other keys: a document that is merely written anew is no
// change, or else tokens could ask for refreshes without limit.
func (r *ring) attempt(ctx context.Context) (changed bool, err error) {
	next := &held{good: r.now()}
	doc, err := r.load(ctx)
	if err != nil {
		return false, err
	}
	next.document = sha256.Sum256(doc)
	before := r.held.Load()
	if before == nil || before.document != next.document {
		if next.set, err = r.parse(doc); err != nil {
			return false, err
		}
		changed = before == nil || !before.set.same(next.set)
	}
	if !changed {
		next.set = before.set
	}
	r.held.Store(next)
	return changed, nil
}

// report logs what is new. r.mu is held.
func (r *ring) report(changed bool, err error) {
	problem, usable := r.problem, r.usable
	if r.problem = ""; err != nil {
		r.problem = err.Error()
	}
	r.usable = r.current() != nil
	switch {
	case err != nil && r.usable && r.problem != problem:
		r.log.Warn("signing keys could not be read again: the last good ones stay in use", "error", r.problem)
	case err != nil && !r.usable && (usable || r.problem != problem):
		r.log.Error("signing keys could not be read: tokens of this issuer are refused", "error", r.problem)
	case changed:
		set := r.held.Load().set
		r.log.Info("signing keys changed", "keys", len(set.keys), "skipped", set.skipped)
	case err == nil && problem != "":
		r.log.Info("signing keys can be read again")
	}
}

// newer returns a key set that is not the given one, after a refresh that it
// asks for, or else the given one. It returns soon: at once where a refresh was
// asked for in vain a moment ago, and after pace.wait at the latest. Callers
// share one refresh. The error is ctx's.
func (r *ring) newer(ctx context.Context, than *keySet) (*keySet, error) {
	if set := r.current(); set != than {
		return set, nil
	}
	done := r.ask()
	if done == nil {
		return than, nil
	}
	timer := time.NewTimer(r.pace.wait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return r.current(), nil
}

// ask asks for a refresh and returns a channel that closes when it has ended,
// or nil where it is too soon to ask again. A refresh that found new keys does
// not count, so that rotations are always followed at once.
func (r *ring) ask() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		return r.done
	}
	now := r.now()
	if now.Sub(r.demanded) < r.pace.demand {
		return nil
	}
	r.demanded, r.busy = now, true
	r.kick <- struct{}{} // never blocks: busy was false, so the place is free
	return r.done
}

func (r *ring) status() Status {
	r.mu.Lock()
	s := Status{Issuer: r.issuer, Problem: r.problem}
	r.mu.Unlock()
	s.Usable = r.current() != nil
	if h := r.held.Load(); h != nil {
		s.Keys, s.Skipped, s.Read = len(h.set.keys), h.set.skipped, h.good
	}
	return s
}
