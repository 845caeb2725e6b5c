package reads

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// grammar writes random policies that use the whole language, and random inputs
// for them. Names and values are few, so that what is read and what is not often
// coincide.
type grammar struct {
	*rand.Rand
	vars    int
	helpers []helper
}

type helper struct {
	name string
	kind int
}

const (
	complete = iota // one value
	several         // one value, by several rules
	set
	object
	function
	kindsOfHelper
)

func (g *grammar) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g *grammar) fresh() string {
	g.vars++
	return fmt.Sprintf("v%d", g.vars)
}

func (g *grammar) scalar() string { return g.pick(`"a"`, `"b"`, `1`, `2`, `true`, `false`, `null`) }

func (g *grammar) key() string { return g.pick("a", "b", "c") }

// ref is a constant reference into the input.
func (g *grammar) ref() string {
	ref := g.pick("input.claims", "input.tool", "input.request", "input.method", "input.claims", "input.tool")
	if ref == "input.method" {
		return ref
	}
	for range g.IntN(3) {
		ref += g.pick("."+g.key(), "."+g.key(), `["`+g.key()+`"]`, "[0]")
	}
	return ref
}

// term is any value.
func (g *grammar) term() string {
	switch g.IntN(16) {
	case 0:
		return "input"
	case 1:
		return fmt.Sprintf("[%s, %s]", g.ref(), g.scalar())
	case 2:
		return fmt.Sprintf(`{"a": %s}`, g.ref())
	case 3:
		return fmt.Sprintf("{%s}", g.ref())
	case 4:
		return g.comprehension()
	case 5:
		return fmt.Sprintf("data.cfg.%s", g.key())
	case 6:
		return fmt.Sprintf("data.cfg[%s]", g.ref())
	case 7, 8:
		if h, ok := g.helper(); ok {
			return g.usage(h)
		}
	case 9:
		return g.scalar()
	case 10:
		return g.built()
	}
	return g.ref()
}

func (g *grammar) comprehension() string {
	v := g.fresh()
	switch g.IntN(4) {
	case 0:
		return fmt.Sprintf("[%s | some %s in %s; %s]", v, v, g.ref(), g.simple(v))
	case 1:
		return fmt.Sprintf("{%s | %s := %s[_]; %s}", v, v, g.ref(), g.simple(v))
	case 2:
		k := g.fresh()
		return fmt.Sprintf("{%s: %s | some %s, %s in %s; %s}", k, g.scalar(), k, v, g.ref(), g.simple(v))
	}
	return fmt.Sprintf("[1 | %s == %s]", g.ref(), g.scalar())
}

// built is a call of a built-in function.
func (g *grammar) built() string {
	return fmt.Sprintf(g.pick("object.get(%s, %q, 1)", "object.get(%s, [%q], 2)", `object.keys(object.filter({"x": %s}, [%q]))`,
		"json.marshal([%s, %q])", "array.concat([%s], [%q])", "type_name([%s, %q][0])", "sprintf(\"%%v\", [[%s, %q]])"), g.ref(), g.key())
}

func (g *grammar) helper() (helper, bool) {
	if len(g.helpers) == 0 {
		return helper{}, false
	}
	return g.helpers[g.IntN(len(g.helpers))], true
}

// usage is a reference to a rule, or a call.
func (g *grammar) usage(h helper) string {
	name := g.pick(h.name, "data.mcp.authz."+h.name)
	switch h.kind {
	case function:
		return fmt.Sprintf("%s(%s)", name, g.term())
	case set, object:
		return name + g.pick("", "["+g.scalar()+"]", "["+g.ref()+"]")
	}
	return name + g.pick("", "", "."+g.key(), "."+g.key()+"."+g.key(), "["+g.ref()+"]")
}

func (g *grammar) simple(v string) string {
	return g.pick(v+" == "+g.scalar(), v+" != "+g.scalar(), v+"."+g.key()+" == "+g.scalar(), "not "+v+"."+g.key(), v+" == "+g.ref())
}

// condition is one line of a body, or a few that belong together.
func (g *grammar) condition(depth int) string {
	v, w := g.fresh(), g.fresh()
	switch g.IntN(26) {
	case 0:
		return "not " + g.ref()
	case 1:
		return fmt.Sprintf("not %s == %s", g.term(), g.scalar())
	case 2:
		return fmt.Sprintf("%s := %s; %s", v, g.ref(), g.simple(v))
	case 3:
		return fmt.Sprintf("%s := %s; not %s.%s; %s", v, g.term(), v, g.key(), g.simple(v))
	case 4:
		return fmt.Sprintf("%s := %s; %s := %s.%s; %s", v, g.ref(), w, v, g.key(), g.simple(w))
	case 5:
		return fmt.Sprintf("some %s in %s; %s", v, g.ref(), g.simple(v))
	case 6:
		return fmt.Sprintf("some %s, %s in %s; %s == %s; %s", v, w, g.ref(), v, g.scalar(), g.simple(w))
	case 7:
		return fmt.Sprintf("every %s in %s { %s }", v, g.ref(), g.simple(v))
	case 8:
		return fmt.Sprintf("every %s, %s in %s { %s != %s; %s }", v, w, g.ref(), v, g.scalar(), g.simple(w))
	case 9:
		return fmt.Sprintf("count(%s) > %d", g.comprehension(), g.IntN(2))
	case 10:
		return fmt.Sprintf("%s[%s] == %s", g.ref(), g.ref(), g.scalar())
	case 11:
		return fmt.Sprintf("input[%s].%s == %s", g.ref(), g.key(), g.scalar())
	case 12:
		return fmt.Sprintf("walk(%s, [_, %s])", g.ref(), g.scalar())
	case 13:
		return fmt.Sprintf("[%s, _] = %s; %s", v, g.ref(), g.simple(v))
	case 14:
		return fmt.Sprintf(`{"a": %s} = %s; %s`, v, g.ref(), g.simple(v))
	case 15:
		return fmt.Sprintf("%s(%s)", g.pick("is_string", "is_object", "is_null", "is_boolean"), g.ref())
	case 16:
		return fmt.Sprintf(`type_name(%s) == %s`, g.ref(), g.pick(`"object"`, `"string"`, `"null"`))
	case 17:
		return fmt.Sprintf("startswith(%s, %s)", g.ref(), `"a"`)
	case 18:
		return fmt.Sprintf(`$"{%s}" == %s`, g.ref(), g.pick(`"a"`, `"1"`, `"<undefined>"`))
	case 19, 20, 21:
		if depth > 0 {
			return g.replaced(depth)
		}
	case 22:
		if h, ok := g.helper(); ok {
			return g.usage(h)
		}
	case 23:
		if h, ok := g.helper(); ok {
			return "not " + g.usage(h)
		}
	case 24:
		return fmt.Sprintf("%s := %s; %s := [%s]; count(%s) == 1", v, g.ref(), w, v, w)
	}
	return fmt.Sprintf("%s %s %s", g.term(), g.pick("==", "==", "!=", "<"), g.term())
}

// replaced is a condition with other input or data.
func (g *grammar) replaced(depth int) string {
	inner := g.condition(0)
	if strings.ContainsAny(inner, ";") {
		inner = g.ref()
	}
	if h, ok := g.helper(); ok && g.IntN(3) > 0 {
		inner = g.usage(h)
	}
	switch g.IntN(5) {
	case 0:
		return fmt.Sprintf("%s with input as %s", inner, g.pick(`{"claims": {"a": 1}}`, "input.claims", `{"tool": input.tool, "claims": {}}`))
	case 1:
		return fmt.Sprintf("%s with data.cfg.%s as %s", inner, g.key(), g.ref())
	case 2:
		if h, ok := g.helper(); ok && h.kind != function {
			return fmt.Sprintf("%s with data.mcp.authz.%s as %s", inner, h.name, g.ref())
		}
	case 3:
		var functions []string
		for _, h := range g.helpers {
			if h.kind == function {
				functions = append(functions, "data.mcp.authz."+h.name)
			}
		}
		if len(functions) > 1 {
			return fmt.Sprintf("%s with %s as %s", inner, functions[0], g.pick(functions[1:]...))
		}
	}
	return fmt.Sprintf("%s with input.%s.%s as %s", inner, g.pick("claims", "tool"), g.key(), g.term())
}

func (g *grammar) body() string {
	lines := make([]string, 1+g.IntN(3))
	for i := range lines {
		lines[i] = g.condition(1)
	}
	return strings.Join(lines, "; ")
}

// define writes the rules of a helper, which may use those before it.
func (g *grammar) define(h helper) string {
	n := h.name
	switch h.kind {
	case complete:
		text := fmt.Sprintf("%s := %s if { %s }", n, g.term(), g.body())
		for range g.IntN(3) {
			text += fmt.Sprintf(" else := %s if { %s }", g.term(), g.body())
		}
		if g.IntN(3) == 0 {
			text = fmt.Sprintf("default %s := %s\n%s", n, g.scalar(), text)
		}
		return text
	case several:
		return fmt.Sprintf("%s := %s if { %s }\n%s := %s if { %s }", n, g.term(), g.body(), n, g.term(), g.body())
	case set:
		v := g.fresh()
		return fmt.Sprintf("%s contains %s if { some %s in %s; %s }\n%s contains %s if { %s }", n, v, v, g.ref(), g.body(), n, g.term(), g.body())
	case object:
		v, w := g.fresh(), g.fresh()
		return fmt.Sprintf("%s[%s] := %s if { some %s, %s in %s; %s }", n, v, g.pick(w, g.scalar(), g.ref()), v, w, g.ref(), g.simple(w))
	}
	x := g.fresh()
	text := fmt.Sprintf("%s(%s) := %s if { %s; %s }", n, x, g.pick(x, x+"."+g.key(), g.scalar(), g.ref(), "[ "+x+" ]"), g.simple(x), g.condition(1))
	if g.IntN(2) == 0 {
		text += fmt.Sprintf(" else := %s if { %s }", g.pick(g.scalar(), x, x+"."+g.key()), g.pick(g.simple(x), g.condition(1)))
	}
	switch g.IntN(3) {
	case 0:
		text += fmt.Sprintf("\n%s(%s) := %s if { %s }", n, g.pick(`"a"`, "1", `{"a": _}`, "_"), g.scalar(), g.condition(1))
	case 1:
		y := g.fresh()
		text += fmt.Sprintf("\n%s(%s) := %s.%s if { %s := %s.%s; %s }", n, x, x, g.key(), y, x, g.key(), g.simple(y))
	}
	return text
}

// policy writes a whole one.
func (g *grammar) policy() string {
	g.helpers, g.vars = nil, 0
	text := "package mcp.authz\n\n"
	for i := range g.IntN(6) {
		h := helper{fmt.Sprintf("h%d", i), g.IntN(kindsOfHelper)}
		text += g.define(h) + "\n\n"
		g.helpers = append(g.helpers, h)
	}
	if g.IntN(2) == 0 {
		text += "default allow := false\n\n"
	}
	for range 1 + g.IntN(2) {
		text += fmt.Sprintf("allow if { %s }\n\n", g.body())
	}
	return text
}

// value is any JSON value, as a policy may meet it.
func (g *grammar) value(depth int) *ast.Term {
	if depth > 0 && g.IntN(2) == 0 {
		if g.IntN(4) == 0 {
			var elems []*ast.Term
			for range g.IntN(3) {
				elems = append(elems, g.value(depth-1))
			}
			return ast.ArrayTerm(elems...)
		}
		var items [][2]*ast.Term
		for _, key := range []string{"a", "b", "c"} {
			if g.IntN(3) > 0 {
				items = append(items, ast.Item(ast.StringTerm(key), g.value(depth-1)))
			}
		}
		return ast.ObjectTerm(items...)
	}
	return ast.MustParseTerm(g.scalar())
}

var members = [...]string{"method", "claims", "request", "tool"}

// input is one document; each member is there or not.
func (g *grammar) input() map[string]*ast.Term {
	in := map[string]*ast.Term{}
	for _, m := range members {
		if g.IntN(8) > 0 {
			in[m] = g.value(3)
		}
	}
	return in
}

// mutate changes one value somewhere.
func (g *grammar) mutate(in map[string]*ast.Term) map[string]*ast.Term {
	out := map[string]*ast.Term{}
	for k, v := range in {
		out[k] = v
	}
	m := members[g.IntN(len(members))]
	if out[m] == nil || g.IntN(8) == 0 {
		out[m] = g.value(2)
		return out
	}
	out[m] = g.mutated(out[m], 3)
	return out
}

func (g *grammar) mutated(t *ast.Term, depth int) *ast.Term {
	o, ok := t.Value.(ast.Object)
	if !ok || depth == 0 || g.IntN(6) == 0 {
		return g.value(depth)
	}
	key := ast.StringTerm(g.key())
	var items [][2]*ast.Term
	found := false
	o.Foreach(func(k, v *ast.Term) {
		if k.Equal(key) {
			found = true
			if g.IntN(5) == 0 {
				return
			}
			v = g.mutated(v, depth-1)
		}
		items = append(items, ast.Item(k, v))
	})
	if !found {
		items = append(items, ast.Item(key, g.value(depth-1)))
	}
	return ast.ObjectTerm(items...)
}

func document(in map[string]*ast.Term) ast.Value {
	o := ast.NewObject()
	for _, m := range members {
		if in[m] != nil {
			o.Insert(ast.StringTerm(m), in[m])
		}
	}
	return o
}
