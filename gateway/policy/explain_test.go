package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		name, rego, arguments string
		want                  string // reasons, private reasons, scopes, error
	}{
		{"none", ``, "", "[] [] [] <nil>"},
		{"sets", `reasons contains "too_much" if input.arguments.amount > 5
reasons contains "always" if true
scopes contains "pay:write" if input.arguments.amount > 5`, `{"amount": 6}`, "[always too_much] [] [pay:write] <nil>"},
		{"without arguments", `reasons contains "too_much" if input.arguments.amount > 5`, "", "[] [] [] <nil>"},
		{"arrays", `reasons := ["b", "a", "b"]
scopes := ["s"]`, "", "[a b] [] [s] <nil>"},
		{"what is no code stays private", `reasons := {"Upper", "1st", "", "with space", 5, {"a": 1}, "` + long + `", "a` + long + `"}`, "",
			`[` + long + `] ["" "1st" "Upper" "a` + long + `" "with space" 5 {"a": 1}] [] <nil>`},
		{"long reasons are cut", `reasons contains sprintf("%s é", [concat("", [x | some _ in numbers.range(1, 254); x := "a"])])`, "",
			`[] ["` + strings.Repeat("a", 254) + ` …] [] <nil>`},
		{"no scope", `scopes := {"a b", "ok", "x\"y", 5}`, "", "[] [] [ok] scopes: a value of scopes is not an OAuth scope"},
		{"not a set", `reasons := "a"
scopes := {"a": "b"}`, "", "[] [] [] reasons: the value is of type string, not a set of strings\nscopes: the value is of type object, not a set of strings"},
		{"one fails, the other does not", `reasons contains "a" if to_number(input.claims.x) > 1
scopes contains "s"`, "", "[] [] [s] reasons: authz.rego:4: eval_builtin_error: to_number"},
		{"too many", `reasons := {x | some i in numbers.range(1, 100); x := sprintf("r%03d", [i])}`, "",
			fmt.Sprintf("%v [] [] reasons: more than 32 values", numbered(32))},
		{"bad arguments", `reasons contains "a"`, "[", "[] [] [] read the arguments for the policy: not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := load(t, "allow if false\n"+c.rego, "")
			var arguments []byte
			if c.arguments != "" {
				arguments = []byte(c.arguments)
			}
			e := s.Explain(context.Background(), ask(t, `{"x": "private"}`, alpha()), arguments)
			slices.Sort(e.Private)
			if got := fmt.Sprint(e.Reasons, e.Private, e.Scopes, e.Err); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func numbered(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("r%03d", i+1))
	}
	return out
}
