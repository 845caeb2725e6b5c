package diff

import (
	"cmp"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/registry"
)

// What a Change is of, and how.
const (
	Server     = "server"
	Tool       = "tool"
	Pin        = "pin"
	Quarantine = "quarantine"
	Signature  = "signature" // of a whole catalogue; only Thing tells of it

	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is one thing that differs between two catalogues.
type Change struct {
	What   string  `json:"what"` // server, tool, pin, quarantine or signature
	How    string  `json:"how"`  // added, removed or changed
	Server string  `json:"server"`
	Tool   string  `json:"tool,omitempty"` // "" is the server itself
	Fields []Field `json:"fields"`         // all that it says, or what changed
}

// Catalogues returns what differs, sorted by server, then tool, then in the order
// server, tool, pin, quarantine. A pin is a thing of its own, apart from the tool
// that it is of. Nil counts as empty. Revisions and signatures are not compared.
func Catalogues(old, new *registry.Catalogue) (changes []Change) {
	before, after := things(old), things(new)
	for _, k := range slices.SortedFunc(maps.Keys(either(before, after)), compareKeys) {
		fields := members("", before[k], after[k])
		if how := how(before[k], after[k], fields); how != "" {
			changes = append(changes, Change{What: names()[k.what], How: how, Server: k.server, Tool: k.tool, Fields: fields})
		}
	}
	return changes
}

func how(old, new map[string]jsontext.Value, fields []Field) string {
	switch {
	case old == nil:
		return Added
	case new == nil:
		return Removed
	case len(fields) > 0:
		return Changed
	}
	return ""
}

// Thing returns the change of one thing from its old state to the new one, each as
// the history of a registry has it: an object, or the text that a pin or a
// signature is. Nil was not there; they are not both nil.
func Thing(what, server, tool string, old, new jsontext.Value) Change {
	before, after := state(what, old), state(what, new)
	fields := members("", before, after)
	return Change{What: what, How: how(before, after, fields), Server: server, Tool: tool, Fields: fields}
}

// state is what is said of a thing besides its names, and nil of none.
func state(what string, encoded jsontext.Value) map[string]jsontext.Value {
	switch {
	case encoded == nil:
		return nil
	case encoded.Kind() != '{' && what == Pin:
		return map[string]jsontext.Value{sha256: canonical(encoded)}
	case encoded.Kind() != '{':
		return map[string]jsontext.Value{what: canonical(encoded)}
	}
	m := object(canonical(encoded))
	for _, name := range []string{"server", "name", "tool"} {
		delete(m, name)
	}
	return m
}

const sha256 = "sha256"

// key is of one thing in a catalogue; what is an index of names.
type key struct {
	server, tool string
	what         int
}

func names() []string { return []string{Server, Tool, Pin, Quarantine} }

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.server, b.server), cmp.Compare(a.tool, b.tool), cmp.Compare(a.what, b.what))
}

// things returns what a catalogue says of each thing, none of them nil.
func things(c *registry.Catalogue) map[key]map[string]jsontext.Value {
	found := map[key]map[string]jsontext.Value{}
	if c == nil {
		return found
	}
	for _, s := range c.Servers {
		found[key{s.Name, "", 0}] = said(Server, s)
	}
	for _, t := range c.Tools {
		found[key{t.Server, t.Name, 1}] = said(Tool, t)
		delete(found[key{t.Server, t.Name, 1}], sha256)
		if t.SHA256 != "" {
			found[key{t.Server, t.Name, 2}] = map[string]jsontext.Value{sha256: text(t.SHA256)}
		}
	}
	for _, q := range c.Quarantine {
		found[key{q.Server, q.Tool, 3}] = said(Quarantine, q)
	}
	return found
}

// said is the state of a thing of the registry's own types, which always encode.
func said(what string, thing any) map[string]jsontext.Value {
	encoded, _ := json.Marshal(thing, json.Deterministic(true))
	return state(what, encoded)
}
