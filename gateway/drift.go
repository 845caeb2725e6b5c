package gateway

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
)

// drifted reports whether the tool is offered with another definition than the
// one that it is pinned to. An entry that nobody confirmed pins nothing.
func (o *offer) drifted() bool {
	return o.pinned() && o.entry.SHA256 != o.definition.SHA256
}

func (o *offer) pinned() bool { return o.entry != nil && !o.entry.Suggested && o.entry.SHA256 != "" }

// heed says in the log when a tool comes to be other than it was pinned, and when
// that is over: once for each definition, since only what changed is joined anew.
// before is what was offered under the name, which may be nil. What of the
// definition changed can be told where that was the pinned one.
func (j *joiner) heed(before, now *offer) {
	was, is := before != nil && before.drifted(), now.drifted()
	switch {
	case is && was && before.definition.SHA256 == now.definition.SHA256 && before.entry.SHA256 == now.entry.SHA256:
	case is:
		attrs := []any{keyServer, now.server, keyName, now.name, "pinned", now.entry.SHA256, "offered", now.definition.SHA256}
		if before != nil && before.definition.SHA256 == now.entry.SHA256 {
			attrs = append(attrs, "changed", changed(before.definition.Raw, now.definition.Raw))
		}
		j.log.Warn("a tool is not as it was pinned: see `regogate registry diff`, and approve it or put it into quarantine", attrs...)
	case was:
		j.log.Info("a tool is as it is pinned again", keyServer, now.server, keyName, now.name)
	}
}

// changed names the members that differ in two definitions, of those that are
// pinned, sorted.
func changed(one, other jsontext.Value) (names []string) {
	a, b := canonical(one), canonical(other)
	for _, m := range a {
		if !bytes.Equal(m.Value, mcp.Get(b, m.Name)) {
			names = append(names, m.Name)
		}
	}
	for _, m := range b {
		if mcp.Get(a, m.Name) == nil {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// canonical is what of a definition is pinned, or nothing where that cannot be told.
func canonical(definition jsontext.Value) []mcp.Member {
	form, err := upstream.Canonical(definition)
	if err != nil {
		return nil
	}
	members, err := mcp.Split(form)
	if err != nil {
		return nil
	}
	return members
}
