package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every code that fault.go has, or completes, is one that requests are counted
// under, once.
func TestOutcomesAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known, seen := outcomes(), 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "code") {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if !slices.ContainsFunc(known, func(k string) bool {
			return k == code || strings.HasSuffix(code, "_") && strings.HasPrefix(k, code)
		}) {
			t.Errorf("%s is not counted", code)
		}
		return true
	})
	if seen < 25 {
		t.Errorf("found %d codes: looked in the wrong place", seen)
	}
	slices.Sort(known)
	if all := len(known); all != len(slices.Compact(known)) {
		t.Errorf("some of %q stand there twice", known)
	}
}
