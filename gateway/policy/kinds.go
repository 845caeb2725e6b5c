package policy

import "math/bits"

// kinds divides a list into the kinds of things that a rule can tell apart: of
// each, one is asked about.
type kinds struct {
	keys  []string // of each kind
	first []int    // the first item of each kind
	of    []int    // the kind of each item; -1 for one that cannot be asked about
	// classes are those of the kinds for the rules behind.
	classes *classes
}

// kindsOf is made once for a list and a snapshot.
func (s *Snapshot) kindsOf(items *Items) *kinds {
	if k, ok := s.cache.kinds.Get(items); ok {
		return k
	}
	k := &kinds{of: make([]int, items.Len())}
	known := make(map[string]int, 64)
	var key []byte
	for i, item := range items.items {
		if item == nil || item.entry[1] == nil {
			k.of[i] = -1
			continue
		}
		key = item.append(key[:0], s.reads)
		n, ok := known[string(key)]
		if !ok {
			n = len(k.keys)
			known[string(key)] = n
			k.keys, k.first = append(k.keys, string(key)), append(k.first, i)
		}
		k.of[i] = n
	}
	k.classes = classesOf(s.lifetimes, items, k.first)
	s.cache.kinds.Add(items, k)
	return k
}

// classesOf numbers the things at places of a list for each rule.
func classesOf(lifetimes []lifetime, items *Items, places []int) *classes {
	c := &classes{of: make([][]int, len(lifetimes)), count: make([]int, len(lifetimes))}
	var key []byte
	for slot, l := range lifetimes {
		if l.span != ofKind {
			continue
		}
		known := map[string]int{}
		numbers := make([]int, len(places))
		for i, place := range places {
			key = items.items[place].append(key[:0], l.reads)
			n, ok := known[string(key)]
			if !ok {
				n = len(known)
				known[string(key)] = n
			}
			numbers[i] = n
		}
		c.of[slot], c.count[slot] = numbers, len(known)
	}
	return c
}

// Answers is the decisions on a list. It is immutable and may be shared: the same
// list gets the same Answers again. The zero Answers is those on an empty list.
type Answers struct {
	size      int
	allowed   bitset
	undefined bitset
	rest      map[int]Decision // other codes, by the place in the list
	// Unfinished is "" when every item was judged, one that took longer than a
	// decision may and is denied for that included. Otherwise the time for the list
	// was over first, CodeTimeout, or the caller went away, CodeCancelled, and the
	// decisions say nothing about the list as a whole.
	Unfinished string
}

func newAnswers(size int) *Answers {
	return &Answers{size: size, allowed: newBitset(size), undefined: newBitset(size)}
}

func (a *Answers) set(i int, d Decision) {
	switch {
	case d.Allowed:
		a.allowed.set(i)
	case d.Code == CodeUndefined:
		a.undefined.set(i)
	case d.Code != "":
		if a.rest == nil {
			a.rest = map[int]Decision{}
		}
		a.rest[i] = d
	}
}

// Len is the number of items.
func (a *Answers) Len() int { return a.size }

// Allowed reports whether the item at i is allowed.
func (a *Answers) Allowed(i int) bool { return a.allowed.has(i) }

// Count is how many items are allowed.
func (a *Answers) Count() int { return a.allowed.count() }

// Set names which items are allowed: lists of the same items with equal sets
// allow the same ones.
func (a *Answers) Set() string { return a.allowed.text() }

// At is the decision on the item at i.
func (a *Answers) At(i int) Decision {
	switch {
	case a.allowed.has(i):
		return Decision{Allowed: true}
	case a.undefined.has(i):
		return Decision{Code: CodeUndefined}
	}
	return a.rest[i]
}

// First is the first decision with a code, the zero Decision where there is none.
func (a *Answers) First() Decision {
	for i := range a.size {
		if d := a.At(i); d.Code != "" {
			return d
		}
	}
	return Decision{}
}

// keepable reports whether the answers say nothing of the moment.
func (a *Answers) keepable() bool { return a.Unfinished == "" && len(a.rest) == 0 }

type bitset []uint64

func newBitset(size int) bitset { return make(bitset, (size+63)/64) }

func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

func (b bitset) count() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

func (b bitset) text() string {
	out := make([]byte, 0, 8*len(b))
	for _, word := range b {
		for shift := 0; shift < 64; shift += 8 {
			out = append(out, byte(word>>shift))
		}
	}
	return string(out)
}
