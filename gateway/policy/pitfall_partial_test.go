package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	opacompile "github.com/open-policy-agent/opa/v1/compile"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"pgregory.net/rapid"
)

// suspended is the shape that partial evaluation gets wrong: a variable without a
// value makes the rule undefined, the reference in its place makes `not` of it true.
const suspended = `default allow := false

allow if {
	v := input.claims.suspended
	not v
}
`

// plain is what OPA answers without anything of ours: true, false,
// undefined, error or type.
func plain(t testing.TB, in string, indexed bool, options ...func(*rego.Rego)) string {
	t.Helper()
	value, err := ast.ValueFromReader(bytes.NewReader([]byte(in)))
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := rego.New(append(options, rego.Query("data.mcp.authz.allow"))...).PrepareForEval(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	results, err := prepared.Eval(context.Background(), rego.EvalParsedInput(value), rego.EvalRuleIndexing(indexed))
	switch {
	case err != nil:
		return "error"
	case len(results) == 0:
		return "undefined"
	}
	if _, ok := results[0].Expressions[0].Value.(bool); !ok {
		return "type"
	}
	return fmt.Sprint(results[0].Expressions[0].Value)
}

func entryModule(rego string) string { return "package mcp.authz\n\n" + rego }

// optimised is the policy as `opa build -O=2 -e mcp/authz/allow` leaves it.
func optimised(t *testing.T, text string) map[string]string {
	t.Helper()
	c := opacompile.New().
		WithFS(fstest.MapFS{"authz.rego": {Data: []byte(entryModule(text))}}).
		WithPaths("authz.rego").
		WithEntrypoints("mcp/authz/allow").
		WithOptimizationLevel(2).
		WithRegoVersion(ast.RegoV1)
	if err := c.Build(context.Background()); err != nil {
		t.Fatal(err)
	}
	built := map[string]string{}
	for i, m := range c.Bundle().Modules {
		built[fmt.Sprintf("%d.rego", i)] = string(m.Raw)
	}
	return built
}

// Partial evaluation and optimised bundles fail open. The engine uses neither, and
// answers as plain evaluation does.
func TestPartialEvaluationFailsOpen(t *testing.T) {
	const absent = `{"claims": {}}`
	s := load(t, suspended, "")
	if got := show(both(t, s, ask(t, `{}`, alpha()))); got != "false" {
		t.Errorf("the engine answers %s, want false", got)
	}
	if got := plain(t, absent, true, rego.Module("authz.rego", entryModule(suspended))); got != "false" {
		t.Errorf("OPA answers %s, want false", got)
	}
	partial, err := rego.New(rego.Query("data.mcp.authz.allow"), rego.Module("authz.rego", entryModule(suspended))).PartialResult(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	results, err := partial.Rego(rego.Input(map[string]any{"claims": map[string]any{}})).Eval(context.Background())
	if err != nil || len(results) != 1 || results[0].Expressions[0].Value != true {
		t.Errorf("partial evaluation answers %v, %v: it failed open before", results, err)
	}
	var modules []func(*rego.Rego)
	for name, text := range optimised(t, suspended) {
		modules = append(modules, rego.Module(name, text))
	}
	if got := plain(t, absent, true, modules...); got != "true" {
		t.Errorf("the optimised policy answers %s: it failed open before", got)
	}
}

// Whatever the policy, the engine's answer is that of OPA's plain evaluation with
// strict errors, which knows nothing of what is shared between the things of a list.
// The rule index decides whether a rule that fails is looked at at all, and so
// whether no is an error; where it is off in the engine, it is off here.
func TestEngineIsPlainEvaluation(t *testing.T) {
	const data = `{"mcp": {"grants": {"a": ["read", "x"], "b": ["write", "y", 5], "c": {"k": "read"}}}}`
	var roots map[string]any
	if err := json.Unmarshal([]byte(data), &roots); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		text := randomPolicy(rt)
		s := load(t, text, data, func(c *Config) {
			c.Check, c.Deadline, c.ListDeadline = CheckWarn, time.Minute, time.Minute
		})
		claims := rapid.SampledFrom([]string{
			`{}`, `{"role": "a", "roles": ["a"], "level": 1}`, `{"role": "b", "roles": ["x", "y"], "level": "1"}`,
			`{"role": "c", "roles": "a"}`, `{"role": ["a"], "roles": null}`,
		}).Draw(rt, "claims")
		q := Question{Method: "tools/call", Subject: subject(t, claims)}
		items := rapid.SliceOfN(rapid.Custom(randomItem), 1, 6).Draw(rt, "items")
		answers := each(t, s, q.Subject, NewItems(items))
		for i, item := range items {
			in := input{Question: q}
			in.Item = item
			in.Request = Request{ID: "r1"}
			document, err := in.term(in.Request.term())
			if err != nil {
				t.Fatal(err)
			}
			want := plain(t, document.String(), s.program.indexed, rego.Module("authz.rego", entryModule(text)), rego.StrictBuiltinErrors(true), rego.Store(inmem.NewFromObject(roots)))
			d := answers[i]
			got := fmt.Sprint(d.Allowed)
			switch d.Code {
			case CodeUndefined:
				got = "undefined"
			case CodeError:
				got = "error"
			case CodeType:
				got = "type"
			}
			seen[got]++
			if got != want {
				rt.Fatalf("%s\n%s\nthe engine answers %s, OPA %s", text, document, got, want)
			}
		}
	})
	for _, answer := range []string{"true", "false", "undefined", "error", "type"} {
		if seen[answer] == 0 {
			t.Errorf("nothing was answered %s: %v", answer, seen)
		}
	}
}
