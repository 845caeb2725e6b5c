package reads

import (
	"cmp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Finding is a habit in a policy that is likely to allow more than it says.
type Finding struct {
	File    string
	Line    int
	Message string // what it is and how to mend it, one line
}

// Lint finds conditions on arguments that a caller can meet by leaving an argument
// out or sending another type: `not` of what reads them, which holds where they
// are missing, and comparisons by order, which Rego has between any two types
// (null < 1000 and "5" > 1000 are true). Where the same body looks at the type of
// the argument, such as with is_number, nothing is found. The findings are sorted
// by place.
func Lint(c *ast.Compiler) []Finding {
	l := &linter{}
	for _, m := range c.Modules {
		for _, rule := range m.Rules {
			for r := rule; r != nil; r = r.Else {
				l.rule(r)
			}
		}
	}
	slices.SortFunc(l.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(l.found)
}

type linter struct{ found []Finding }

func (l *linter) add(place *ast.Location, message string) {
	l.found = append(l.found, Finding{File: file(place), Line: row(place), Message: message})
}

func (l *linter) rule(r *ast.Rule) {
	ast.WalkBodies(r, func(b ast.Body) bool {
		l.body(b)
		return false
	})
}

// body looks at one body; those inside of it are visited on their own.
func (l *linter) body(b ast.Body) {
	names, typed := map[ast.Var]string{}, map[string]bool{}
	for _, e := range b {
		terms, ok := e.Terms.([]*ast.Term)
		if !ok || e.Negated {
			continue
		}
		if e.IsEquality() {
			bind(names, terms[1], terms[2])
			bind(names, terms[2], terms[1])
		}
		if operator := terms[0].String(); looksAtType(operator) && len(terms) > 1 {
			if name := argument(names, terms[1]); name != "" {
				typed[name] = true
			}
		}
	}
	for _, e := range b {
		l.expr(e, names, typed)
	}
}

func bind(names map[ast.Var]string, variable, term *ast.Term) {
	x, ok := variable.Value.(ast.Var)
	if name := argument(nil, term); ok && name != "" {
		names[x] = name
	}
}

func (l *linter) expr(e *ast.Expr, names map[ast.Var]string, typed map[string]bool) {
	if e.Negated {
		if name := below(e, names); name != "" {
			l.add(e.Location, "not of "+name+" holds where the argument is missing: say what it must be, such as "+name+" == false")
		}
		return
	}
	terms, ok := e.Terms.([]*ast.Term)
	if !ok || len(terms) < 3 {
		return
	}
	switch operator := terms[0].String(); operator {
	case ast.LessThan.Name, ast.LessThanEq.Name, ast.GreaterThan.Name, ast.GreaterThanEq.Name:
		for _, t := range terms[1:3] {
			if name := argument(names, t); name != "" && !typed[name] {
				l.add(e.Location, name+" is compared by order without a look at its type, and Rego orders values of any types (null < 1000): add is_number("+name+") or is_string("+name+")")
			}
		}
	}
}

// argument is the name of what a term reads of the arguments; "" where it does
// not.
func argument(names map[ast.Var]string, t *ast.Term) string {
	switch x := t.Value.(type) {
	case ast.Var:
		return names[x]
	case ast.Ref:
		if x.HasPrefix(ast.MustParseRef("input.arguments")) {
			return x.String()
		}
	}
	return ""
}

// below is the first argument that an expression reads.
func below(e *ast.Expr, names map[ast.Var]string) (name string) {
	ast.WalkTerms(e, func(t *ast.Term) bool {
		if name == "" {
			name = argument(names, t)
		}
		return name != ""
	})
	return strings.TrimSpace(name)
}
