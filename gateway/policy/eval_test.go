package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// B070: a policy can tell servers apart by the configured name, and find a tool
// by its own and by its exposed name.
func TestNames(t *testing.T) {
	own := `allow if { input.tool.server == "alpha"; input.tool.name == "read" }`
	exposed := `allow if input.tool.exposed_name == "alpha__read"`
	beta := Tool{Server: "beta", Name: "read", ExposedName: "beta__read"}
	for _, rego := range []string{own, exposed} {
		s := load(t, rego, "")
		if got := show(both(t, s, ask(t, `{}`, alpha()))); got != "true" {
			t.Errorf("%s: alpha's read: %s", rego, got)
		}
		if got := show(both(t, s, ask(t, `{}`, beta))); got != "false policy_undefined" {
			t.Errorf("%s: beta's read: %s", rego, got)
		}
	}
}

// B073: what is not known is undefined and satisfies no positive condition. A
// deny rule alone is defeated by it, whoever evaluates; the second policy shows
// the shape that is not.
func TestMissingAttribute(t *testing.T) {
	onlyDeny := load(t, `default allow := false
allow if not _deny
_deny if input.tool.data == "secret"`, "")
	positive := load(t, `default allow := false
allow if { input.tool.registered; input.tool.data in {"public", "internal"} }`, "")
	for _, c := range []struct {
		name           string
		tool           Tool
		deny, positive string
	}{
		{"unregistered", Tool{Server: "alpha", Name: "wipe"}, "true", "false"},
		{"no entry for data", Tool{Server: "alpha", Name: "wipe", Registered: true}, "true", "false"},
		{"other case", Tool{Server: "alpha", Name: "wipe", Registered: true, Data: "SECRET"}, "true", "false"},
		{"secret", Tool{Server: "alpha", Name: "wipe", Registered: true, Data: "secret"}, "false", "false"},
		{"public", Tool{Server: "alpha", Name: "wipe", Registered: true, Data: "public"}, "true", "true"},
	} {
		q := ask(t, `{}`, c.tool)
		if got := show(both(t, onlyDeny, q)); got != c.deny {
			t.Errorf("%s: deny rule alone: got %s, want %s", c.name, got, c.deny)
		}
		if got := show(both(t, positive, q)); got != c.positive {
			t.Errorf("%s: positive rule: got %s, want %s", c.name, got, c.positive)
		}
	}
}

// B076: a built-in that fails denies; it is never an undefined that `not` makes
// true. The error tells where, and nothing of the value.
func TestBuiltinErrors(t *testing.T) {
	for _, c := range []struct{ condition, claims, want string }{
		{`startswith(input.claims.x, "fin")`, `{"x": ["private"]}`, "policy_error: authz.rego:5: eval_type_error: startswith: operand 1 is of the wrong type"},
		{`startswith(input.claims.x, "fin")`, `{"x": 5}`, "policy_error: authz.rego:5: eval_type_error: startswith: operand 1 is of the wrong type"},
		{`startswith(input.claims.x, "fin")`, `{"x": null}`, "policy_error: authz.rego:5: eval_type_error: startswith: operand 1 is of the wrong type"},
		{`json.unmarshal(input.claims.x)`, `{"x": "{private"}`, "policy_error: authz.rego:5: eval_builtin_error: json.unmarshal"},
		{`time.parse_rfc3339_ns(input.claims.x) > 0`, `{"x": "private"}`, "policy_error: authz.rego:5: eval_builtin_error: time.parse_rfc3339_ns"},
		{`to_number(input.claims.x) > 0`, `{"x": "private"}`, "policy_error: authz.rego:5: eval_builtin_error: to_number"},
		{`10 / input.claims.x > 0`, `{"x": 0}`, "policy_error: authz.rego:5: eval_builtin_error: div"},
		{`regex.match(input.claims.x, "a")`, `{"x": "private["}`, "policy_error: authz.rego:5: eval_builtin_error: regex.match"},
	} {
		s := load(t, "default allow := false\nallow if not _deny\n_deny if "+c.condition, "")
		d := both(t, s, ask(t, c.claims, alpha()))
		if got := "policy_error: " + fmt.Sprint(d.Err); d.Allowed || d.Code != CodeError || got != c.want {
			t.Errorf("%s with %s:\ngot  %v %s\nwant false %s", c.condition, c.claims, d.Allowed, got, c.want)
		}
		if strings.Contains(fmt.Sprint(d.Err), "private") {
			t.Errorf("%s: the error tells the value: %v", c.condition, d.Err)
		}
	}
}

// An item that fails takes nothing from its neighbours.
func TestListWithFailingItem(t *testing.T) {
	s := load(t, `allow if { input.tool.server == "alpha"; to_number(input.tool.owner) == 1 }`, "")
	var items []*Item
	var want []string
	for i := range 3*manyItems + 5 {
		tool, answer := alpha(), "true"
		switch tool.Owner = "1"; {
		case i%50 == 7:
			tool.Owner, answer = "nobody", "false policy_error: authz.rego:3: eval_builtin_error: to_number"
		case i%3 == 0:
			tool.Server, answer = "beta", "false policy_undefined"
		}
		items, want = append(items, item(t, tool)), append(want, answer)
	}
	items[20], want[20] = nil, "false policy_error: the question lacks its method, its subject or its item"
	got := each(t, s, subject(t, `{}`), NewItems(items))
	if len(got) != len(want) {
		t.Fatalf("%d decisions for %d items", len(got), len(want))
	}
	for i := range want {
		if show(got[i]) != want[i] {
			t.Errorf("item %d: got %s, want %s", i, show(got[i]), want[i])
		}
	}
}

func TestIncompleteQuestion(t *testing.T) {
	s := load(t, `allow := true
call := true
reasons := {"r"}
scopes := {"s"}`, "")
	whole := ask(t, `{}`, alpha())
	for name, spoil := range map[string]func(*Question){
		"method":  func(q *Question) { q.Method = "" },
		"subject": func(q *Question) { q.Subject = nil },
		"item":    func(q *Question) { q.Item = nil },

		"claims in the subject": func(q *Question) { q.Subject = new(Subject) },
		"a thing in the item":   func(q *Question) { q.Item = new(Item) },
	} {
		q := whole
		spoil(&q)
		const want = "false policy_error: the question lacks its method, its subject or its item"
		if got := show(both(t, s, q)); got != want {
			t.Errorf("without %s: allow: %s", name, got)
		}
		if got := show(s.Call(context.Background(), q, nil)); got != want {
			t.Errorf("without %s: call: %s", name, got)
		}
		if e := s.Explain(context.Background(), q, nil); !errors.Is(e.Err, errIncomplete) || e.Reasons != nil || e.Scopes != nil {
			t.Errorf("without %s: explained: %+v", name, e)
		}
	}
	if (Decision{}).Allowed {
		t.Error("the zero decision allows")
	}
	if got := each(t, s, whole.Subject, nil); len(got) != 0 {
		t.Errorf("no items: %v", got)
	}
}

// The call gate sees the arguments; allow never does, so that it says in a call
// what it said in a list.
func TestCall(t *testing.T) {
	s := load(t, `default allow := false
allow if not input.arguments
call if input.arguments.amount <= 500`, "", warned)
	q := ask(t, `{}`, alpha())
	if got := show(both(t, s, q)); got != "true" {
		t.Errorf("allow: %s", got)
	}
	for arguments, want := range map[string]string{
		`{"amount": 500}`:                "true",
		`{"amount": 500.0000000000001}`:  "false policy_undefined",
		`{"amount": 9007199254740993}`:   "false policy_undefined",
		`{}`:                             "false policy_undefined",
		``:                               "false policy_undefined",
		`{"amount": "5"}`:                "false policy_undefined",
		`{"amount": 1, "amount": 2}`:     "false policy_error: read the arguments for the policy: duplicate member name",
		`[]`:                             "false policy_error: read the arguments for the policy: want a JSON object, not array",
		`{"amount": 1e999999}`:           "false policy_error: read the arguments for the policy: number with too large an exponent",
		`{"a": ` + deep(200) + `}`:       "false policy_error: read the arguments for the policy: JSON is nested deeper than 128 levels",
		`{"n": 1` + digits(2000) + `}`:   "false policy_error: read the arguments for the policy: number of more than 1024 digits",
		`{"amount": 1`:                   "false policy_error: read the arguments for the policy: not valid JSON",
		`{"amount": 1} {"amount": 1000}`: "false policy_error: read the arguments for the policy: more than one JSON value",
	} {
		var value jsontext.Value
		if arguments != "" {
			value = jsontext.Value(arguments)
		}
		if got := show(s.Call(context.Background(), q, value)); got != want {
			t.Errorf("call with %.40s:\ngot  %s\nwant %s", arguments, got, want)
		}
	}
}

func deep(n int) string   { return strings.Repeat("[", n) + strings.Repeat("]", n) }
func digits(n int) string { return strings.Repeat("0", n) }

// OPA orders values of different types, null and booleans before numbers before
// strings. Writers of policies must know; this test is there to notice a change.
func TestOrderOfTypes(t *testing.T) {
	s := load(t, `allow := true
call if input.arguments.amount <= 500`, "")
	q := ask(t, `{}`, alpha())
	for arguments, want := range map[string]bool{`{"amount": null}`: true, `{"amount": "1"}`: false, `{"amount": false}`: true} {
		if got := s.Call(context.Background(), q, jsontext.Value(arguments)).Allowed; got != want {
			t.Errorf("%s: got %v, want %v", arguments, got, want)
		}
	}
}

func TestHasCall(t *testing.T) {
	allow := "package mcp.authz\nallow := true\n"
	for name, c := range map[string]struct {
		module string
		want   bool
	}{
		"none":                   {"package mcp.lib\ncall := true", false},
		"rule":                   {"package mcp.authz\ncall := false", true},
		"default only":           {"package mcp.authz\ndefault call := false", true},
		"from the parent":        {"package mcp\nauthz.call := true", true},
		"a package of that name": {"package mcp.authz.call\nx := true", true},
	} {
		fsys := files("", "")
		fsys["authz.rego"].Data = []byte(allow)
		fsys["other.rego"] = files("", "")["authz.rego"]
		fsys["other.rego"].Data = []byte(c.module)
		e, err := New(Config{FS: fsys}, discard())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := e.Current().HasCall(); got != c.want {
			t.Errorf("%s: HasCall is %v", name, got)
		}
		want := "false policy_undefined"
		switch name {
		case "rule", "default only":
			want = "false"
		case "from the parent":
			want = "true"
		case "a package of that name":
			want = "false policy_type: the answer is of type object, not a boolean"
		}
		if got := show(e.Current().Call(context.Background(), ask(t, `{}`, alpha()), nil)); got != want {
			t.Errorf("%s: call: got %s, want %s", name, got, want)
		}
	}
}

// slow takes hours for a subject called slow and nothing for others.
const slow = `default allow := false
allow if input.claims.sub != "slow"
allow if {
	input.claims.sub == "slow"
	some i in numbers.range(1, 20000)
	some j in numbers.range(1, 20000)
	i * j == -1
}
call if allow`

func TestDeadline(t *testing.T) {
	s := load(t, slow, "", func(c *Config) { c.Deadline = 20 * time.Millisecond })
	const want = "false policy_timeout: the policy did not answer before the deadline"
	q := ask(t, `{"sub": "slow"}`, alpha())
	start := time.Now()
	if got := show(s.Allow(context.Background(), q)); got != want {
		t.Errorf("allow: %s", got)
	}
	if got := show(s.Call(context.Background(), q, nil)); got != want {
		t.Errorf("call: %s", got)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("two decisions with 20ms each took %v", took)
	}
	if got := show(s.Allow(context.Background(), ask(t, `{"sub": "quick"}`, alpha()))); got != "true" {
		t.Errorf("quick: %s", got)
	}
}

func TestCancelled(t *testing.T) {
	s := load(t, slow, "", func(c *Config) { c.Deadline = time.Minute; c.ListDeadline = time.Minute })
	q := ask(t, `{"sub": "slow"}`, alpha())
	const want = "false policy_cancelled: the caller went away before the policy answered"
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if got := show(s.Allow(gone, q)); got != want {
		t.Errorf("before: %s", got)
	}
	going, cancel := context.WithCancel(context.Background())
	defer context.AfterFunc(going, func() {})()
	timer := time.AfterFunc(20*time.Millisecond, cancel)
	defer timer.Stop()
	answers := s.AllowEach(going, q.Subject, NewItems([]*Item{q.Item, q.Item}), q.Method, q.Request)
	decisions, unfinished := unpack(answers), answers.Unfinished
	if unfinished != CodeCancelled {
		t.Errorf("in between: unfinished for %q", unfinished)
	}
	for i, d := range decisions {
		if show(d) != want {
			t.Errorf("in between: item %d: %s", i, show(d))
		}
	}
}

// A list has one deadline for all of its items.
func TestListDeadline(t *testing.T) {
	s := load(t, slow, "", uncached, func(c *Config) { c.Deadline = 50 * time.Millisecond; c.ListDeadline = 200 * time.Millisecond })
	var items []*Item
	for range 50 {
		items = append(items, item(t, alpha()))
	}
	start := time.Now()
	answers := s.AllowEach(context.Background(), subject(t, `{"sub": "slow"}`), NewItems(items), "tools/call", Request{})
	decisions, unfinished := unpack(answers), answers.Unfinished
	if unfinished != CodeTimeout {
		t.Errorf("unfinished for %q", unfinished)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("50 items took %v", took)
	}
	for i, d := range decisions {
		if d.Allowed || d.Code != CodeTimeout {
			t.Errorf("item %d: %s", i, show(d))
		}
	}
}

// What was decided before the list's time was over stays as it was decided.
func TestListDeadlineInBetween(t *testing.T) {
	s := load(t, strings.ReplaceAll(slow, "claims.sub", "tool.owner"), "", uncached, func(c *Config) {
		c.Deadline = 100 * time.Millisecond
		c.ListDeadline = time.Second
	})
	var items []*Item
	for i := range 4 * manyItems {
		tool := alpha()
		if i >= manyItems {
			tool.Owner = "slow"
		} else {
			tool.Owner = "quick"
		}
		items = append(items, item(t, tool))
	}
	answers := s.AllowEach(context.Background(), subject(t, `{}`), NewItems(items), "tools/call", Request{})
	decisions, unfinished := unpack(answers), answers.Unfinished
	if unfinished != CodeTimeout {
		t.Errorf("unfinished for %q", unfinished)
	}
	for i, d := range decisions {
		want := "true"
		if i >= manyItems {
			want = "false policy_timeout: the policy did not answer before the deadline"
		}
		if show(d) != want {
			t.Errorf("item %d: got %s, want %s", i, show(d), want)
		}
	}
}

// One item that never answers leaves the others their answers.
func TestListWithSlowItem(t *testing.T) {
	s := load(t, `allow if input.tool.name != "slow"
allow if {
	input.tool.name == "slow"
	some i in numbers.range(1, 20000)
	some j in numbers.range(1, 20000)
	i * j == -1
}`, "", func(c *Config) { c.Deadline = 100 * time.Millisecond })
	var items []*Item
	for i := range 2*manyItems + 10 {
		tool := alpha()
		if i == 3 {
			tool.Name = "slow"
		}
		items = append(items, item(t, tool))
	}
	for i, d := range each(t, s, subject(t, `{}`), NewItems(items)) {
		want := "true"
		if i == 3 {
			want = "false policy_timeout: the policy did not answer before the deadline"
		}
		if show(d) != want {
			t.Errorf("item %d: got %s, want %s", i, show(d), want)
		}
	}
}

// poison panics when it is looked at.
type poison struct{ ast.Value }

func (poison) Hash() int      { return 1 }
func (poison) IsGround() bool { return true }

func TestPanic(t *testing.T) {
	s := load(t, `allow if input.claims.sub == "x"`, "", uncached)
	q := ask(t, `{}`, alpha())
	q.Subject = &Subject{ast.ObjectTerm(ast.Item(ast.StringTerm("sub"), ast.NewTerm(poison{})))}
	const want = "false policy_error: the evaluation panicked: runtime error: invalid memory address or nil pointer dereference"
	if got := show(both(t, s, q)); got != want {
		t.Errorf("got %s", got)
	}
	if got := show(failed(panicked("private value"))); got != "false policy_error: the evaluation panicked" {
		t.Errorf("got %s", got)
	}
}

func TestFailureKinds(t *testing.T) {
	if d := failed(errors.New("x")); d.Allowed || d.Code != CodeError {
		t.Errorf("got %s", show(d))
	}
}

// What is worked out once for a list is what each thing would be told alone, also
// where a rule fails for one of them, where `with` replaces something, and where a
// function is called with something of the thing.
func TestSharedInLists(t *testing.T) {
	for name, rego := range map[string]string{
		"claims alone": `allow if "read" in scopes
scopes contains s if some s in split(input.claims.scope, " ")`,
		"a failure of one": `allow if not bad
bad if to_number(input.tool.owner) > 1
also if bad`,
		"a failure of all": `allow if { input.tool.owner == "1"; not blocked }
allow if input.tool.owner == "x"
blocked if to_number(input.claims.sub) > 1`,
		"with": `allow if { mine with input.claims.sub as input.tool.owner }
allow if { mine; input.tool.owner == "x" }
mine if input.claims.sub == "1"`,
		"a function of the thing": `allow if f(input.tool.owner) == input.claims.n
f(x) := count(x)`,
		"a function of the claims": `allow if { f(input.claims.n) == 1; input.tool.owner == g(input.claims.n) }
f(x) := x
g(x) := "1" if x == 1`,
		"a part": `allow if table[input.tool.owner] == "1"
table[k] := input.claims.sub if some k in ["1", "x"]`,
	} {
		s := load(t, rego, "", uncached)
		for _, claims := range []string{`{"sub": "1", "scope": "read", "n": 1}`, `{"sub": "agent", "n": 1}`, `{"n": 2}`} {
			var items []*Item
			for _, owner := range []string{"1", "x", "22", "1", ""} {
				tool := alpha()
				tool.Owner = owner
				items = append(items, item(t, tool))
			}
			who := subject(t, claims)
			for i, d := range each(t, s, who, NewItems(items)) {
				alone := s.Allow(context.Background(), Question{Method: "tools/call", Subject: who, Item: items[i], Request: Request{ID: "r1"}})
				if show(d) != show(alone) {
					t.Errorf("%s, %s: item %d: %s in the list, %s alone", name, claims, i, show(d), show(alone))
				}
			}
		}
	}
}
