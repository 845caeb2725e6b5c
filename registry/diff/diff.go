// Package diff says what differs between two catalogues, or between two
// definitions of a tool, as people read it.
package diff

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Field is one place at which two documents differ.
type Field struct {
	// Path is such as inputSchema.properties.bcc or anyOf[1].type; names that are
	// no plain words stand as JSON strings in brackets. "" is the whole document.
	Path string `json:"path"`
	// Old and New are in canonical form, of any length; nil was not there.
	Old jsontext.Value `json:"old,omitzero"`
	New jsontext.Value `json:"new,omitzero"`
}

// Definitions returns what differs between two JSON documents, sorted by path:
// a field for the outermost value that is only in one of them or is another in
// each. White space, the order of an object's members and how a string is escaped
// are no difference; the digits of a number are, and so is the order of an array.
// Nil counts as an object without members. Bytes that are no JSON count as a JSON
// string of them, so that whatever is there shows.
func Definitions(old, new []byte) []Field { return between("", canonical(old), canonical(new)) }

func canonical(document []byte) jsontext.Value {
	if document == nil {
		return jsontext.Value("{}")
	}
	v := jsontext.Value(document).Clone()
	err := v.Canonicalize(jsontext.AllowInvalidUTF8(true),
		jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return text(string(document))
	}
	return v
}

// text is a string as JSON.
func text(s string) jsontext.Value {
	v, _ := jsontext.AppendQuote(nil, s) // fails only to say that U+FFFD stands for what is no UTF-8
	return v
}

// between compares canonical values.
func between(path string, old, new jsontext.Value) []Field {
	switch {
	case string(old) == string(new):
		return nil
	case old.Kind() == '{' && new.Kind() == '{':
		return members(path, object(old), object(new))
	case old.Kind() == '[' && new.Kind() == '[':
		return elements(path, old, new)
	}
	return []Field{{path, old, new}}
}

// object reads a canonical object.
func object(v jsontext.Value) (m map[string]jsontext.Value) {
	_ = json.Unmarshal(v, &m) // it is JSON
	return m
}

func members(path string, old, new map[string]jsontext.Value) (fields []Field) {
	for _, name := range slices.Sorted(maps.Keys(either(old, new))) {
		fields = append(fields, between(member(path, name), old[name], new[name])...)
	}
	return fields
}

// either holds what is in one of two maps, or in both.
func either[K comparable, V any](a, b map[K]V) map[K]V {
	all := make(map[K]V, len(a)+len(b))
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// shortArray is how long, in bytes, an array may be to be shown as a whole.
const shortArray = 80

// elements compares arrays: those of plain values as bags, unless it is only the
// order that differs, others place by place.
func elements(path string, old, new jsontext.Value) (fields []Field) {
	var before, after []jsontext.Value
	_, _ = json.Unmarshal(old, &before), json.Unmarshal(new, &after) // they are JSON
	plain := !slices.ContainsFunc(append(slices.Clone(before), after...), func(v jsontext.Value) bool {
		return v.Kind() == '{' || v.Kind() == '['
	})
	switch {
	case plain && max(len(old), len(new)) <= shortArray:
		return []Field{{path, old, new}}
	case plain:
		fields = bags(path, before, after)
		if fields == nil {
			fields = []Field{{path, old, new}}
		}
		return fields
	}
	for i := range max(len(before), len(after)) {
		var a, b jsontext.Value
		if i < len(before) {
			a = before[i]
		}
		if i < len(after) {
			b = after[i]
		}
		fields = append(fields, between(index(path, i), a, b)...)
	}
	return fields
}

// bags returns what is more often in one of two arrays than in the other.
func bags(path string, old, new []jsontext.Value) (fields []Field) {
	surplus := map[string]int{}
	for _, v := range old {
		surplus[string(v)]++
	}
	for i, v := range new {
		if surplus[string(v)]--; surplus[string(v)] < 0 {
			fields = append(fields, Field{Path: index(path, i), New: v})
		}
	}
	for i, v := range slices.Backward(old) {
		if surplus[string(v)] > 0 {
			surplus[string(v)]--
			fields = append(fields, Field{Path: index(path, i), Old: v})
		}
	}
	return fields
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-$"

func member(path, name string) string {
	const most = 80
	switch {
	case name == "" || len(name) > most || strings.Trim(name, letters) != "":
		return path + "[" + shown(string(text(name)), most) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}
