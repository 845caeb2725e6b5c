package reads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Of analyses what can bear on the value of the rules at entry, such as
// data.mcp.authz.allow. The compiler must have compiled without errors.
func Of(c *ast.Compiler, entry ast.Ref) *Reads {
	return analyse(c, entry, faults{})
}

// faults are ways to get the analysis wrong, for tests that show what they would
// lead to. The zero value has none.
type faults struct {
	noElse, noWith, noComprehension, noFunction, noEvery, noHead, noDynamic, noPresence, noArguments, anySingle bool
}

func analyse(c *ast.Compiler, entry ast.Ref, f faults) *Reads {
	w := &walker{compiler: c, out: &Reads{}, seen: map[string]bool{}, builtins: map[string]bool{}, faults: f}
	w.rough = w.mocksFunctions()
	w.document(entry, demand{}, nil, 0, false)
	for name := range w.builtins {
		w.out.Builtins = append(w.out.Builtins, name)
	}
	slices.Sort(w.out.Builtins)
	w.out.settle()
	return w.out
}

// demand is which part of a value is used.
type demand struct {
	below   Path // constants that lead to the part
	shallow bool // of that, only whether it is there and its type
}

func (d demand) String() string {
	text := d.below.String()
	if d.shallow {
		text += "?"
	}
	return text
}

type walker struct {
	compiler *ast.Compiler
	out      *Reads
	seen     map[string]bool
	builtins map[string]bool
	// rough: something is replaced that references name, so that what a function
	// or a rule does with what it gets cannot be followed.
	rough  bool
	faults faults
}

// visit is one rule on the way from the entry.
type visit struct {
	rule   *ast.Rule
	from   *visit
	line   int // in from, where it is used
	mocked bool
	means  map[ast.Var]ast.Ref // what variables stand for
	params map[ast.Var]bool    // those of means that are arguments
}

// mocksFunctions reports whether any `with` replaces anything but the input.
func (w *walker) mocksFunctions() bool {
	found := false
	for _, m := range w.compiler.Modules {
		ast.WalkWiths(m, func(with *ast.With) bool {
			ref, ok := with.Target.Value.(ast.Ref)
			found = found || !ok || !ref.HasPrefix(ast.InputRootRef)
			return false
		})
	}
	return found
}

func (w *walker) unsafe(format string, args ...any) {
	if w.out.Unsafe == "" {
		w.out.Unsafe = fmt.Sprintf(format, args...)
	}
}

// document visits the rules that could give ref a value; d is what is used of
// ref's own value.
func (w *walker) document(ref ast.Ref, d demand, from *visit, line int, mocked bool) {
	if w.faults.noDynamic && !ref.IsGround() {
		return
	}
	rules := w.compiler.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true})
	one := w.single(rules)
	for _, rule := range rules {
		use := demand{}
		if one && ref.HasPrefix(rule.Ref()) {
			if rest, whole := constants(ref[len(rule.Ref()):]); whole {
				use = demand{append(rest, d.below...), d.shallow}
			} else {
				use = demand{below: rest}
			}
		}
		w.enter(rule, use, nil, from, line, mocked)
	}
}

// single reports whether the rules are one, with or without a default, whose
// value is not put together from several: only then its parts can be looked at by
// themselves, since several would also be compared as a whole.
func (w *walker) single(rules []*ast.Rule) bool {
	if w.rough {
		return false
	}
	n := 0
	for _, r := range rules {
		if len(r.Head.Args) > 0 || r.Head.RuleKind() != ast.SingleValue || !r.Ref().IsGround() || !rules[0].Ref().Equal(r.Ref()) {
			return false
		}
		if !r.Default {
			n++
		}
	}
	return n == 1 || w.faults.anySingle
}

// enter visits one rule with its else branches, once for each way to use it.
func (w *walker) enter(rule *ast.Rule, d demand, args []ast.Ref, from *visit, line int, mocked bool) {
	key := fmt.Sprintf("%p %s %v %t", rule, d, args, mocked)
	if w.seen[key] {
		return
	}
	w.seen[key] = true
	if path := rule.Ref().GroundPrefix(); !slices.ContainsFunc(w.out.rules, func(r ast.Ref) bool { return r.Equal(path) }) {
		w.out.rules = append(w.out.rules, path)
	}
	for r := rule; r != nil; r = r.Else {
		if r != rule && w.faults.noElse {
			return
		}
		v := &visit{rule: rule, from: from, line: line, mocked: mocked, params: map[ast.Var]bool{}}
		v.means = w.aliases(r, args, v.params)
		w.arguments(v, r.Head.Args, args)
		w.head(v, r.Head, d)
		w.body(v, r.Body)
	}
}

// arguments reads what the function is called with where that is compared with a
// pattern, or used in a way that is not followed.
func (w *walker) arguments(v *visit, patterns []*ast.Term, args []ast.Ref) {
	for i, ref := range args {
		if ref == nil {
			continue
		}
		if i < len(patterns) {
			if x, ok := patterns[i].Value.(ast.Var); ok && v.params[x] {
				continue
			}
		}
		if !w.faults.noArguments {
			w.use(v, ref, demand{}, row(v.rule.Location))
		}
	}
}

// head reads the keys and the value; arguments are patterns, which may hold
// anything but references.
func (w *walker) head(v *visit, h *ast.Head, d demand) {
	if w.faults.noHead {
		return
	}
	for _, arg := range h.Args {
		if _, ok := arg.Value.(ast.Var); !ok {
			w.term(v, arg)
		}
	}
	for _, t := range h.Reference[min(1, len(h.Reference)):] {
		w.term(v, t)
	}
	if h.Key != nil {
		w.term(v, h.Key)
	}
	if h.Value == nil {
		return
	}
	if ref, ok := w.constant(v, h.Value); ok {
		w.use(v, ref, d, row(h.Value.Location))
		return
	}
	w.term(v, h.Value)
}

// body visits expressions.
func (w *walker) body(v *visit, body ast.Body) {
	for _, e := range body {
		w.expr(v, e)
	}
}

func (w *walker) expr(v *visit, e *ast.Expr) {
	inner := v
	for _, with := range e.With {
		if w.faults.noWith {
			break
		}
		mocked := *v
		mocked.mocked = true
		inner = &mocked
		w.with(v, with)
	}
	switch terms := e.Terms.(type) {
	case *ast.Term:
		w.term(inner, terms)
	case []*ast.Term:
		w.call(inner, terms)
	case *ast.Every:
		if w.faults.noEvery {
			return
		}
		w.term(inner, terms.Domain)
		w.body(inner, terms.Body)
	case *ast.SomeDecl:
		for _, t := range terms.Symbols {
			w.term(inner, t)
		}
	default:
		w.unsafe("an expression of a kind that is not known at %s", at(e.Location))
	}
}

// with reads the value, and around the target, where it is put in. What the value
// names may be called in place of the target.
func (w *walker) with(v *visit, with *ast.With) {
	w.term(v, with.Value)
	if ref, ok := with.Target.Value.(ast.Ref); ok && ref.HasPrefix(ast.InputRootRef) {
		around := *v
		around.mocked = true
		w.term(&around, with.Target)
	}
	value, ok := with.Value.Value.(ast.Ref)
	if !ok {
		return
	}
	head, ok := value[0].Value.(ast.Var)
	if ok && !head.IsGenerated() && !value.HasPrefix(ast.DefaultRootRef) && !value.HasPrefix(ast.InputRootRef) {
		w.builtin(value, with.Value.Location)
	}
}

// call visits a call: operator, then operands.
func (w *walker) call(v *visit, terms []*ast.Term) {
	operator, ok := terms[0].Value.(ast.Ref)
	if !ok {
		w.unsafe("a call of what is no name at %s", at(terms[0].Location))
		return
	}
	operands := terms[1:]
	if operator.HasPrefix(ast.DefaultRootRef) {
		w.function(v, operator, operands, row(terms[0].Location))
		return
	}
	w.builtin(operator, terms[0].Location)
	switch name := operator.String(); {
	case name == ast.Equality.Name && w.binds(v, operands):
		return
	case looksAtType(name) && len(operands) > 0:
		if ref, ok := w.constant(v, operands[0]); ok {
			w.use(v, ref, demand{shallow: true}, row(operands[0].Location))
			operands = operands[1:]
		}
	}
	for _, t := range operands {
		w.term(v, t)
	}
}

// looksAtType reports whether a built-in sees nothing of its first argument but
// the type.
func looksAtType(name string) bool {
	return name == "type_name" || strings.HasPrefix(name, "is_")
}

// binds reports whether an equation does nothing but name a reference. That it
// has a value, and of which type, is read.
func (w *walker) binds(v *visit, operands []*ast.Term) bool {
	for i, t := range operands {
		x, ok := t.Value.(ast.Var)
		if !ok || v.means[x] == nil || v.params[x] || len(operands) != 2 {
			continue
		}
		if ref, ok := operands[1-i].Value.(ast.Ref); ok && !w.faults.noPresence {
			if full, ok := w.resolve(v, ref); ok {
				w.use(v, full, demand{shallow: true}, row(t.Location))
			}
		}
		return true
	}
	return false
}

// function visits the clauses of a function with what it is called with.
func (w *walker) function(v *visit, operator ast.Ref, operands []*ast.Term, line int) {
	if w.faults.noFunction {
		return
	}
	var args []ast.Ref
	for _, t := range operands {
		ref, ok := w.constant(v, t)
		if !ok || w.rough {
			w.term(v, t)
			ref = nil
		} else if !w.faults.noPresence {
			// Without a value there is no call.
			w.use(v, ref, demand{shallow: true}, row(t.Location))
		}
		args = append(args, ref)
	}
	for _, rule := range w.compiler.GetRulesDynamicWithOpts(operator, ast.RulesOptions{IncludeHiddenModules: true}) {
		w.enter(rule, demand{}, args, v, line, v.mocked)
	}
}

// builtin notes a built-in function.
func (w *walker) builtin(name ast.Ref, place *ast.Location) {
	text := name.String()
	w.builtins[text] = true
	if !slices.Contains(pure(), text) {
		w.unsafe("%s at %s", text, at(place))
	}
}

// term reads all that a term stands for.
func (w *walker) term(v *visit, t *ast.Term) {
	switch x := t.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String:
	case ast.Var:
		if ref := v.means[x]; ref != nil {
			w.use(v, ref, demand{}, row(t.Location))
			return
		}
		if x.Equal(ast.InputRootDocument.Value) {
			w.read(v, nil, demand{}, row(t.Location))
		}
		if x.Equal(ast.DefaultRootDocument.Value) {
			w.document(ast.DefaultRootRef, demand{}, v, row(t.Location), v.mocked)
		}
	case ast.Ref:
		w.ref(v, x, row(t.Location))
	case ast.Call:
		w.call(v, x)
	case *ast.Array:
		x.Foreach(func(e *ast.Term) { w.term(v, e) })
	case ast.Set:
		x.Foreach(func(e *ast.Term) { w.term(v, e) })
	case ast.Object:
		x.Foreach(func(key, value *ast.Term) {
			w.term(v, key)
			w.term(v, value)
		})
	case *ast.ArrayComprehension:
		w.comprehension(v, x.Body, x.Term)
	case *ast.SetComprehension:
		w.comprehension(v, x.Body, x.Term)
	case *ast.ObjectComprehension:
		w.comprehension(v, x.Body, x.Key, x.Value)
	case *ast.TemplateString:
		w.template(v, x)
	default:
		w.unsafe("a term of a kind that is not known (%s) at %s", ast.ValueName(t.Value), at(t.Location))
	}
}

func (w *walker) comprehension(v *visit, body ast.Body, terms ...*ast.Term) {
	if w.faults.noComprehension {
		return
	}
	w.body(v, body)
	for _, t := range terms {
		w.term(v, t)
	}
}

func (w *walker) template(v *visit, s *ast.TemplateString) {
	for _, part := range s.Parts {
		switch p := part.(type) {
		case *ast.Expr:
			w.expr(v, p)
		case *ast.Term:
			w.term(v, p)
		default:
			w.unsafe("a part of a template that is not known at %s", at(v.rule.Location))
		}
	}
}
