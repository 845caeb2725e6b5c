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
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Config.
const (
	DefaultDeadline     = 250 * time.Millisecond
	DefaultListDeadline = 3 * time.Second
)

// Config says where the policy is and what it may do.
type Config struct {
	// Dir is a directory of .rego files and data, which is watched. Where it is
	// "", FS is read once.
	Dir string `yaml:"dir"`
	// FS holds the policy to use without Dir.
	FS fs.FS `yaml:"-"`
	// Deadline is the time for one decision; 0 means DefaultDeadline.
	Deadline time.Duration `yaml:"deadline"`
	// ListDeadline is the time for all decisions of one list; 0 means
	// DefaultListDeadline.
	ListDeadline time.Duration `yaml:"list_deadline"`
	// InsecureBuiltins names built-in functions to turn on that are otherwise
	// off: http.send, net.lookup_ip_addr, opa.runtime, rand.intn, uuid.rfc4122.
	InsecureBuiltins []string `yaml:"insecure_builtins"`
}

// Validate returns every problem of the configuration itself, joined; each says
// the key that it is about. It reads no policy.
func (c *Config) Validate() error {
	var errs []error
	if c.Dir == "" && c.FS == nil {
		errs = append(errs, errors.New("dir: no policy is given"))
	}
	if c.Deadline < 0 {
		errs = append(errs, fmt.Errorf("deadline: %v is negative", c.Deadline))
	}
	if c.ListDeadline < 0 {
		errs = append(errs, fmt.Errorf("list_deadline: %v is negative", c.ListDeadline))
	}
	if _, err := capabilities(c.InsecureBuiltins); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// read returns the files of the policy, wherever they are.
func (c *Config) read() (*tree, Problems) {
	if c.Dir != "" {
		return readDir(c.Dir)
	}
	return readTree(c.FS, "")
}

func (c *Config) withDefaults() Config {
	out := *c
	if out.Deadline == 0 {
		out.Deadline = DefaultDeadline
	}
	if out.ListDeadline == 0 {
		out.ListDeadline = DefaultListDeadline
	}
	return out
}

// Check reads and compiles the policy as an Engine would, asks it for its own
// problems, and returns what is wrong; nothing means that an Engine would use it. It expects a valid
// configuration.
func Check(c Config) Problems {
	t, problems := c.read()
	if len(problems) > 0 {
		return problems
	}
	_, problems = newSnapshot(t, c.withDefaults(), slog.New(slog.DiscardHandler))
	return problems
}

// Engine keeps the newest good policy. It is safe for concurrent use.
type Engine struct {
	config  Config
	log     *slog.Logger
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
	Tried    string    // revision of the newest files that were read, in force or not
	Problems Problems  // what keeps the newest files from being used; empty when they are
}

// New reads the policy. It fails when the configuration is not valid, and when
// a policy that cannot change while running, that of Config.FS, is broken; the
// error is Problems then. With a directory that is broken it succeeds and has
// no snapshot until Run finds the directory mended.
func New(c Config, log *slog.Logger) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{config: c.withDefaults(), log: log, changed: make(chan struct{}, 1), recheck: recheck}
	for _, name := range c.InsecureBuiltins {
		log.Warn("a built-in function that is off by default is on", "setting", "insecure_builtins", "builtin", name)
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

// Status is safe to keep; nobody modifies it.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
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
	for _, p := range problems {
		e.log.Error("policy refused", "problem", p.String(), "policy_revision", last.Revision)
	}
}

func (e *Engine) activate(s *Snapshot) {
	e.current.Store(s)
	e.mu.Lock()
	e.status = Status{Revision: s.revision, Since: time.Now(), Tried: s.revision}
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
	e.log.Info("policy in force", "policy_revision", s.revision, "call_gate", s.HasCall())
}

// Run watches the directory until ctx is done, and then returns nil. Without a
// directory it only waits.
func (e *Engine) Run(ctx context.Context) error {
	if e.config.Dir != "" {
		e.watch(ctx)
	}
	<-ctx.Done()
	return nil
}
