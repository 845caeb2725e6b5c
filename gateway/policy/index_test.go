package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// literal is a constant that a built-in takes where it declares typ.
func literal(typ types.Type) string {
	switch typ := typ.(type) {
	case *types.NamedType:
		return literal(typ.Type)
	case types.Any:
		for _, one := range typ {
			if _, null := one.(types.Null); !null {
				return literal(one)
			}
		}
	case *types.Array:
		return `["a"]`
	case *types.Set:
		return `{"a"}`
	case *types.Object:
		return `{"a": "a"}`
	case types.Number:
		return "1"
	case types.Boolean:
		return "true"
	}
	return `"a"`
}

// denyBy is a policy that allows unless the built-in, with the claim in one
// operand's place, holds.
func denyBy(b *ast.Builtin, place int) string {
	args := make([]string, b.Decl.Arity())
	for i, typ := range b.Decl.FuncArgs().Args {
		args[i] = literal(typ)
	}
	args[place] = "input.claims.x"
	return fmt.Sprintf("default allow := false\nallow if not _deny\n_deny if %s(%s)", b.Name, strings.Join(args, ", "))
}

// The rule index must not change an answer: whatever built-in gets a value of
// whatever type, evaluating with the index says what evaluating without it says.
// It fails when a release of OPA indexes one more built-in that can fail.
func TestIndexChangesNothing(t *testing.T) {
	claims := []string{`{}`, `{"x": 5}`, `{"x": "a"}`, `{"x": null}`, `{"x": ["a"]}`, `{"x": {"a": "a"}}`, `{"x": true}`}
	caps, err := capabilities(nil)
	if err != nil {
		t.Fatal(err)
	}
	tried, hidden := 0, map[string]bool{}
	for _, b := range caps.Builtins {
		for place := range b.Decl.Arity() {
			e, err := New(Config{FS: files(denyBy(b, place), "")}, discard())
			if err != nil {
				continue // cannot stand there, such as assign or print
			}
			tried++
			s := e.Current()
			s.cache = nil // each answer is to be evaluated
			indexed := s.program.indexed
			for _, c := range claims {
				q := ask(t, c, alpha())
				answers := map[bool]string{}
				for _, s.program.indexed = range []bool{true, false} {
					answers[s.program.indexed] = show(s.Allow(context.Background(), q))
				}
				switch {
				case answers[true] == answers[false]:
				case indexed:
					t.Errorf("%s, operand %d, claims %s: with the index %s, without %s", b.Name, place+1, c, answers[true], answers[false])
				default:
					hidden[b.Name] = true
				}
			}
		}
	}
	if tried < 200 {
		t.Errorf("only %d policies could be tried", tried)
	}
	for _, name := range forgivenBuiltins() {
		if !hidden[name] {
			t.Errorf("the index hides no failure of %s any more: take it off the list", name)
		}
	}
}

// Everything else a policy may do is the same with and without the index too.
func TestIndexedPolicies(t *testing.T) {
	s := load(t, `default allow := false
allow if { input.claims.role == "a"; input.tool.server == "alpha"; not _deny }
allow if { "b" in input.claims.roles; input.tool.effect in {"read", "write"} }
allow if { some role in input.claims.roles; data.mcp.grants[role][_] == input.tool.name }
_deny if input.claims.x != 1
_deny if to_number(input.claims.y) > 1`, `{"mcp": {"grants": {"c": ["read"]}}}`)
	if !s.program.indexed {
		t.Fatal("evaluated without the index")
	}
	for _, claims := range []string{
		`{}`, `{"role": "a"}`, `{"role": "a", "x": 1}`, `{"role": "a", "x": 1, "y": "z"}`, `{"role": "a", "x": 2}`,
		`{"roles": ["b"]}`, `{"roles": ["c"]}`, `{"roles": "b"}`, `{"roles": [["c"], null]}`, `{"roles": {"b": "b"}}`,
	} {
		var answers []string
		for _, s.program.indexed = range []bool{true, false} {
			answers = append(answers, show(both(t, s, ask(t, claims, alpha()))))
		}
		if len(slices.Compact(answers)) != 1 {
			t.Errorf("%s: %v", claims, answers)
		}
	}
}
