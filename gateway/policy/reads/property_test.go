package reads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

const cfg = `{"cfg": {"a": {"a": 1, "b": "a"}, "b": [1, "a"], "c": "b", "1": true}}`

// subject is a policy, compiled, with what it reads.
type subject struct {
	text  string
	reads *Reads
	query rego.PreparedEvalQuery
	txn   storage.Transaction
}

// compile returns nil where the policy is none.
func compile(text string, f faults) *subject {
	m, err := ast.ParseModuleWithOpts("authz.rego", text, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil {
		return nil
	}
	c := ast.NewCompiler()
	if c.Compile(map[string]*ast.Module{"authz.rego": m}); c.Failed() {
		return nil
	}
	ctx := context.Background()
	store := inmem.NewFromASTObject(ast.MustParseTerm(cfg).Value.(ast.Object))
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		panic(err)
	}
	q, err := rego.New(rego.Query("data.mcp.authz.allow"), rego.Compiler(c), rego.Store(store), rego.Transaction(txn),
		rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
	if err != nil {
		return nil
	}
	return &subject{text, analyse(c, ast.MustParseRef("data.mcp.authz.allow"), f), q, txn}
}

// key is what answers are kept under.
func (s *subject) key(in map[string]*ast.Term) string {
	var key []byte
	for _, m := range members {
		var v ast.Value
		if in[m] != nil {
			v = in[m].Value
		}
		key = s.reads.Append(key, m, v)
	}
	return string(key)
}

// answer is what evaluation says: a value, undefined or an error.
func (s *subject) answer(in map[string]*ast.Term) string {
	results, err := s.query.Eval(context.Background(), rego.EvalParsedInput(document(in)), rego.EvalTransaction(s.txn))
	switch {
	case err != nil:
		return "error"
	case len(results) == 0:
		return "undefined"
	}
	return fmt.Sprint(results[0].Expressions[0].Value)
}

// hunt compares answers of inputs with equal keys. It returns how many pairs of
// different inputs it compared, and a counterexample, "" where there is none.
func (s *subject) hunt(g *grammar, inputs int) (trials int, found string) {
	type first struct {
		answer string
		in     map[string]*ast.Term
	}
	known := map[string]first{}
	var base map[string]*ast.Term
	for n := range inputs {
		if n%12 == 0 {
			base = g.input()
		}
		in := g.mutate(base)
		if n%12 == 0 {
			in = base
		}
		key, answer := s.key(in), s.answer(in)
		before, ok := known[key]
		if !ok {
			known[key] = first{answer, in}
			continue
		}
		if document(before.in).Compare(document(in)) == 0 {
			continue
		}
		trials++
		if before.answer != answer {
			return trials, fmt.Sprintf("%s\nreads %v\n%v: %s\n%v: %s", s.text, s.reads.Input(),
				document(before.in), before.answer, document(in), answer)
		}
	}
	return trials, ""
}

// search hunts in random policies, on all processors, until enough pairs have
// been compared or a counterexample is found.
func search(seed uint64, f faults, enough int64) (trials, policies int64, found string) {
	var compared, tried, next atomic.Int64
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for compared.Load() < enough {
				g := &grammar{Rand: rand.New(rand.NewPCG(seed, uint64(next.Add(1))))}
				s := compile(g.policy(), f)
				if s == nil || s.reads.Unsafe != "" {
					continue
				}
				tried.Add(1)
				n, counterexample := s.hunt(g, 120)
				compared.Add(int64(n))
				if counterexample != "" {
					mu.Lock()
					found = counterexample
					mu.Unlock()
					compared.Add(enough)
				}
			}
		})
	}
	workers.Wait()
	return compared.Load(), tried.Load(), found
}

// Inputs that agree on what the analysis says is read have the same answer: in
// more than 100,000 pairs of inputs, of random policies that use the whole
// language.
func TestEqualKeysEqualAnswers(t *testing.T) {
	trials, policies, found := search(1, faults{}, 100_000)
	if found != "" {
		t.Fatal(found)
	}
	if trials < 100_000 || policies < 1_000 {
		t.Errorf("only %d pairs of %d policies", trials, policies)
	}
	t.Logf("%d pairs of %d policies", trials, policies)
}

// The property has teeth: each way to get the analysis wrong is found out by a
// policy that depends on it, and the analysis as it is stands up to all of these.
func TestFaultsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		faults faults
		rules  string
	}{
		"else": {faults{noElse: true}, `allow if h == 1
h := 1 if { input.claims.a == 1 } else := 1 if { input.tool.a == 1 }`},
		"with": {faults{noWith: true}, `allow if count([1]) == 1 with count as h
h(_) := input.claims.b`},
		"comprehensions": {faults{noComprehension: true}, `allow if count([1 | input.claims.a == 1]) > 0`},
		"functions": {faults{noFunction: true}, `allow if f(1)
f(_) if input.claims.a == 1`},
		"every": {faults{noEvery: true}, `allow if every x in [1, 2] { input.claims.a != x }`},
		"heads": {faults{noHead: true}, `allow if h == 1
h := input.claims.a`},
		"references by variables": {faults{noDynamic: true}, `allow if { some n in ["h"]; data.mcp.authz[n] == 1 }
h := 1 if input.claims.a == 1`},
		"whether there is an argument": {faults{noPresence: true}, `allow if f(input.claims.a)
f(_) := true`},
		"arguments that are used whole": {faults{noArguments: true}, `allow if f(input.claims.a)
f(x) if { y := [x]; y == [1] }`},
		"conflicts": {faults{anySingle: true}, `allow if h.a == 1
h := input.claims.a
h := input.claims.b`},
	} {
		t.Run(name, func(t *testing.T) {
			text := "package mcp.authz\n\n" + c.rules
			for _, f := range []faults{c.faults, {}} {
				g := &grammar{Rand: rand.New(rand.NewPCG(3, 3))}
				trials, found := compile(text, f).hunt(g, 6_000)
				if (found != "") != (f == c.faults) {
					t.Errorf("%+v: %d pairs, found %q", f, trials, found)
				}
			}
		})
	}
}

// FuzzEqualKeysEqualAnswers looks for a policy and inputs that agree on what is
// read and have different answers.
func FuzzEqualKeysEqualAnswers(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed*seed)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		g := &grammar{Rand: rand.New(rand.NewPCG(a, b))}
		s := compile(g.policy(), faults{})
		if s == nil || s.reads.Unsafe != "" {
			return
		}
		if _, found := s.hunt(g, 200); found != "" {
			t.Error(found)
		}
	})
}
