package reads

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// constants returns the constant terms that a part of a reference begins with,
// and whether these are all.
func constants(terms []*ast.Term) (path Path, all bool) {
	for _, t := range terms {
		switch t.Value.(type) {
		case ast.Null, ast.Boolean, ast.Number, ast.String:
			path = append(path, t.Value)
		default:
			return path, false
		}
	}
	return path, true
}

// resolve puts what the head stands for in its place, and reports whether the
// result is a constant reference to the input or to data.
func (w *walker) resolve(v *visit, ref ast.Ref) (ast.Ref, bool) {
	full := w.expand(v, ref)
	head, ok := full[0].Value.(ast.Var)
	if !ok || !head.Equal(ast.InputRootDocument.Value) && !head.Equal(ast.DefaultRootDocument.Value) {
		return nil, false
	}
	_, all := constants(full[1:])
	return full, all
}

func (w *walker) expand(v *visit, ref ast.Ref) ast.Ref {
	if head, ok := ref[0].Value.(ast.Var); ok && v.means[head] != nil {
		return append(slices.Clone(v.means[head]), ref[1:]...)
	}
	return ref
}

// constant reports whether a term is a constant reference, under whatever name.
func (w *walker) constant(v *visit, t *ast.Term) (ast.Ref, bool) {
	switch x := t.Value.(type) {
	case ast.Ref:
		return w.resolve(v, x)
	case ast.Var:
		if ref := v.means[x]; ref != nil {
			return ref, true
		}
		if x.Equal(ast.InputRootDocument.Value) {
			return ast.InputRootRef, true
		}
	}
	return nil, false
}

// use reads a part of what a constant reference names.
func (w *walker) use(v *visit, ref ast.Ref, d demand, line int) {
	if ref.HasPrefix(ast.InputRootRef) {
		path, _ := constants(ref[1:])
		w.read(v, path, d, line)
		return
	}
	w.document(ref, d, v, line, v.mocked)
}

func (w *walker) read(v *visit, path Path, d demand, line int) {
	w.out.all = append(w.out.all, read{
		path: append(slices.Clone(path), d.below...), shallow: d.shallow, mocked: v.mocked, way: v, line: line,
	})
}

// ref reads what a reference names, and whatever its variable parts are.
func (w *walker) ref(v *visit, ref ast.Ref, line int) {
	full := w.expand(v, ref)
	for _, t := range full[1:] {
		w.term(v, t)
	}
	head, ok := full[0].Value.(ast.Var)
	switch {
	case !ok:
		w.term(v, full[0]) // a literal or a call that is looked into
	case head.Equal(ast.InputRootDocument.Value):
		path, _ := constants(full[1:])
		w.read(v, path, demand{}, line)
	case head.Equal(ast.DefaultRootDocument.Value):
		w.document(full, demand{}, v, line, v.mocked)
	}
	// Any other variable got its value where that was read.
}

// aliases finds the variables of a rule that stand for a constant reference:
// those that one equation binds, and the plain arguments, where args say what
// they are. Such a variable must be used as the head of references only; one that
// stands anywhere else is left out, and its reference is read as a whole where it
// is bound.
func (w *walker) aliases(rule *ast.Rule, args []ast.Ref, params map[ast.Var]bool) map[ast.Var]ast.Ref {
	u := usage{bound: map[ast.Var][]ast.Ref{}, plain: map[ast.Var]int{}, arity: w.arity}
	u.rule(rule)
	means := map[ast.Var]ast.Ref{}
	for i, arg := range rule.Head.Args {
		x, ok := arg.Value.(ast.Var)
		if ok && i < len(args) && args[i] != nil && u.plain[x] == 1 && len(u.bound[x]) == 0 { // the argument itself
			means[x], params[x] = args[i], true
		}
	}
	v := &visit{means: means}
	for again := true; again; {
		again = false
		for x, refs := range u.bound {
			if means[x] != nil || len(refs) != 1 || u.plain[x] > 0 {
				continue
			}
			if full, ok := w.resolve(v, refs[0]); ok {
				means[x], again = full, true
			}
		}
	}
	return means
}

// usage counts how the variables of a rule are used.
type usage struct {
	bound map[ast.Var][]ast.Ref // by equations with a reference
	plain map[ast.Var]int       // anywhere but there, as the head of a reference and where its use is followed
	arity func(ast.Ref) int     // of a function of the policy; 0 for anything else
}

func (u *usage) rule(r *ast.Rule) {
	var visitor *ast.GenericVisitor
	visitor = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Rule:
			// Else branches are rules of their own, with variables of their own.
			return x != r
		case *ast.Head:
			for _, t := range x.Reference[min(1, len(x.Reference)):] {
				visitor.Walk(t)
			}
			visitor.Walk(x.Args)
			if x.Key != nil {
				visitor.Walk(x.Key)
			}
			// How much is read of what is the whole value, the demand says.
			if _, whole := valueOf(x).(ast.Var); x.Value != nil && !whole {
				visitor.Walk(x.Value)
			}
			return true
		case *ast.Expr:
			return u.equation(visitor, x) || u.followed(visitor, x)
		case ast.Ref:
			for _, t := range x[1:] {
				visitor.Walk(t)
			}
			if _, ok := x[0].Value.(ast.Var); !ok {
				visitor.Walk(x[0])
			}
			return true
		case ast.Var:
			u.plain[x]++
		}
		return false
	})
	visitor.Walk(r)
}

// equation reports whether an expression is one that binds a variable to a
// reference, and needs no closer look.
func (u *usage) equation(visitor *ast.GenericVisitor, e *ast.Expr) bool {
	terms, ok := e.Terms.([]*ast.Term)
	if !ok || !e.IsEquality() || len(terms) != 3 || e.Negated {
		return false
	}
	for i := 1; i <= 2; i++ {
		x, isVar := terms[i].Value.(ast.Var)
		ref, isRef := terms[3-i].Value.(ast.Ref)
		if isVar && isRef {
			u.bound[x] = append(u.bound[x], ref)
			visitor.Walk(ref)
			for _, with := range e.With {
				visitor.Walk(with)
			}
			return true
		}
	}
	return false
}

// followed reports whether an expression is a call that needs no closer look:
// what becomes of variables that it is called with is found out in the function,
// or nothing of them is used but the type.
func (u *usage) followed(visitor *ast.GenericVisitor, e *ast.Expr) bool {
	terms, ok := e.Terms.([]*ast.Term)
	if !ok || len(terms) < 2 {
		return false
	}
	operator, ok := terms[0].Value.(ast.Ref)
	if !ok {
		return false
	}
	n := u.arity(operator)
	if looksAtType(operator.String()) {
		n = 1
	}
	for i, t := range terms[1:] {
		if _, isVar := t.Value.(ast.Var); !isVar || i >= n {
			visitor.Walk(t)
		}
	}
	for _, with := range e.With {
		visitor.Walk(with)
	}
	return true
}

// arity is how many arguments a function of the policy takes. What follows them
// in a call is the result.
func (w *walker) arity(operator ast.Ref) int {
	if !operator.HasPrefix(ast.DefaultRootRef) {
		return 0
	}
	for _, rule := range w.compiler.GetRulesDynamicWithOpts(operator, ast.RulesOptions{IncludeHiddenModules: true}) {
		return len(rule.Head.Args)
	}
	return 0
}

func valueOf(h *ast.Head) ast.Value {
	if h.Value == nil {
		return nil
	}
	return h.Value.Value
}
