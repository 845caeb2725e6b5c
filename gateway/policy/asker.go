package policy

import (
	"context"
	"log/slog"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// answerVar is what the query of an asker binds.
const answerVar = ast.Var("answer")

// asker asks allow about one thing after the other, each time with the very input
// that a single question would have, and keeps in between what is the same for
// all of them. It is not safe for concurrent use.
type asker struct {
	query  *topdown.Query
	shared *sharing
}

// newAsker compiles the query; it fails as a query of a good policy never does.
func (s *Snapshot) newAsker(log *slog.Logger) (*asker, error) {
	qc := s.program.compiler.QueryCompiler()
	body, err := qc.Compile(ast.MustParseBody(string(answerVar) + " = data.mcp.authz.allow"))
	if err != nil {
		return nil, err
	}
	shared := newSharing(s.spans, s.lifetimes)
	q := topdown.NewQuery(body).
		WithQueryCompiler(qc).
		WithCompiler(s.program.compiler).
		WithStore(s.program.store).
		WithTransaction(s.program.txn).
		WithMetrics(metrics.NoOp()).
		WithIndexing(s.program.indexed).
		WithEarlyExit(true).
		WithStrictBuiltinErrors(true).
		WithPrintHook(printer{log}).
		WithVirtualCache(shared)
	return &asker{q, shared}, nil
}

// ask answers for each input that next gives, with its place among the classes,
// until it gives none.
func (s *Snapshot) ask(ctx context.Context, a *asker, c *classes, next func() (in *ast.Term, at int, d *Decision)) {
	a.shared.begin(c)
	a.query.WithTime(time.Now())
	interrupt, release := interruptible(ctx)
	defer func() { release() }()
	for in, at, d := next(); in != nil; in, at, d = next() {
		if err := ctx.Err(); err != nil {
			*d = failed(stopped(err))
			continue
		}
		late := time.AfterFunc(s.deadline, interrupt.Cancel)
		a.shared.next(at)
		answer, err := a.answer(ctx, interrupt, in)
		onTime := late.Stop()
		switch {
		case err == nil:
			*d = decision(answer)
		case ctx.Err() != nil:
			*d = failed(stopped(ctx.Err()))
		case !onTime:
			*d = failed(stopped(context.DeadlineExceeded))
		default:
			*d = failed(err)
		}
		if !onTime { // it may strike any time now
			release()
			interrupt, release = interruptible(ctx)
		}
	}
}

// interruptible returns what ends an evaluation when ctx is done.
func interruptible(ctx context.Context) (interrupt topdown.Cancel, release func()) {
	interrupt = topdown.NewCancel()
	stop := context.AfterFunc(ctx, interrupt.Cancel)
	return interrupt, func() { stop() }
}

// answer evaluates; nil is undefined.
func (a *asker) answer(ctx context.Context, interrupt topdown.Cancel, in *ast.Term) (answer *ast.Term, err error) {
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, panicked(r)
		}
		if err != nil {
			a.shared.forget()
		}
	}()
	results := 0
	err = a.query.WithInput(in).WithCancel(interrupt).Iter(ctx, func(r topdown.QueryResult) error {
		results++
		answer = r[answerVar]
		return nil
	})
	switch {
	case err != nil:
		return nil, evalError(err)
	case results > 1:
		return nil, &failure{CodeError, "the query has more than one result"}
	}
	return answer, nil
}
