package gateway

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry/diff"
)

// drifted reports whether the definition is another one than the tool is pinned to.
// An entry that nobody confirmed pins nothing.
func (k knowledge) drifted(def upstream.Definition) bool {
	return k.entry != nil && !k.entry.Suggested && k.entry.SHA256 != "" && k.entry.SHA256 != def.SHA256
}

// heed says in the log when a tool comes to be other than it was pinned, and when
// that is over: once for each definition, since only what changed is joined anew.
// before is what was offered under the name, which may be nil. What of the
// definition changed can be told where that was the pinned one.
func (j *joiner) heed(before, now *offer) {
	was, is := before != nil && before.drifted(before.definition), now.drifted(now.definition)
	switch {
	case is && was && before.definition.SHA256 == now.definition.SHA256 && before.entry.SHA256 == now.entry.SHA256:
	case is:
		attrs := []any{keyServer, now.server, keyName, now.name, "pinned", now.entry.SHA256, "offered", now.definition.SHA256}
		if before != nil && before.definition.SHA256 == now.entry.SHA256 {
			attrs = append(attrs, changed(before.definition.Raw, now.definition.Raw)...)
		}
		j.log.Warn("a tool is not as it was pinned: see `regogate registry diff`, and approve it or put it into quarantine", attrs...)
	case was:
		j.log.Info("a tool is as it is pinned again", keyServer, now.server, keyName, now.name)
	}
}

// changed tells how two definitions differ, of what is pinned in them: where, and
// how for people to read, with what hides in it shown.
func changed(one, other jsontext.Value) []any {
	a, err := upstream.Canonical(one)
	b, e := upstream.Canonical(other)
	if err != nil || e != nil {
		return nil
	}
	fields := diff.Definitions(a, b)
	paths := make([]string, 0, mostPaths)
	for _, f := range fields[:min(len(fields), mostPaths)] {
		paths = append(paths, diff.Plain(f.Path))
	}
	var text strings.Builder
	diff.PrintFields(&text, "", fields)
	return []any{"changed", paths, "diff", text.String()}
}

// mostPaths bounds how many are named in a line of the log.
const mostPaths = 20
