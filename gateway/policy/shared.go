package policy

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/regogate/regogate/gateway/policy/reads"
)

// span is how long a rule's value holds.
type span uint8

const (
	ofItem   span = iota // as long as one thing is asked about
	ofKind               // in a list, for all things that the rule cannot tell apart
	ofAsker              // for a whole list: nothing of the things bears on it
	ofPolicy             // for ever: nothing of the input bears on it
)

// lifetime is the span of a rule with what it reads.
type lifetime struct {
	span  span
	reads *reads.Reads
}

// spans knows the span of each rule that can take part in an answer, by its path.
type spans struct {
	next map[string]*spans
	slot int // of a rule; -1 where there is none
}

// planSpans looks at each rule that r was found to reach. Rules whose names overlap
// share the slot of the shortest.
func planSpans(c *ast.Compiler, r *reads.Reads) (root *spans, each []lifetime) {
	root = &spans{slot: -1}
	paths := r.Rules()
	slices.SortFunc(paths, func(a, b ast.Ref) int { return len(a) - len(b) })
	for _, path := range paths {
		n, at := root, 0
		for ; at < len(path) && n.slot < 0; at++ {
			name := segment(path[at])
			if n.next == nil {
				n.next = map[string]*spans{}
			}
			if n.next[name] == nil {
				n.next[name] = &spans{slot: -1}
			}
			n = n.next[name]
		}
		if n.slot < 0 {
			n.slot = len(each)
			r := reads.Of(c, path)
			each = append(each, lifetime{spanOf(r), r})
		}
	}
	return root, each
}

func spanOf(r *reads.Reads) span {
	if r.Unsafe != "" {
		return ofItem
	}
	if len(r.Input()) == 0 {
		return ofPolicy
	}
	for _, kind := range allKinds {
		if _, _, possible := r.Reaches(string(kind)); possible {
			return ofKind
		}
	}
	return ofAsker
}

// segment is a part of a path; what is no name never matches one.
func segment(t *ast.Term) string {
	switch x := t.Value.(type) {
	case ast.Var:
		return string(x)
	case ast.String:
		return string(x)
	}
	return "\x00"
}

// sharing is a cache of rules' values that outlives one evaluation as far as the
// analysis of the rules says that it may. OPA alone would work out for each thing
// of a list again what it has worked out for the one before. Values are shared
// only where the evaluation that gave them ended without an error, since OPA goes
// on with undefined where a built-in fails; and never below a `with`, which
// changes what they would be. It is not safe for concurrent use.
type sharing struct {
	root      *spans
	lifetimes []lifetime
	cells     []cell
	byClass   [][]cell // of rules that are kept by kinds, by the class of the thing
	classes   *classes // of the list's things; nil where they are not known
	at        int      // which of them is asked about
	// A cell counts as long as it was filled at the present turn of its span.
	item, asker, policy uint64
	depth               int // of `with`
	inner               topdown.VirtualCache
}

// classes says of each rule that is kept by kinds which things of a list it cannot
// tell apart: they have the same number.
type classes struct {
	of    [][]int // by rule, then by thing; nil for a rule that is kept otherwise
	count []int   // by rule: how many numbers there are
}

// cell is what is known of one rule.
type cell struct {
	turn   uint64
	values []known
}

// known is one value of a rule: the whole, where the key is empty, a part of it, or
// what a function gave.
type known struct {
	key       []*ast.Term
	value     *ast.Term
	undefined bool
}

// maxKnown bounds what is kept of one rule: functions can be called with anything.
const maxKnown = 32

func newSharing(root *spans, each []lifetime) *sharing {
	return &sharing{
		root: root, lifetimes: each, cells: make([]cell, len(each)), byClass: make([][]cell, len(each)),
		item: 1, asker: 1, policy: 1,
	}
}

// begin starts a list.
func (s *sharing) begin(c *classes) {
	s.item, s.asker, s.classes = s.item+1, s.asker+1, c
	if c == nil {
		return
	}
	for slot, n := range c.count {
		if len(s.byClass[slot]) < n {
			s.byClass[slot] = make([]cell, n)
		}
	}
}

// next goes on with another thing of the list.
func (s *sharing) next(at int) { s.item, s.at = s.item+1, at }

// forget drops everything, after an evaluation that did not end well.
func (s *sharing) forget() {
	s.item, s.asker, s.policy = s.item+1, s.asker+1, s.policy+1
	s.depth, s.inner = 0, nil
}

// cell is the one of a rule, for the thing that is asked about.
func (s *sharing) cell(slot int) *cell {
	c, turn := &s.cells[slot], s.item
	switch s.lifetimes[slot].span {
	case ofPolicy:
		turn = s.policy
	case ofAsker:
		turn = s.asker
	case ofKind:
		if s.classes != nil {
			c, turn = &s.byClass[slot][s.classes.of[slot][s.at]], s.asker
		}
	}
	if c.turn != turn {
		c.turn, c.values = turn, c.values[:0]
	}
	return c
}

// find returns the cell that a reference belongs to, and the key within it; nil
// for what is not kept.
func (s *sharing) find(ref ast.Ref) (*cell, []*ast.Term) {
	n := s.root
	path, rest := []*ast.Term(ref), []*ast.Term(nil)
	if name, ok := ref[0].Value.(ast.Ref); ok { // a function, followed by its arguments
		path, rest = name, ref[1:]
	}
	for at, t := range path {
		if n = n.next[segment(t)]; n == nil {
			return nil, nil
		}
		if n.slot < 0 {
			continue
		}
		if rest == nil {
			rest = path[at+1:]
		}
		return s.cell(n.slot), rest
	}
	return nil, nil
}

// Get implements topdown.VirtualCache.
func (s *sharing) Get(ref ast.Ref) (value *ast.Term, undefined bool) {
	if s.depth > 0 {
		return s.inner.Get(ref)
	}
	c, key := s.find(ref)
	if c == nil {
		return nil, false
	}
	for i := range c.values {
		if k := &c.values[i]; sameKey(k.key, key) {
			return k.value, k.undefined
		}
	}
	return nil, false
}

// Put implements topdown.VirtualCache.
func (s *sharing) Put(ref ast.Ref, value *ast.Term) {
	if s.depth > 0 {
		s.inner.Put(ref, value)
		return
	}
	c, key := s.find(ref)
	if c == nil {
		return
	}
	for i := range c.values {
		if k := &c.values[i]; sameKey(k.key, key) {
			k.value, k.undefined = value, value == nil
			return
		}
	}
	if len(c.values) < maxKnown {
		c.values = append(c.values, known{slices.Clone(key), value, value == nil})
	}
}

func sameKey(a, b []*ast.Term) bool {
	return slices.EqualFunc(a, b, func(x, y *ast.Term) bool { return x == y || x.Equal(y) })
}

// Push implements topdown.VirtualCache.
func (s *sharing) Push() {
	if s.depth++; s.depth == 1 {
		s.inner = topdown.NewVirtualCache()
		return
	}
	s.inner.Push()
}

// Pop implements topdown.VirtualCache.
func (s *sharing) Pop() {
	if s.depth--; s.depth == 0 {
		s.inner = nil
		return
	}
	s.inner.Pop()
}

// Keys implements topdown.VirtualCache; nothing that evaluates asks for them.
func (s *sharing) Keys() []ast.Ref { return nil }
