package gateway

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/regogate/regogate/gateway/policy"
)

// maxVisible is how many sets of one list are kept. Principals with the same
// rights share one.
const maxVisible = 32

// visible is what those see of a list to whom the policy allows the same of it.
// It is put together once and then shared: nobody modifies it.
type visible struct {
	offers []*offer
	mark   mark
	joined func() []byte // all definitions, as they stand in a list
}

// visibleSets keeps the sets of one list of one route.
type visibleSets struct{ kept *lru.Cache[string, *visible] }

func newVisibleSets() visibleSets {
	kept, err := lru.New[string, *visible](maxVisible)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return visibleSets{kept}
}

// visible returns what the answers allow of the view.
func (v view) visible(answers *policy.Answers, m mark) *visible {
	if answers.Len() == 0 {
		return &visible{joined: func() []byte { return nil }}
	}
	set := string(rune(m)) + answers.Set()
	if known, ok := v.sets.kept.Get(set); ok {
		return known
	}
	offers := make([]*offer, 0, answers.Count())
	for i, o := range v.offers {
		if answers.Allowed(i) {
			offers = append(offers, o)
		}
	}
	if v.route == "" {
		offers = firsts(offers)
	}
	found := &visible{offers: offers, mark: m, joined: sync.OnceValue(func() []byte { return join(offers, v.route, m) })}
	v.sets.kept.Add(set, found)
	return found
}

// firsts leaves one of each name, the one that using it would go to: URIs may
// stand at several servers.
func firsts(offers []*offer) []*offer {
	seen := make(map[string]bool, len(offers))
	out := offers[:0]
	for _, o := range offers {
		if !seen[o.exposed] {
			seen[o.exposed] = true
			out = append(out, o)
		}
	}
	return out
}

// join puts definitions together that were encoded when they were discovered.
func join(offers []*offer, route string, m mark) []byte {
	size := len(offers)
	for _, o := range offers {
		size += len(o.bytes(route, m))
	}
	out := make([]byte, 0, size)
	for i, o := range offers {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, o.bytes(route, m)...)
	}
	return out
}
