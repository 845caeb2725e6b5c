package policy

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Snapshot is one revision of the policy, ready to answer. It is immutable and
// safe for concurrent use, and stays valid after newer ones have taken its
// place; a request keeps to the snapshot that it began with. No method blocks
// on anything but its own evaluation, and all return when ctx is done or the
// deadline has passed.
type Snapshot struct {
	revision     string
	program      *program
	deadline     time.Duration
	listDeadline time.Duration

	allow, allowEach, call, reasons, scopes query

	// lists has a place for each list that is evaluated at a time, as many as
	// there are processors. More at once would only all be slow together, and
	// then run into the deadline of each evaluation.
	lists chan struct{}

	// large has as many places for questions with large arguments, whose terms
	// weigh thirty times what the client sent.
	large chan struct{}

	memo *memo // nil where allow is not repeatable
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

// chunk is how many items of a list are asked about in one evaluation. An item
// that fails makes its own chunk slow and no other; above some dozens a larger
// chunk is no faster.
const chunk = 64

// newSnapshot compiles the files and asks the policy for its own problems. The print calls of a policy go to log at debug
// level; where nobody listens at that level they are compiled away.
func newSnapshot(t *tree, cfg Config, log *slog.Logger) (s *Snapshot, problems Problems) {
	// A file that a parser or compiler trips over must not end the process.
	defer func() {
		if r := recover(); r != nil {
			s, problems = nil, Problems{{File: t.prefix, Message: oneLine(fmt.Sprint("loading the policy panicked: ", r))}}
		}
	}()
	caps, err := capabilities(cfg.InsecureBuiltins)
	if err != nil {
		return nil, Problems{{Message: err.Error()}}
	}
	p, problems := compile(t, caps, log.Enabled(context.Background(), slog.LevelDebug))
	if len(problems) > 0 {
		return nil, problems
	}
	if problems := p.ownProblems(cfg.Deadline, t.prefix, log); len(problems) > 0 {
		return nil, problems
	}
	s = &Snapshot{
		revision: t.revision, program: p, deadline: cfg.Deadline, listDeadline: cfg.ListDeadline,
		lists: make(chan struct{}, runtime.GOMAXPROCS(0)),
		large: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	if repeatable(p.compiler, entry("allow")) {
		s.memo = newMemo()
	}
	for _, q := range []struct {
		query *query
		text  string
	}{
		{&s.allow, "data.mcp.authz.allow"},
		{&s.call, "data.mcp.authz.call"},
		{&s.reasons, "data.mcp.authz.reasons"},
		{&s.scopes, "data.mcp.authz.scopes"},
		// Each element of the array is a whole input, the very one that allow
		// would be asked with alone. Items without an answer are left out.
		{&s.allowEach, "{i: answer | some i, item in input; answer = data.mcp.authz.allow with input as item}"},
	} {
		if *q.query, err = p.prepare(q.text, log); err != nil {
			return nil, opaProblems(t.prefix, err)
		}
	}
	return s, nil
}

// Revision names the policy and its data; equal revisions have equal files.
func (s *Snapshot) Revision() string { return s.revision }

// HasCall reports whether the policy has the call gate, that is, any rule that
// could give data.mcp.authz.call a value, even one in a package of that name.
// Where it does, a call goes through only when Call allows it too.
func (s *Snapshot) HasCall() bool { return s.program.hasCall }

// Allow asks whether the principal may see and use the item. It never sees
// arguments.
func (s *Snapshot) Allow(ctx context.Context, q Question) Decision {
	if s.memo.allows(&q) {
		return Decision{Allowed: true}
	}
	d := s.decide(ctx, s.allow, &input{Question: q})
	s.memo.keepOne(&q, d)
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

// AllowEach answers Allow for every item, in their order, and gives the same
// answers. unfinished is "" when every item was judged, one that took longer than
// a decision may and is denied for that included. Otherwise the time for the list
// was over first, CodeTimeout, or the caller went away, CodeCancelled: the items
// that were not judged by then are denied with that code, and the decisions say
// nothing about the list as a whole.
func (s *Snapshot) AllowEach(ctx context.Context, subject *Subject, items *Items, method string, request Request) (decisions []Decision, unfinished string) {
	ctx, cancel := context.WithTimeout(ctx, s.listDeadline)
	defer cancel()
	decisions = make([]Decision, items.Len())
	key := listKey{method, subject, items}
	if s.memo.list(key, decisions) {
		return decisions, ""
	}
	select {
	case s.lists <- struct{}{}:
		defer func() { <-s.lists }()
	case <-ctx.Done():
		for i := range decisions {
			decisions[i] = failed(stopped(ctx.Err()))
			unfinished = decisions[i].Code
		}
		return decisions, unfinished
	}
	if s.memo.list(key, decisions) { // whoever had the place before may have asked the same
		return decisions, ""
	}
	in := input{Question: Question{Method: method, Subject: subject, Request: request}}
	requestTerm := request.term()
	for start := 0; start < len(decisions); start += chunk {
		var b batch
		for i := start; i < min(start+chunk, len(decisions)); i++ {
			in.Item = items.items[i]
			if t, err := in.term(requestTerm); err != nil {
				decisions[i] = failed(err)
			} else {
				b.add(t, &decisions[i])
			}
		}
		if code := s.decideBatch(ctx, &b); code != "" {
			unfinished = code
		}
	}
	s.memo.keepList(key, decisions)
	return decisions, unfinished
}

// batch is inputs with the place of the decision on each.
type batch struct {
	inputs    []*ast.Term
	decisions []*Decision
}

func (b *batch) add(input *ast.Term, d *Decision) {
	b.inputs = append(b.inputs, input)
	b.decisions = append(b.decisions, d)
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

// decideBatch asks about all inputs at once, and where that fails, about one
// after the other, so that each gets the answer that it would get alone. Where
// ctx ends before the last of them has, it returns the code of the undecided.
func (s *Snapshot) decideBatch(ctx context.Context, b *batch) (unfinished string) {
	answer, err := s.program.eval(ctx, s.deadline, s.allowEach, ast.NewArray(b.inputs...))
	if err == nil && answer != nil {
		if answers, ok := answer.Value.(ast.Object); ok {
			for i, d := range b.decisions {
				*d = decision(answers.Get(ast.IntNumberTerm(i)))
			}
			return ""
		}
	}
	for i, d := range b.decisions {
		*d = s.decideTerm(ctx, s.allow, b.inputs[i])
		if ctx.Err() != nil && (d.Code == CodeTimeout || d.Code == CodeCancelled) {
			unfinished = d.Code
		}
	}
	return unfinished
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
