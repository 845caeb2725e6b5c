package policy

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/gateway/policy/reads"
)

// Snapshot is one revision of the policy, ready to answer. It is immutable and
// safe for concurrent use, and stays valid after newer ones have taken its
// place; a request keeps to the snapshot that it began with. No method blocks
// on anything but its own evaluation, and all return when ctx is done or the
// deadline has passed.
type Snapshot struct {
	revision     string
	bundles      map[string]string
	warnings     Problems
	program      *program
	deadline     time.Duration
	listDeadline time.Duration

	allow, call, reasons, scopes query

	askers    sync.Pool // of *asker
	spans     *spans
	lifetimes []lifetime

	// places has one for each evaluation of a list that runs at a time, as many
	// as there are processors. More at once would only all be slow together, and
	// then run into the deadline of each evaluation.
	places chan struct{}

	// large has as many places for questions with large arguments, whose terms
	// weigh thirty times what the client sent.
	large chan struct{}

	reads    *reads.Reads // of allow
	cache    *cache       // of what allow answers; nil where that cannot be kept
	uncached string       // why it cannot
}

// Decision is the answer to one question. The zero value denies.
type Decision struct {
	// Allowed is true only when the policy gave the boolean true.
	Allowed bool
	// Code says why there was no proper answer, one of the Code constants. It
	// is "" when the policy answered true or false.
	Code string
	// Err tells more about CodeError, CodeType, CodeTimeout and CodeCancelled.
	// Its text never holds values of the input.
	Err error
}

// Codes of decisions. All of them deny.
const (
	CodeUndefined = "policy_undefined" // no rule gave a value
	CodeType      = "policy_type"      // the value was not a boolean
	CodeError     = "policy_error"     // the evaluation failed, or two rules disagreed
	CodeTimeout   = "policy_timeout"   // the deadline passed first
	CodeCancelled = "policy_cancelled" // the caller went away first
)

// newSnapshot compiles the policy and asks it for its own problems. The print
// calls of a policy go to log at debug level; where nobody listens at that level
// they are compiled away.
func newSnapshot(from source, cfg Config, log *slog.Logger) (s *Snapshot, problems Problems) {
	// A file that a parser or compiler trips over must not end the process.
	defer func() {
		if r := recover(); r != nil {
			s, problems = nil, Problems{{File: from.from(), Message: oneLine(fmt.Sprint("loading the policy panicked: ", r))}}
		}
	}()
	caps, err := capabilities(cfg.InsecureBuiltins)
	if err != nil {
		return nil, Problems{{Message: err.Error()}}
	}
	c, problems := from.content()
	if len(problems) > 0 {
		// What is wrong with the modules is told at the same time.
		if c != nil {
			_, also := parseModules(c, caps)
			problems = append(also, problems...)
		}
		return nil, problems
	}
	p, problems := compile(c, caps, log.Enabled(context.Background(), slog.LevelDebug))
	if len(problems) > 0 {
		return nil, problems
	}
	if problems := p.ownProblems(cfg.Deadline, c.origin, log); len(problems) > 0 {
		return nil, problems
	}
	read := reads.Of(p.compiler, entry("allow"))
	refused, warnings := examine(p.compiler, read, cfg.Check)
	if len(refused) > 0 {
		return nil, refused
	}
	s = &Snapshot{
		revision: c.revision, bundles: c.bundles, warnings: warnings, program: p, reads: read,
		deadline: cfg.Deadline, listDeadline: cfg.ListDeadline,
		places: make(chan struct{}, runtime.GOMAXPROCS(0)),
		large:  make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.cache, s.uncached = newCache(s.reads, cfg.Cache, cfg.counters, log)
	return s, s.prepare(c.origin, log)
}

// prepare compiles the queries.
func (s *Snapshot) prepare(origin string, log *slog.Logger) Problems {
	for _, q := range []struct {
		query *query
		text  string
	}{
		{&s.allow, "data.mcp.authz.allow"},
		{&s.call, "data.mcp.authz.call"},
		{&s.reasons, "data.mcp.authz.reasons"},
		{&s.scopes, "data.mcp.authz.scopes"},
	} {
		var err error
		if *q.query, err = s.program.prepare(q.text, log); err != nil {
			return opaProblems(origin, err)
		}
	}
	s.spans, s.lifetimes = planSpans(s.program.compiler, s.reads)
	first, err := s.newAsker(log)
	if err != nil {
		return opaProblems(origin, err)
	}
	s.askers.Put(first)
	s.askers.New = func() any {
		a, err := s.newAsker(log)
		if err != nil {
			panic(err) // the same query has compiled before
		}
		return a
	}
	return nil
}

// Revision names the policy and its data; equal revisions have equal files.
func (s *Snapshot) Revision() string { return s.revision }

// Bundles names the bundles that the policy is from, with the revision that each
// says it has; of a directory it is the name policy, with Revision.
func (s *Snapshot) Bundles() map[string]string { return s.bundles }

// HasCall reports whether the policy has the call gate, that is, any rule that
// could give data.mcp.authz.call a value, even one in a package of that name.
// Where it does, a call goes through only when Call allows it too.
func (s *Snapshot) HasCall() bool { return s.program.hasCall }

// Allow asks whether the principal may see and use the item. It never sees
// arguments.
func (s *Snapshot) Allow(ctx context.Context, q Question) Decision {
	// Of single answers only those that allow are kept, and only on things that
	// are known: a thing that is hidden has to take as long as one that does not
	// exist, and the names and URIs that clients can think of would never end.
	if !s.cache.usable() || !q.complete() || !q.Item.known {
		return s.decide(ctx, s.allow, &input{Question: q})
	}
	key := string(q.Item.append(s.cache.asker(q.Method, q.Subject, &q.Request), s.reads))
	kept, ok := s.cache.get(key)
	if ok && kept == allowed {
		s.cache.counters.hits.Add(1)
		if !s.cache.due() {
			return kept.decision()
		}
		d := s.decide(ctx, s.allow, &input{Question: q})
		s.cache.compare(kept.decision(), d)
		return d
	}
	s.cache.counters.misses.Add(1)
	d := s.decide(ctx, s.allow, &input{Question: q})
	if d.Allowed {
		s.cache.keep(key, d)
	}
	return d
}

// Call asks whether this very call may go through. arguments is the JSON object
// that will be forwarded, or nil where the call has none. Ask Allow first, and
// Call only where HasCall; without such a rule it denies as undefined.
func (s *Snapshot) Call(ctx context.Context, q Question, arguments jsontext.Value) Decision {
	leave, err := s.room(ctx, arguments)
	if err != nil {
		return failed(err)
	}
	defer leave()
	return s.decide(ctx, s.call, &input{q, arguments})
}

// largeArguments is from how many bytes on arguments are large. Few tools are
// ever sent as much.
const largeArguments = 256 << 10

// room waits for a place for a question with these arguments, within the
// deadline. The caller leaves it.
func (s *Snapshot) room(ctx context.Context, arguments jsontext.Value) (leave func(), err error) {
	if len(arguments) < largeArguments {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	select {
	case s.large <- struct{}{}:
		return func() { <-s.large }, nil
	case <-ctx.Done():
		return nil, stopped(ctx.Err())
	}
}

// decide asks one query about one input.
func (s *Snapshot) decide(ctx context.Context, q query, in *input) Decision {
	t, err := in.term(in.Request.term())
	if err != nil {
		return failed(err)
	}
	return s.decideTerm(ctx, q, t)
}

func (s *Snapshot) decideTerm(ctx context.Context, q query, in *ast.Term) Decision {
	answer, err := s.program.eval(ctx, s.deadline, q, in.Value)
	if err != nil {
		return failed(err)
	}
	return decision(answer)
}

// decision judges an answer; nil is undefined.
func decision(answer *ast.Term) Decision {
	if answer == nil {
		return Decision{Code: CodeUndefined}
	}
	allowed, ok := answer.Value.(ast.Boolean)
	if !ok {
		return Decision{Code: CodeType, Err: typeError(answer)}
	}
	return Decision{Allowed: bool(allowed)}
}
