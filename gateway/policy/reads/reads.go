// Package reads finds out what a rule of a compiled policy can read: which parts
// of the input, and which built-in functions. It errs on one side only. What it
// does not follow counts as read, and what it does not know makes the answer one
// that cannot be kept.
//
// From the entry it walks every rule that can take part: bodies, else, heads,
// functions with what they are called with, comprehensions, every, templates,
// and both sides of `with`. A reference reads what its longest constant prefix
// names, and everything below that. A variable that stands for a constant
// reference, and is only used as the head of others, is followed; used in any
// other way it reads all that it stands for. A rule with one value is asked for
// the part of it that is used.
package reads

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Path is the place of a value in the input, from the root: ["claims" "sub"] is
// input.claims.sub. The empty Path is the whole input.
type Path []ast.Value

// String is the path as Rego writes it.
func (p Path) String() string {
	ref := ast.Ref{ast.InputRootDocument}
	for _, v := range p {
		ref = append(ref, ast.NewTerm(v))
	}
	return ref.String()
}

func (p Path) startsWith(other Path) bool {
	if len(p) < len(other) {
		return false
	}
	for i, v := range other {
		if v.Compare(p[i]) != 0 {
			return false
		}
	}
	return true
}

// Step is one place on the way from the entry to a read.
type Step struct {
	Rule string // such as data.mcp.authz.allow
	File string
	Line int // of the step on, or of the read
}

// read is one place of the input that is looked at.
type read struct {
	path    Path
	shallow bool // only whether there is a value, and of which type
	mocked  bool // below a `with`, which may put something else there
	way     *visit
	line    int
}

// Reads is what a rule can read. It is immutable and safe for concurrent use.
type Reads struct {
	// Unsafe says why the answer may differ although all that is read is the same,
	// or why that cannot be told: one line with its place. It is "" where neither
	// is so.
	Unsafe string
	// Builtins are the built-in functions that are reached, sorted.
	Builtins []string

	rules []ast.Ref

	all  []read // in the order in which they were found
	keys []read // what keys are made of: none lies below another
}

// Input is the places that are read, sorted: each with all that lies below it,
// but for those where only the type matters, which end in "?".
func (r *Reads) Input() []string {
	names := make([]string, len(r.keys))
	for i, k := range r.keys {
		names[i] = k.path.String()
		if k.shallow {
			names[i] += "?"
		}
	}
	return names
}

// Rules are the ground paths of the rules that can take part, each once.
func (r *Reads) Rules() []ast.Ref { return slices.Clone(r.rules) }

// Reaches reports whether the entry reads the place or something below it:
// proven where a reference names it, possible where one reads more around it,
// such as the whole input. The chain leads from the entry to the first such read;
// it is nil where there is none.
func (r *Reads) Reaches(path ...string) (chain []Step, proven, possible bool) {
	place := make(Path, len(path))
	for i, name := range path {
		place[i] = ast.String(name)
	}
	var around *read
	for i := range r.all {
		a := &r.all[i]
		switch {
		case a.path.startsWith(place) && !a.mocked:
			return a.chain(), true, true
		case around == nil && (a.path.startsWith(place) || place.startsWith(a.path) && !a.shallow):
			around = a
		}
	}
	if around == nil {
		return nil, false, false
	}
	return around.chain(), false, true
}

func (a *read) chain() (steps []Step) {
	line := a.line
	for v := a.way; v != nil; v = v.from {
		steps = append(steps, Step{Rule: v.rule.Ref().String(), File: file(v.rule.Location), Line: line})
		line = v.line
	}
	slices.Reverse(steps)
	return steps
}

// settle makes the keys of all reads.
func (r *Reads) settle() {
	sorted := slices.Clone(r.all)
	slices.SortStableFunc(sorted, func(a, b read) int {
		if c := slices.CompareFunc(a.path, b.path, ast.Value.Compare); c != 0 {
			return c
		}
		// What reads everything comes before what reads the type.
		switch {
		case a.shallow == b.shallow:
			return 0
		case a.shallow:
			return 1
		}
		return -1
	})
	for _, a := range sorted {
		covered := slices.ContainsFunc(r.keys, func(k read) bool {
			return !k.shallow && a.path.startsWith(k.path) || k.shallow && a.shallow && slices.EqualFunc(k.path, a.path, equal)
		})
		if !covered {
			r.keys = append(r.keys, a)
		}
	}
}

func equal(a, b ast.Value) bool { return a.Compare(b) == 0 }

func file(l *ast.Location) string {
	if l == nil {
		return ""
	}
	return l.File
}

func row(l *ast.Location) int {
	if l == nil {
		return 0
	}
	return l.Row
}

// at is the place of a term in the policy.
func at(l *ast.Location) string {
	if l == nil {
		return "an unknown place"
	}
	return strings.TrimPrefix(l.File, "./") + ":" + itoa(l.Row)
}
