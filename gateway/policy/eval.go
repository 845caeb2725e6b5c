package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/print"
)

// query is one question in Rego, compiled.
type query = rego.PreparedEvalQuery

func (p *program) prepare(text string, log *slog.Logger) (query, error) {
	return rego.New(
		rego.Query(text),
		rego.Compiler(p.compiler),
		rego.Store(p.store),
		rego.Transaction(p.txn),
		// Otherwise a failing built-in is undefined, and `not` of it true.
		rego.StrictBuiltinErrors(true),
		rego.PrintHook(printer{log}),
		rego.GenerateJSON(func(t *ast.Term, _ *rego.EvalContext) (any, error) { return t, nil }),
	).PrepareForEval(context.Background())
}

// eval returns the query's value for the input, nil where it has none. It
// returns within the deadline, but for one call of a built-in that does not
// look up meanwhile.
//
// Every evaluation of a snapshot comes through here. It depends on the snapshot,
// the query and the input and on nothing else (time.now_ns and what the operator
// turned on apart), so a cache of answers belongs in front of it, inside the
// snapshot.
func (p *program) eval(ctx context.Context, deadline time.Duration, q query, in ast.Value) (answer *ast.Term, err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, stopped(err)
	}
	// Without a cancel of ours, OPA starts a goroutine for each evaluation.
	interrupt := topdown.NewCancel()
	defer context.AfterFunc(ctx, interrupt.Cancel)()
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, panicked(r)
		}
	}()
	results, err := q.Eval(ctx,
		rego.EvalParsedInput(in),
		rego.EvalTransaction(p.txn),
		rego.EvalRuleIndexing(p.indexed),
		rego.EvalMetrics(metrics.NoOp()),
		rego.EvalExternalCancel(interrupt))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, stopped(ctx.Err())
	case err != nil:
		return nil, evalError(err)
	case len(results) == 0:
		return nil, nil
	case len(results) > 1 || len(results[0].Expressions) != 1:
		return nil, &failure{CodeError, "the query has more than one result"}
	}
	answer, ok := results[0].Expressions[0].Value.(*ast.Term)
	if !ok || answer == nil {
		return nil, &failure{CodeError, "the query's result is not a term"}
	}
	return answer, nil
}

// failure is an evaluation without an answer. Its text holds no values of the
// input, which OPA's own messages may.
type failure struct{ code, text string }

func (f *failure) Error() string { return f.text }

var errIncomplete = &failure{CodeError, "the question lacks its method, its subject or its item"}

// failed is the decision where an error stands in place of an answer.
func failed(err error) Decision {
	d := Decision{Code: CodeError, Err: err}
	var f *failure
	if errors.As(err, &f) {
		d.Code = f.code
	}
	return d
}

func stopped(cause error) *failure {
	if errors.Is(cause, context.DeadlineExceeded) {
		return &failure{CodeTimeout, "the policy did not answer before the deadline"}
	}
	return &failure{CodeCancelled, "the caller went away before the policy answered"}
}

func panicked(r any) *failure {
	text := "the evaluation panicked"
	if err, ok := r.(runtime.Error); ok {
		text += ": " + oneLine(err.Error())
	}
	return &failure{CodeError, text}
}

func typeError(answer *ast.Term) *failure {
	return &failure{CodeType, "the answer is of type " + ast.ValueName(answer.Value) + ", not a boolean"}
}

// evalError keeps of OPA's error where and what, and drops the values that a
// built-in could not deal with.
func evalError(err error) *failure {
	var e *topdown.Error
	if !errors.As(err, &e) {
		return &failure{CodeError, "the evaluation failed"}
	}
	text := e.Code
	what, rest, _ := strings.Cut(e.Message, ":")
	switch e.Code {
	case topdown.ConflictErr, topdown.WithMergeErr, topdown.BuiltinErr:
		text += ": " + what
	case topdown.TypeErr:
		text += ": " + what
		if operand, _, ok := strings.Cut(rest, " must be "); ok {
			text += ": " + operand + " is of the wrong type"
		}
	}
	if e.Location != nil {
		text = fmt.Sprintf("%s:%d: %s", e.Location.File, e.Location.Row, text)
	}
	return &failure{CodeError, oneLine(text)}
}

// printer sends what a policy prints to the log. Whoever writes print(input)
// asks for the input to be there.
type printer struct{ log *slog.Logger }

func (p printer) Print(c print.Context, text string) error {
	p.log.LogAttrs(c.Context, slog.LevelDebug, "policy print",
		slog.String("at", c.Location.String()), slog.String("text", text))
	return nil
}
