package reads

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/policies"
)

// build compiles one module, or several with their names.
func build(t *testing.T, modules map[string]string) *ast.Compiler {
	t.Helper()
	parsed := map[string]*ast.Module{}
	for name, text := range modules {
		m, err := ast.ParseModuleWithOpts(name, text, ast.ParserOptions{RegoVersion: ast.RegoV1})
		if err != nil {
			t.Fatal(err)
		}
		parsed[name] = m
	}
	c := ast.NewCompiler()
	if c.Compile(parsed); c.Failed() {
		t.Fatal(c.Errors)
	}
	return c
}

func allow() ast.Ref { return ast.MustParseRef("data.mcp.authz.allow") }

func of(t *testing.T, rules string) *Reads {
	t.Helper()
	return Of(build(t, map[string]string{"authz.rego": "package mcp.authz\n\n" + rules}), allow())
}

func TestInput(t *testing.T) {
	for _, c := range []struct{ name, rules, want string }{
		{"nothing", `allow := true`, ``},
		{"a value", `allow if input.claims.sub == "a"`, `input.claims.sub`},
		{"a name in quotes", `allow if input["claims"]["x-y"] == "a"`, `input.claims["x-y"]`},
		{"a list", `allow if "a" in input.claims.roles`, `input.claims.roles`},
		{"a name for a part", `allow if { t := input.tool; t.server == "a"; t.labels.tier == "b" }`, `input.tool? input.tool.labels.tier input.tool.server`},
		{"a name for a part that is used whole", `allow if { t := input.tool; count(t) > 1 }`, `input.tool`},
		{"a name of a name", `allow if { t := input.tool; l := t.labels; l.tier == "b" }`, `input.tool? input.tool.labels? input.tool.labels.tier`},
		{"a function's argument", `allow if f(input.tool)
f(x) if x.name == "a"`, `input.tool? input.tool.name`},
		{"a function's argument, compared", `allow if f(input.tool.name)
f("a")`, `input.tool.name`},
		{"a function's argument, whole", `allow if f(input.tool)
f(x) if json.marshal(x) != "{}"`, `input.tool`},
		{"a part of a rule", `allow if thing.name == "a"
thing := input.tool if { input.method == "m" } else := input.resource`, `input.method input.resource? input.resource.name input.tool? input.tool.name`},
		{"a part of rules that may disagree", `allow if thing.name == "a"
thing := input.tool if input.tool
thing := input.resource if input.resource`, `input.resource input.tool`},
		{"a type", `allow if { is_object(input.tool); type_name(input.claims.a) == "null" }`, `input.claims.a? input.tool?`},
		{"by a variable", `allow if input.tool[input.claims.key]`, `input.claims.key input.tool`},
		{"everything", `allow if count(input) > 3`, `input`},
		{"everything, by a variable", `allow if input[input.method]`, `input`},
		{"not of a name", `allow if { x := input.claims; not x.blocked }`, `input.claims? input.claims.blocked`},
		{"what nobody asks for", `allow := true
other if input.claims.x`, ``},
		{"with", `allow if h with input.claims.a as input.tool.name
h if input.claims.a == "a"`, `input.claims.a input.tool.name`},
		{"a replaced function", `allow if g(input.tool) with f as h
g(x) if f(x)
f(x) if x.a
h(x) if x.b`, `input.tool`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := of(t, c.rules)
			if got := strings.Join(r.Input(), " "); got != c.want || r.Unsafe != "" {
				t.Errorf("got  %s (%s)\nwant %s", got, r.Unsafe, c.want)
			}
		})
	}
}

func TestUnsafe(t *testing.T) {
	for rules, want := range map[string]string{
		`allow if time.now_ns() > 0`: "time.now_ns at authz.rego:3",
		`allow if f(1)
f(_) if rand.intn("a", 2) == 1`: "rand.intn at authz.rego:4",
		`allow if crypto.x509.parse_and_verify_certificates(input.claims.x)[0]`: "crypto.x509.parse_and_verify_certificates at authz.rego:3",
		`allow if count("a") == 1 with count as time.parse_duration_ns`:         "time.parse_duration_ns at authz.rego:3",
	} {
		if got := of(t, rules).Unsafe; got != want {
			t.Errorf("%s: got %q, want %q", rules, got, want)
		}
	}
}

func TestReaches(t *testing.T) {
	for _, c := range []struct {
		name, rules, chain string
		proven, possible   bool
	}{
		{"no", `allow if input.tool.name`, "[]", false, false},
		{"itself", `allow if input.arguments.amount < 5`, "[{data.mcp.authz.allow authz.rego 3}]", true, true},
		{"through rules", `allow if small

small if {
	f(1)
}

f(_) if input.arguments.amount < 5`, "[{data.mcp.authz.allow authz.rego 3} {data.mcp.authz.small authz.rego 6} {data.mcp.authz.f authz.rego 9}]", true, true},
		{"in else", `allow if false else if input.arguments`, "[{data.mcp.authz.allow authz.rego 3}]", true, true},
		{"the whole input", `allow if count(input) > 2`, "[{data.mcp.authz.allow authz.rego 3}]", false, true},
		{"under another name", `allow if { x := input; x.arguments.a }`, "[{data.mcp.authz.allow authz.rego 3}]", true, true},
		{"with another value", `allow if h with input.arguments as {}
h if input.arguments == {}`, "[{data.mcp.authz.allow authz.rego 3}]", false, true},
		{"only by call", `allow := true
call if input.arguments.a`, "[]", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			chain, proven, possible := of(t, c.rules).Reaches("arguments")
			if proven != c.proven || possible != c.possible || fmt.Sprint(chain) != c.chain {
				t.Errorf("got %v %t %t, want %s %t %t", chain, proven, possible, c.chain, c.proven, c.possible)
			}
		})
	}
}

// The shipped policy reads of a tool what makes it one kind or another, and never
// its name.
func TestShippedPolicy(t *testing.T) {
	modules := map[string]string{}
	err := fs.WalkDir(policies.FS, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".rego") || strings.HasSuffix(name, "_test.rego") {
			return err
		}
		text, err := fs.ReadFile(policies.FS, name)
		modules[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c := build(t, modules)
	r := Of(c, allow())
	want := []string{
		"input.tool?", "input.tool.attributes", "input.tool.data", "input.tool.definition.annotations.destructiveHint",
		"input.tool.definition.annotations.readOnlyHint", "input.tool.definition.drifted", "input.tool.definition.pinned",
		"input.tool.effect", "input.tool.env", "input.tool.labels.hints", "input.tool.quarantined", "input.tool.reach", "input.tool.registered",
	}
	got := slices.DeleteFunc(r.Input(), func(s string) bool { return !strings.HasPrefix(s, "input.tool") })
	if !slices.Equal(got, want) || r.Unsafe != "" {
		t.Errorf("reads %v (%s), want %v", got, r.Unsafe, want)
	}
	if found := Lint(c); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

func TestLint(t *testing.T) {
	for _, c := range []struct{ name, rules, want string }{
		{"order without a type", `call if input.arguments.amount < 1000`, "3 input.arguments.amount is compared by order"},
		{"order with a type", `call if { is_number(input.arguments.amount); input.arguments.amount < 1000 }`, ""},
		{"order under a name", `call if { a := input.arguments.amount; a < 1000 }`, "3 input.arguments.amount is compared by order"},
		{"order under a name with a type", `call if { a := input.arguments.amount; is_number(a); a < 1000 }`, ""},
		{"not", `call if not input.arguments.force`, "3 not of input.arguments.force holds where the argument is missing"},
		{"not of a comparison", `call if not input.arguments.to == "x"`, "3 not of input.arguments.to holds"},
		{"equality", `call if input.arguments.to == "x"`, ""},
		{"not of a claim", `call if not input.claims.blocked`, ""},
		{"in a function", `call if f(1)
f(x) if input.arguments.a > x`, "4 input.arguments.a is compared by order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Lint(build(t, map[string]string{"authz.rego": "package mcp.authz\n\nallow := true\n\n" + c.rules}))
			text := ""
			if len(found) > 0 {
				text = fmt.Sprintf("%d %s", found[0].Line-2, found[0].Message)
			}
			if len(found) > 1 || !strings.HasPrefix(text, c.want) || (c.want == "") != (text == "") {
				t.Errorf("got %v, want %q", found, c.want)
			}
		})
	}
}

// Keys tell values apart that a policy can.
func TestKeysAreInjective(t *testing.T) {
	r := of(t, `allow if { json.marshal(input.claims) != ""; input.tool.a.b }`)
	known := map[string]string{}
	for _, text := range []string{
		`null`, `false`, `true`, `0`, `1`, `-1`, `1.0`, `10`, `""`, `"1"`, `"a"`, `[]`, `[1]`, `[[1]]`, `[1, 2]`, `[2, 1]`, `["1", "2"]`, `["12"]`,
		`{}`, `{"a": 1}`, `{"b": 1}`, `{"a": "1"}`, `{"a": {"b": 1}}`, `{"a": [], "b": []}`, `{"a": [[]], "b": 1}`, `["a", 1]`, `set()`, `{1}`, `{{1}}`,
	} {
		key := string(r.Append(nil, "claims", ast.MustParseTerm(text).Value))
		if other, ok := known[key]; ok {
			t.Errorf("%s and %s have one key", text, other)
		}
		known[key] = text
	}
	if key := r.Append(nil, "claims", nil); known[string(key)] != "" {
		t.Error("what is not there looks like a value")
	}
}

// Every built-in of this OPA has been looked at: those whose answer follows from
// their arguments are in pure, the others are here. A new one has to be put in
// one of the two.
func TestEveryBuiltinIsReviewed(t *testing.T) {
	var rest []string
	for _, b := range ast.Builtins {
		if !slices.Contains(pure(), b.Name) {
			rest = append(rest, b.Name)
		}
	}
	slices.Sort(rest)
	if got := strings.Join(rest, " "); got != notPure {
		t.Errorf("built-ins that are not pure or not reviewed:\n%s", got)
	}
	if !slices.IsSorted(pure()) {
		t.Error("pure is not sorted")
	}
	for _, name := range pure() {
		if b := ast.BuiltinMap[name]; b == nil || b.IsNondeterministic() {
			t.Errorf("%s: no such built-in, or OPA says that it answers differently", name)
		}
	}
}
