package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/rego"
)

// Without strict errors a built-in that fails is undefined, and `not` of it allows.
// That is OPA's default, and what `opa eval` does without --strict-builtin-errors.
func TestFailingBuiltinsFailOpenElsewhere(t *testing.T) {
	const text = `default allow := false

allow if not _over

_over if to_number(input.claims.level) > 3
`
	const in = `{"claims": {"level": "abc"}}`
	if got := plain(t, in, true, rego.Module("authz.rego", entryModule(text))); got != "true" {
		t.Errorf("OPA by default answers %s: it failed open before", got)
	}
	if got := plain(t, in, true, rego.Module("authz.rego", entryModule(text)), rego.StrictBuiltinErrors(true)); got != "error" {
		t.Errorf("OPA with strict errors answers %s", got)
	}
	const want = "false policy_error: authz.rego:7: eval_builtin_error: to_number"
	if got := show(both(t, load(t, text, ""), ask(t, `{"level": "abc"}`, alpha()))); got != want {
		t.Errorf("the engine answers\n%s, want\n%s", got, want)
	}
}

// A rule that depends on the claims alone fails for each thing of a list, also when
// it is asked for again: the undefined that OPA goes on with is shared with none.
// The things in between, which do not ask for it, have their answers.
func TestFailureIsNotShared(t *testing.T) {
	s := load(t, `default allow := false

allow if input.tool.owner == "free"

allow if {
	input.tool.owner != "free"
	not _over
}

_over if to_number(input.claims.level) > 3
`, "")
	var items []*Item
	for i := range 90 {
		tool := alpha()
		tool.Name, tool.Owner = fmt.Sprint("t", i), fmt.Sprint("team-", i)
		if i%3 == 2 {
			tool.Owner = "free"
		}
		items = append(items, item(t, tool))
	}
	for level, rest := range map[string]string{"abc": CodeError, "2": "", "4": ""} {
		for i, d := range each(t, s, subject(t, `{"level": "`+level+`"}`), NewItems(items)) {
			allowed, code := level == "2", rest
			if i%3 == 2 {
				allowed, code = true, ""
			}
			if d.Allowed != allowed || d.Code != code {
				t.Fatalf("level %s, item %d: got %s, want %v %s", level, i, show(d), allowed, code)
			}
		}
	}
}

// What a negated call is given has to be there: `not` is about the call alone. A
// rule of its own is negated as a whole.
func TestNegatedCalls(t *testing.T) {
	for _, c := range []struct{ rego, absent, present string }{
		{`allow if not startswith(input.claims.x, "fin")`, "false policy_undefined", "true"},
		{"allow if not _finance\n_finance if startswith(input.claims.x, \"fin\")", "true", "true"},
		{`allow if not input.claims.x`, "true", "false policy_undefined"},
	} {
		s := load(t, c.rego, "")
		if got := show(both(t, s, ask(t, `{}`, alpha()))); got != c.absent {
			t.Errorf("%s, absent: got %s, want %s", c.rego, got, c.absent)
		}
		if got := show(both(t, s, ask(t, `{"x": "sales"}`, alpha()))); got != c.present {
			t.Errorf("%s, present: got %s, want %s", c.rego, got, c.present)
		}
	}
}

// OPA looks for the end only between calls of built-ins, so one long call overruns
// the deadline. What comes after it does not count any more: the answer is no.
func TestDeadlineWithinOneBuiltin(t *testing.T) {
	values := "[" + strings.TrimSuffix(strings.Repeat("[1,2,3],", 100_000), ",") + "]"
	for _, c := range []struct{ condition, want string }{
		{`count(json.unmarshal(input.arguments.text)) == 100000`, "true"},
		{`regex.match(input.arguments.pattern, "ab")`, "true"},
		{`not regex.match(input.arguments.pattern, "ab")`, "false"},
	} {
		text := "allow := true\n\ndefault call := false\n\ncall if {\n\t" + c.condition + "\n\tinput.tool.registered\n\tinput.tool.server == \"alpha\"\n}\n"
		// OPA keeps compiled patterns, so each is another one.
		pattern := fmt.Sprintf("%s(x%d)?", strings.Repeat("(a|b)?", 6_000), time.Now().UnixNano())
		arguments := jsontext.Value(`{"text": "` + values + `", "pattern": "` + pattern + `"}`)
		q := ask(t, `{}`, alpha())
		s := load(t, text, "", func(c *Config) { c.Deadline = 2 * time.Millisecond })
		if got := s.Call(context.Background(), q, arguments); got.Allowed || got.Code != CodeTimeout {
			t.Errorf("%s: got %s, want %s", c.condition, show(got), CodeTimeout)
		}
		s = load(t, text, "", func(c *Config) { c.Deadline, c.ListDeadline = time.Minute, time.Minute })
		if got := show(s.Call(context.Background(), q, arguments)); got != c.want {
			t.Errorf("%s, with time enough: got %s, want %s", c.condition, got, c.want)
		}
	}
}
