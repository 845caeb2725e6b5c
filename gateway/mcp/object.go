package mcp

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is one member of a JSON object: its unescaped name and its value's
// bytes, which alias the object they were read from.
type Member struct {
	Name  string
	Value jsontext.Value
}

// Members reads the members of obj in their order. It accepts only an object
// that is valid throughout: no duplicate name at any depth, valid UTF-8, no
// trailing data, no more than MaxDepth levels. The values alias obj.
func Members(obj jsontext.Value) ([]Member, error) {
	if err := check(obj, false); err != nil {
		return nil, err
	}
	return Split(obj)
}

// Split is Members for an object that is part of a message which Parse or
// ParseBackend accepted, and it does not read such bytes a second time to
// judge them. Of any other bytes it says nothing reliable. It fails only where
// obj is not an object.
func Split(obj jsontext.Value) ([]Member, error) {
	members := make([]Member, 0, 8)
	s := scanObject(obj)
	for s.next() {
		members = append(members, Member{Name: string(s.key()), Value: s.value()})
	}
	return members, s.err
}

// Elements returns the elements of an array under the same terms as Split.
func Elements(arr jsontext.Value) ([]jsontext.Value, error) {
	var elements []jsontext.Value
	s := scanArray(arr)
	for s.next() {
		elements = append(elements, s.value())
	}
	return elements, s.err
}

// Get returns the value of the member with exactly this name, or nil.
func Get(members []Member, name string) jsontext.Value {
	for i := range members {
		if members[i].Name == name {
			return members[i].Value
		}
	}
	return nil
}

// Find returns the value of obj's member with exactly this name, or nil, also
// where obj is no object. obj is as Split wants it, or nil.
func Find(obj jsontext.Value, name string) jsontext.Value { return find(obj, name) }

// find returns the value of obj's member with exactly this name, or nil. obj
// is as Split wants it.
func find(obj jsontext.Value, name string) jsontext.Value {
	s := scanObject(obj)
	for s.next() {
		if string(s.key()) == name {
			return s.value()
		}
	}
	return nil
}

// isValid judges the syntax of a whole value, its UTF-8, and that names are
// unique at every depth. With surrogates, strings may hold lone surrogates as
// escapes; raw bytes must be UTF-8 all the same.
func isValid(v jsontext.Value, surrogates bool) bool {
	return v.IsValid() || surrogates && utf8.Valid(v) && v.IsValid(jsontext.AllowInvalidUTF8(true))
}

// check is isValid with the depth, and says what is wrong and where.
func check(v jsontext.Value, surrogates bool) error {
	if isValid(v, surrogates) {
		return checkDepth(v)
	}
	// Only what is refused is read twice, for the sake of saying where.
	dec := jsontext.NewDecoder(bytes.NewBuffer(v))
	if _, err := dec.ReadValue(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errors.New("trailing data after the value")
	}
	return errBroken
}

func checkDepth(v jsontext.Value) error {
	at := skipSpace(v, 0)
	if v[at] != '{' && v[at] != '[' {
		return nil
	}
	_, err := skipContainer(v, at, MaxDepth)
	return err
}

// Set is one change that Edit makes. Value is valid JSON; nil removes the
// member.
type Set struct {
	Name  string
	Value jsontext.Value
}

// Edit returns obj with the given top-level members replaced, added at the end
// or removed. Every other byte, white space and order included, stays as it
// is; a replaced member keeps its place and the spelling of its name. Of
// several changes to one name the last counts. obj is not modified, and the
// result does not alias it. It fails where Members does, except that it takes
// the lone surrogates that ParseBackend takes.
func Edit(obj jsontext.Value, sets ...Set) (jsontext.Value, error) {
	if err := check(obj, true); err != nil {
		return nil, err
	}
	return edit(obj, sets)
}

// edit is Edit for an object as Split wants it.
func edit(obj jsontext.Value, sets []Set) (jsontext.Value, error) {
	size := len(obj)
	for i := range sets {
		size += len(sets[i].Name) + len(sets[i].Value) + len(`,"":`)
	}
	out := make([]byte, 0, size)
	done := make([]bool, len(sets))
	s := scanObject(obj)
	open := s.pos
	out = append(out, obj[:open]...)
	for s.next() {
		// What lies between two members belongs to the second of them.
		before := obj[open:s.start]
		open = s.end
		value := s.value()
		if i := lastSet(sets, s.key()); i >= 0 {
			done[i], value = true, sets[i].Value
			if value == nil {
				continue
			}
		}
		out = appendBetween(out, before)
		out = append(out, value...)
	}
	if s.err != nil {
		return nil, s.err
	}
	for i := range sets {
		if name := sets[i].Name; !done[i] && sets[i].Value != nil && lastSet(sets, []byte(name)) == i {
			out = appendMember(out, needsComma(out), name, sets[i].Value)
		}
	}
	return append(out, obj[open:]...), nil
}

// appendBetween appends white space, comma and name. It leaves the comma out
// when the members before it were removed.
func appendBetween(out, before []byte) []byte {
	comma := skipSpace(before, 0)
	if before[comma] == ',' && !needsComma(out) {
		before = before[comma+1:]
	}
	return append(out, before...)
}

// needsComma reports whether a member precedes the end of out, an object that
// is being written and holds at least its opening brace.
func needsComma(out []byte) bool {
	return out[len(bytes.TrimRight(out, " \t\r\n"))-1] != '{'
}

func lastSet(sets []Set, name []byte) int {
	for i, s := range slices.Backward(sets) {
		if s.Name == string(name) {
			return i
		}
	}
	return -1
}

func appendMember(dst []byte, comma bool, name string, value jsontext.Value) []byte {
	if comma {
		dst = append(dst, ',')
	}
	dst = append(AppendString(dst, name), ':')
	return append(dst, value...)
}

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error only tells of the U+FFFD
	return dst
}

// String returns s as a JSON string value.
func String(s string) jsontext.Value { return AppendString(nil, s) }

// Text returns the text of a JSON string value. ok is false for anything else,
// a string with lone surrogates included: it is no text.
func Text(v jsontext.Value) (s string, ok bool) {
	if v.Kind() != '"' {
		return "", false
	}
	var short [64]byte // spares most texts a second allocation
	b, err := jsontext.AppendUnquote(short[:0], v)
	return string(b), err == nil
}
