// Package policy puts questions to Rego policies, and is the only place that
// evaluates them. Nothing in it decides who may do what: it makes sure that only
// a policy's clear yes counts as one, that the same question gets the same
// answer in a list and in a call, and that no policy can hold a request longer
// than its deadline.
//
// An Engine reads the policy and publishes Snapshots of it. A Snapshot is
// private and immutable, so that evaluating never waits for loading and the
// other way round. Policies are evaluated as they are written: partial
// evaluation and optimised bundles can turn a no into a yes and are not used.
//
// A policy can judge itself and its data: data.mcp.authz.problems, where there
// is such a rule, is a set or an array of strings, each saying in one line what
// is wrong and how to mend it. It is asked once while the policy is loaded, with
// an empty input and the time of one decision. Any string in it keeps the policy
// from coming into force, like a module that does not compile; so does a value of
// another type, an error and a timeout. Undefined and empty mean that all is well.
package policy

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regogate/regogate/gateway/policy/plane"
)

// Engine keeps the newest good policy. It is safe for concurrent use.
type Engine struct {
	config  Config
	log     *slog.Logger
	plane   *plane.Plane // OPA's management plane; nil without a configuration of it
	current atomic.Pointer[Snapshot]
	changed chan struct{}
	recheck time.Duration
	pending string // revision of new files that may still be written to

	mu     sync.Mutex // guards status
	status Status
}

// Status is how the policy fares.
type Status struct {
	Revision string    // of the policy in force; "" when there is none
	Since    time.Time // when it came into force
	Tried    string    // revision of the newest files that were read, in force or not; "" for bundles
	Problems Problems  // what keeps the newest from being used; empty when it is
	Warnings Problems  // of the policy in force
	Bundles  []plane.BundleStatus
}

// New reads the policy. It fails when the configuration is not valid, and when
// a policy that cannot change while running, that of Config.FS, is broken; the
// error is Problems then. With a directory that is broken, and with bundles, it
// succeeds and has no snapshot until Run finds a good policy.
func New(c Config, log *slog.Logger) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{config: c.withDefaults(), log: log, changed: make(chan struct{}, 1), recheck: recheck}
	for _, name := range c.InsecureBuiltins {
		log.Warn("a built-in function that is off by default is on", "setting", "insecure_builtins", "builtin", name)
	}
	if c.OPA != nil {
		if err := e.plan(); err != nil {
			return nil, err
		}
	}
	if c.distributed() {
		return e, nil
	}
	e.reload()
	if status := e.Status(); c.Dir == "" && len(status.Problems) > 0 {
		return nil, status.Problems
	}
	return e, nil
}

// Current is the policy in force, nil as long as there is none. Loading it costs
// nothing; take it once for a request.
func (e *Engine) Current() *Snapshot { return e.current.Load() }

// Changed is a hint for one receiver: a value means that Current may have
// changed. It is never closed.
func (e *Engine) Changed() <-chan struct{} { return e.changed }

// Cache is how the decision caches fare.
func (e *Engine) Cache() CacheStats {
	var stats CacheStats
	if s := e.current.Load(); s != nil {
		stats = s.cache.stats(s.uncached)
	}
	n := e.config.counters
	stats.Hits, stats.Misses = n.hits.Load(), n.misses.Load()
	stats.Evictions, stats.Differences = n.evictions.Load(), n.differences.Load()
	return stats
}

// Status is safe to keep; nobody modifies it.
func (e *Engine) Status() Status {
	e.mu.Lock()
	status := e.status
	e.mu.Unlock()
	if e.config.distributed() {
		e.describe(&status)
	}
	return status
}

// look reads the files and judges them when they are as they were at the look
// before: half of a policy that is being written may well be a policy, and one
// without the rules that deny. settled is false when another look has to follow.
// It must not run concurrently with itself or reload. It returns the directories
// that were seen.
func (e *Engine) look() (dirs []string, settled bool) {
	t, problems := e.config.read()
	if t.revision != e.Status().Tried && t.revision != e.pending {
		e.pending = t.revision
		return t.dirs, false
	}
	e.pending = ""
	e.judge(t, problems)
	return t.dirs, true
}

// reload reads the files and judges them at once.
func (e *Engine) reload() { e.judge(e.config.read()) }

// judge brings files into force if they are new and good. Otherwise the last good
// policy stays.
func (e *Engine) judge(t *tree, problems Problems) {
	last := e.Status()
	if len(problems) == 0 && t.revision != last.Revision {
		var s *Snapshot
		if s, problems = newSnapshot(t, e.config, e.log); len(problems) == 0 {
			e.activate(s)
			return
		}
	}
	if problems.Error() == last.Problems.Error() {
		return
	}
	e.mu.Lock()
	e.status.Tried, e.status.Problems = t.revision, problems
	e.mu.Unlock()
	if len(problems) == 0 {
		e.log.Info("policy files are those in force again", "policy_revision", last.Revision)
	}
	e.refused(problems, last.Revision)
}

func (e *Engine) refused(problems Problems, inForce string) {
	for _, p := range problems {
		e.log.Error("policy refused", "problem", p.String(), "policy_revision", inForce)
	}
}

func (e *Engine) activate(s *Snapshot) {
	last := e.current.Load()
	s.warm(last)
	e.current.Store(s)
	e.mu.Lock()
	e.status = Status{Revision: s.revision, Since: time.Now(), Tried: s.revision, Warnings: s.warnings}
	e.mu.Unlock()
	e.notify()
	e.log.Info("policy in force", "policy_revision", s.revision, "bundles", s.bundles, "call_gate", s.HasCall(), "decision_cache", describe(s.cache, s.uncached))
	if last == nil || !slices.Equal(last.warnings, s.warnings) {
		for _, w := range s.warnings {
			e.log.Warn("policy warning", "problem", w.String(), "policy_revision", s.revision)
		}
	}
}

func (e *Engine) notify() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// Run keeps to the newest policy until ctx is done, and then returns nil.
func (e *Engine) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	if e.plane != nil {
		parts.Go(func() { e.distribute(ctx) })
	}
	if e.config.Dir != "" {
		e.watch(ctx)
	}
	<-ctx.Done()
	return nil
}
