package decisionlog

import (
	"maps"
	"slices"

	"github.com/regogate/regogate/gateway/policy"
)

// List is a list that was judged, and the decisions on its items in their order.
//
// Its event can be replayed. The result names the exact sets:
//
//	{"total": 3, "allowed": 1, "denied": 2, "sets": {
//	  "allowed": {"tool": {"stripe": ["get_refund"]}},
//	  "denied":  {"tool": {"stripe": ["create_refund"]}, "server": {"stripe": [""]}}}}
//
// by kind, server and name: a server has no name but its own, and a template of
// resources is named by itself. To replay it, take the policy of the event's
// bundles and, at custom.registry_revision, what the registry says of each thing
// named; put the thing under the key of its kind into the event's input, and ask
// for the event's path: the answer is true for the allowed and for no other. The
// input has to be there in full, that is, neither custom.truncated nor erased or
// masked may name a part of it that the rule reads.
//
// A list that was not judged to its end has no sets: nobody was shown anything.
// Where names are too many to write down the result says "truncated": true, and
// has the set that fits or none.
type List struct {
	Items   *policy.Items
	Answers *policy.Answers
}

// Total is how many items were judged.
func (l *List) Total() int { return l.Answers.Len() }

// Names returns the items that were allowed, or those that were not, in their
// order. Where the list was not judged to its end nothing was allowed.
func (l *List) Names(allowed bool) []policy.Name {
	var names []policy.Name
	for i := range l.Answers.Len() {
		if (l.Answers.Allowed(i) && l.Answers.Unfinished == "") == allowed {
			names = append(names, l.Items.At(i).Name())
		}
	}
	return names
}

// maxNames is how many bytes of names a list has room for.
const maxNames = 64 << 10

// append appends the result of the list.
func (l *List) append(dst []byte) []byte {
	if code := l.Answers.Unfinished; code != "" {
		dst = appendMember(append(dst, '{'), "allowed", appendInt(nil, 0))
		dst = appendMember(dst, "denied", appendInt(nil, l.Total()))
		dst = appendMember(dst, "total", appendInt(nil, l.Total()))
		return append(appendMember(dst, "unfinished", appendText(nil, code)), '}')
	}
	allowed, denied := l.Names(true), l.Names(false)
	yes, no := appendNames(nil, allowed), appendNames(nil, denied)
	truncated := len(yes)+len(no) > maxNames
	if truncated {
		// With the registry's revision either set gives the other.
		if len(yes) > maxNames || len(no) < len(yes) {
			yes = nil
		}
		if yes != nil || len(no) > maxNames {
			no = nil
		}
	}
	var sets []byte
	for _, set := range []struct {
		name  string
		names []byte
		empty bool
	}{{"allowed", yes, len(allowed) == 0}, {"denied", no, len(denied) == 0}} {
		if set.names != nil && !set.empty {
			sets = appendMember(sets, set.name, set.names)
		}
	}
	dst = appendMember(append(dst, '{'), "allowed", appendInt(nil, len(allowed)))
	dst = appendMember(dst, "denied", appendInt(nil, len(denied)))
	if sets != nil {
		dst = appendMember(dst, "sets", append(append([]byte{'{'}, sets...), '}'))
	}
	dst = appendMember(dst, "total", appendInt(nil, l.Total()))
	if truncated {
		dst = appendMember(dst, "truncated", []byte("true"))
	}
	return append(dst, '}')
}

// appendNames appends the names by kind and server, sorted.
func appendNames(dst []byte, names []policy.Name) []byte {
	all := map[policy.Kind]map[string][]string{}
	for _, n := range names {
		if all[n.Kind] == nil {
			all[n.Kind] = map[string][]string{}
		}
		all[n.Kind][n.Server] = append(all[n.Kind][n.Server], n.Name)
	}
	dst = append(dst, '{')
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		servers := []byte{'{'}
		for _, server := range slices.Sorted(maps.Keys(all[kind])) {
			slices.Sort(all[kind][server])
			servers = appendMember(servers, server, appendTexts(nil, all[kind][server]))
		}
		dst = appendMember(dst, string(kind), append(servers, '}'))
	}
	return append(dst, '}')
}
