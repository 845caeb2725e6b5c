package registry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Times of a Keeper that are not configured.
const (
	pollEvery   = 500 * time.Millisecond // how often the source is asked without a hint
	hintEvery   = 100 * time.Millisecond // how often hints may make it ask sooner
	askTimeout  = 2 * time.Second
	loadTimeout = 20 * time.Second
)

// Keeper owns a source and publishes its catalogue as immutable snapshots. It
// does all the I/O; Current, Fresh, Changed and Status only read memory, never
// block and may run concurrently with everything.
type Keeper struct {
	source Source
	log    *slog.Logger
	now    func() time.Time
	// verifier says which catalogues are taken, wherever they come from; nil takes
	// unsigned ones.
	verifier *Verifier

	maxStaleness time.Duration
	serveStale   bool

	refreshing sync.Mutex
	state      atomic.Pointer[state]
	changed    chan struct{}
}

// state is what the keeper knows, replaced as a whole.
type state struct {
	snapshot  *Snapshot
	signed    Signed     // of the snapshot
	loaded    *Catalogue // the last one: the snapshot's, or one that is refused
	confirmed time.Time  // when the source was asked that said the snapshot is current
	failure   error      // of the last refresh
	keys      error      // why the keys could not be read again
	stale     bool       // as last logged
	recalled  bool       // the source has not confirmed it to this replica
}

// NewKeeper returns a keeper of the source, which Close closes. It knows
// nothing before Refresh or Run.
func NewKeeper(source Source, cfg Config, log *slog.Logger) *Keeper {
	k := &Keeper{
		source: source, log: log, now: time.Now,
		maxStaleness: cfg.staleness(), serveStale: cfg.InsecureServeStale,
		changed: make(chan struct{}, 1),
	}
	k.state.Store(&state{})
	return k
}

// Current returns the last good snapshot, or nil where there has been none.
func (k *Keeper) Current() *Snapshot { return k.state.Load().snapshot }

// Fresh reports whether decisions may rest on Current: the source confirmed
// it, asked no longer before now than the maximum staleness; or the operator
// chose to serve what is stale. Without a snapshot it is false, and so it is when
// the snapshot's signature has expired.
func (k *Keeper) Fresh(now time.Time) bool { return k.fresh(k.state.Load(), now) }

func (k *Keeper) fresh(s *state, now time.Time) bool {
	return s.snapshot != nil && !s.signed.expired(now) && (k.serveStale || !k.isStale(s, now))
}

func (k *Keeper) isStale(s *state, now time.Time) bool {
	return now.Sub(s.confirmed) > k.maxStaleness || s.signed.expired(now)
}

// Changed is a hint channel for one receiver: a value means that Current
// returns another snapshot than before. It is never closed.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// Status is what a keeper knows about itself.
type Status struct {
	Ready     bool          // Fresh at the time of the call
	Stale     bool          // the source has not confirmed the snapshot for too long, or its signature has expired
	Age       time.Duration // since the last confirmation; 0 where there was none
	Revision  string
	Digest    string
	Signed    Signed // zero where no signature is asked for
	Tools     int
	Suggested int
	Problems  []string // a line each; a keeper may be ready in spite of them
}

// Status returns the state for readiness, metrics and people.
func (k *Keeper) Status() Status {
	now, s := k.now(), k.state.Load()
	st := Status{Ready: k.fresh(s, now), Signed: s.signed}
	for _, err := range []error{s.failure, s.keys} {
		if err != nil {
			st.Problems = append(st.Problems, err.Error())
		}
	}
	st.Problems = append(st.Problems, k.source.Problems()...)
	if s.snapshot != nil {
		st.Stale, st.Age = k.isStale(s, now), now.Sub(s.confirmed)
		st.Revision, st.Digest = s.snapshot.Revision(), s.snapshot.Digest()
		st.Tools, st.Suggested = len(s.snapshot.Tools()), len(s.snapshot.Suggested())
	}
	return st
}

// CacheStats returns the counts of the cache before the source; false where there
// is none.
func (k *Keeper) CacheStats() (CacheStats, bool) {
	c, ok := k.source.(*Cached)
	if !ok {
		return CacheStats{}, false
	}
	return c.Stats(), true
}

// Run refreshes until the context ends, and returns nil then: every half
// second, and sooner after a hint.
func (k *Keeper) Run(ctx context.Context) error {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		case <-k.source.Changed():
		}
		// A failure is in the status and in the log; the next round mends it.
		_ = k.Refresh(ctx)
		poll.Reset(pollEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(hintEvery):
		}
	}
}

// Refresh asks the source once and publishes what is new. Where it fails the
// last good snapshot stays and goes on ageing.
func (k *Keeper) Refresh(ctx context.Context) error {
	k.refreshing.Lock()
	defer k.refreshing.Unlock()
	before := k.state.Load()
	after := *before
	if k.verifier != nil {
		after.keys = k.verifier.Reload()
	}
	after.failure = k.ask(ctx, before, &after)
	if after.failure != nil && ctx.Err() != nil {
		return after.failure
	}
	after.stale = k.isStale(&after, k.now())
	k.state.Store(&after)
	k.report(before, &after)
	if after.snapshot != before.snapshot {
		hint(k.changed)
	}
	return after.failure
}

// ask fills in the snapshot and the time of its confirmation, which is when
// the question was put: the answer may be as old as that.
func (k *Keeper) ask(ctx context.Context, before, after *state) error {
	asked := k.now()
	headCtx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	head, err := k.source.Head(headCtx)
	if err != nil {
		return fmt.Errorf("ask the registry for its revision: %w%s", err, k.recall(ctx, before, after))
	}
	if c := before.loaded; c == nil || c.Head != head {
		loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
		defer cancel()
		if after.loaded, err = k.source.Load(loadCtx, head); err != nil {
			after.loaded = nil
			return fmt.Errorf("load revision %s of the registry: %w", head.Revision, err)
		}
	}
	// Keys and the time may have changed under a catalogue that has not.
	if err := k.take(after.loaded, before, after); err != nil {
		return fmt.Errorf("revision %s of the registry is refused: %w", after.loaded.Head.Revision, err)
	}
	after.confirmed, after.recalled = asked, false
	return nil
}

// take makes the catalogue the one in force, unless its signature is not as asked
// for. One that was signed before the one in force is a way back that somebody else
// chose.
func (k *Keeper) take(c *Catalogue, before, after *state) error {
	if k.verifier != nil {
		signed, err := k.verifier.Verify(c, k.now())
		if err != nil {
			return err
		}
		if inForce := before.signed; signed.At.Before(inForce.At) {
			return fmt.Errorf("it was signed at %s, before the one in force, which was at %s: sign it again if it is to come back",
				signed.At.Format(time.RFC3339), inForce.At.Format(time.RFC3339))
		}
		after.signed = signed
	}
	if s := before.snapshot; s == nil || s.head != c.Head {
		after.snapshot = NewSnapshot(c, k.now())
	}
	return nil
}

// rememberer is a source that can tell what the truth was when another replica
// asked last.
type rememberer interface {
	Remembered(ctx context.Context) (*Catalogue, time.Time, error)
}

// recall fills in what other replicas know, for one that the source has not
// answered yet. It takes only what is signed, and what it takes is as old as the
// source's last answer to any of them. It returns what to add to the failure.
func (k *Keeper) recall(ctx context.Context, before, after *state) (remark string) {
	memory, ok := k.source.(rememberer)
	if !ok || k.verifier == nil || before.snapshot != nil && !before.recalled {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c, confirmed, err := memory.Remembered(ctx)
	if now := k.now(); confirmed.After(now) {
		confirmed = now
	}
	if err == nil && !confirmed.After(before.confirmed) {
		return "" // a replica that has not seen a change yet wrote it after one that has
	}
	if err == nil {
		err = k.take(c, before, after)
	}
	if err != nil {
		return fmt.Sprintf("; nor can it come from the cache: %v", err)
	}
	after.confirmed, after.recalled = confirmed, true
	return ""
}

// report logs changes of state, not every round.
func (k *Keeper) report(before, after *state) {
	if s := after.snapshot; s != before.snapshot {
		k.log.Info("registry loaded", "revision", s.Revision(), "tools", len(s.tools), "suggested", len(s.suggested))
	}
	if after.recalled && !before.recalled {
		k.log.Warn("the registry comes from the cache, signed, since its source is out of reach", "revision", after.snapshot.Revision(),
			"confirmed", after.confirmed)
	}
	switch {
	case after.failure != nil && before.failure == nil:
		k.log.Warn("registry cannot be refreshed", "error", after.failure)
	case after.failure == nil && before.failure != nil:
		k.log.Info("registry can be refreshed again")
	}
	switch {
	case after.keys != nil && before.keys == nil:
		k.log.Error("the keys of the registry cannot be read, the last good ones stay", "error", after.keys)
	case after.keys == nil && before.keys != nil:
		k.log.Info("the keys of the registry can be read again")
	}
	if after.stale && !before.stale && after.snapshot != nil {
		k.log.Error("registry is stale", "unconfirmed", k.now().Sub(after.confirmed).Round(time.Second).String(),
			"max_staleness", k.maxStaleness.String(), "serving", k.fresh(after, k.now()))
	}
}

// Close closes the source. Run has returned before.
func (k *Keeper) Close() error { return k.source.Close() }
