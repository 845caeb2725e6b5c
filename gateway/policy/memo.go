package policy

import (
	lru "github.com/hashicorp/golang-lru/v2"
)

// Bounds of a memo: questions about one thing, and lists. A remembered list
// takes a byte for each item.
const (
	memoOnes  = 16_384
	memoLists = 2_048
)

// memo remembers answers of allow for one snapshot, whose allow is repeatable.
// Nothing but its keys bears on these answers; subjects and items are immutable
// and stand for themselves, and the memo keeps them alive, so that no other can
// take their place in memory. Answers that say something of the moment, such as
// a timeout, are never kept. A nil memo remembers nothing. It is safe for
// concurrent use.
type memo struct {
	// ones holds only what was allowed: a thing that is hidden has to take as
	// long as one that does not exist. It holds only things that are known: the
	// names and URIs that clients can think of would never end, nor come again.
	ones  *lru.Cache[oneKey, struct{}]
	lists *lru.Cache[listKey, []verdict]
}

type oneKey struct {
	method  string
	subject *Subject
	item    *Item
}

type listKey struct {
	method  string
	subject *Subject
	items   *Items
}

// verdict is a decision that can be kept.
type verdict uint8

const (
	denied verdict = iota
	allowed
	undefined
)

func newMemo() *memo {
	ones, err := lru.New[oneKey, struct{}](memoOnes)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	lists, err := lru.New[listKey, []verdict](memoLists)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return &memo{ones, lists}
}

func (q *Question) key() oneKey { return oneKey{q.Method, q.Subject, q.Item} }

// allows reports whether the question is known to be allowed.
func (m *memo) allows(q *Question) bool {
	if m == nil {
		return false
	}
	_, ok := m.ones.Get(q.key())
	return ok
}

func (m *memo) keepOne(q *Question, d Decision) {
	if m != nil && d.Allowed && q.Item.known {
		m.ones.Add(q.key(), struct{}{})
	}
}

// list fills in the decisions of a list that is known.
func (m *memo) list(k listKey, decisions []Decision) bool {
	if m == nil {
		return false
	}
	verdicts, ok := m.lists.Get(k)
	for i, v := range verdicts {
		switch v {
		case allowed:
			decisions[i] = Decision{Allowed: true}
		case undefined:
			decisions[i] = Decision{Code: CodeUndefined}
		}
	}
	return ok
}

// keepList keeps the decisions, if all of them can be kept.
func (m *memo) keepList(k listKey, decisions []Decision) {
	if m == nil {
		return
	}
	verdicts := make([]verdict, len(decisions))
	for i, d := range decisions {
		switch {
		case d.Allowed:
			verdicts[i] = allowed
		case d.Code == CodeUndefined:
			verdicts[i] = undefined
		case d.Code != "":
			return
		}
	}
	m.lists.Add(k, verdicts)
}
