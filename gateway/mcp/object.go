package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep arrays and objects may nest in a message. Tool
// arguments of real servers stay below 12; what is deeper is an attack on a
// parser further down.
const MaxDepth = 128

var errTooDeep = fmt.Errorf("nested deeper than %d levels", MaxDepth)

// Member is one member of a JSON object: its unescaped name and its value's
// bytes, which alias the object they were read from.
type Member struct {
	Name  string
	Value jsontext.Value

	start int // offset of the first byte of the value
	end   int // offset after its last byte
}

// Members reads the members of obj in their order. It accepts only an object
// that is valid throughout: no duplicate name at any depth, valid UTF-8, no
// trailing data. The values alias obj.
func Members(obj jsontext.Value) ([]Member, error) {
	if err := checkDepth(obj); err != nil {
		return nil, err
	}
	dec := jsontext.NewDecoder(bytes.NewReader(obj))
	if obj.Kind() != '{' {
		return nil, errors.New("not an object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var members []Member
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		m := Member{Name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		m.end = int(dec.InputOffset())
		m.start = m.end - len(value)
		m.Value = obj[m.start:m.end]
		members = append(members, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if len(bytes.TrimLeft(obj[dec.InputOffset():], " \t\r\n")) != 0 {
		return nil, errors.New("trailing data after the object")
	}
	return members, nil
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

// Set is one change that Edit makes. A nil Value removes the member.
type Set struct {
	Name  string
	Value jsontext.Value
}

// Edit returns obj with the given top-level members replaced, added at the end
// or removed. Every other byte, white space and order included, stays as it
// is. obj is not modified.
func Edit(obj jsontext.Value, sets ...Set) (jsontext.Value, error) {
	members, err := Members(obj)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(obj)+64)
	removed := false
	changes := make(map[string]*Set, len(sets))
	for i := range sets {
		changes[sets[i].Name] = &sets[i]
	}
	for _, m := range members {
		if c := changes[m.Name]; c != nil && c.Value == nil {
			removed = true
		}
	}
	if removed {
		return rebuild(members, sets), nil
	}
	at := 0
	for _, m := range members {
		if c := changes[m.Name]; c != nil {
			out = append(append(out, obj[at:m.start]...), c.Value...)
			at = m.end
			delete(changes, m.Name)
		}
	}
	closing := bytes.LastIndexByte(obj, '}')
	out = append(out, obj[at:closing]...)
	empty := len(members) == 0
	for _, s := range sets {
		if _, left := changes[s.Name]; !left || s.Value == nil {
			continue
		}
		out = appendMember(out, !empty, s.Name, s.Value)
		empty = false
	}
	return append(out, obj[closing:]...), nil
}

// rebuild writes the object anew; removing a member from the middle of the
// bytes would otherwise have to decide whose comma goes with it.
func rebuild(members []Member, sets []Set) jsontext.Value {
	out := []byte{'{'}
	written := make(map[string]bool, len(members))
	for _, m := range members {
		value := m.Value
		for _, s := range sets {
			if s.Name == m.Name {
				value = s.Value
			}
		}
		written[m.Name] = true
		if value != nil {
			out = appendMember(out, len(out) > 1, m.Name, value)
		}
	}
	for _, s := range sets {
		if !written[s.Name] && s.Value != nil {
			out = appendMember(out, len(out) > 1, s.Name, s.Value)
		}
	}
	return append(out, '}')
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
	dst, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	return dst
}

// String returns s as a JSON string value.
func String(s string) jsontext.Value { return AppendString(nil, s) }

// Text returns the text of a JSON string value; ok is false for anything else.
func Text(v jsontext.Value) (s string, ok bool) {
	if v.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err == nil
}

// checkDepth walks the bytes once, so that no recursive reader ever sees a
// value that is too deep for it.
func checkDepth(b []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return errTooDeep
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
