package mcp

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep arrays and objects may nest in a message. Tool
// arguments of real servers stay below 12; what is deeper is an attack on a
// parser further down.
const MaxDepth = 128

var (
	errTooDeep   = fmt.Errorf("nested deeper than %d levels", MaxDepth)
	errNotObject = errors.New("not an object")
	errNotArray  = errors.New("not an array")
	errBroken    = errors.New("not valid JSON")
)

// scanner walks the items of one object or array. The bytes must already be
// known to be valid JSON: it looks for the ends of values and checks nothing
// but the depth. On other bytes it may find nonsense or fail with errBroken;
// it never reads outside of them.
type scanner struct {
	b     []byte
	pos   int  // where the next item begins, at its comma
	array bool // items have no names

	quoted     []byte // the current item's name, quotes included
	start, end int    // the current item's value is b[start:end]
	err        error
}

// scanObject returns a scanner over obj's members, with err set where obj is
// no object.
func scanObject(obj []byte) scanner { return scan(obj, '{', errNotObject) }

// scanArray returns a scanner over arr's elements, with err set where arr is
// no array.
func scanArray(arr []byte) scanner {
	s := scan(arr, '[', errNotArray)
	s.array = true
	return s
}

func scan(b []byte, open byte, otherwise error) scanner {
	at := skipSpace(b, 0)
	if at == len(b) || b[at] != open {
		return scanner{err: otherwise}
	}
	return scanner{b: b, pos: at + 1}
}

// next moves to the next item. False means the end or an error.
func (s *scanner) next() bool {
	if s.err != nil {
		return false
	}
	at := skipSpace(s.b, s.pos)
	if at < len(s.b) && s.b[at] == ',' {
		at = skipSpace(s.b, at+1)
	}
	if at == len(s.b) {
		return s.fail(errBroken)
	}
	if c := s.b[at]; c == '}' || c == ']' {
		return false
	}
	if !s.array {
		if at = s.name(at); at < 0 {
			return s.fail(errBroken)
		}
	}
	end, err := skipValue(s.b, at)
	if err != nil {
		return s.fail(err)
	}
	s.start, s.end, s.pos = at, end, end
	return true
}

// name reads a member's name and colon; it returns where the value begins, or
// -1.
func (s *scanner) name(at int) int {
	if s.b[at] != '"' {
		return -1
	}
	end := skipString(s.b, at)
	if end < 0 {
		return -1
	}
	s.quoted = s.b[at:end]
	if at = skipSpace(s.b, end); at == len(s.b) || s.b[at] != ':' {
		return -1
	}
	if at = skipSpace(s.b, at+1); at == len(s.b) {
		return -1
	}
	return at
}

func (s *scanner) fail(err error) bool {
	s.err = err
	return false
}

func (s *scanner) value() jsontext.Value { return s.b[s.start:s.end:s.end] }

// key returns the current name without its quotes. It aliases the input unless
// the name holds escapes.
func (s *scanner) key() []byte {
	if bytes.IndexByte(s.quoted, '\\') < 0 {
		return s.quoted[1 : len(s.quoted)-1]
	}
	// A lone surrogate gives an error and U+FFFD in its place, which is all
	// there is to say of such a name.
	name, _ := jsontext.AppendUnquote(nil, s.quoted)
	return name
}

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\r' || b[at] == '\t') {
		at++
	}
	return at
}

// skipValue returns the offset after the value that begins at b[at], which
// exists.
func skipValue(b []byte, at int) (int, error) {
	switch b[at] {
	case '"':
		if end := skipString(b, at); end >= 0 {
			return end, nil
		}
		return 0, errBroken
	case '{', '[':
		return skipContainer(b, at, MaxDepth-1) // what is scanned is a level too
	}
	end := at
	for end < len(b) && !endsScalar(b[end]) {
		end++
	}
	if end == at {
		return 0, errBroken
	}
	return end, nil
}

func endsScalar(c byte) bool {
	switch c {
	case ',', '}', ']', ':', ' ', '\n', '\r', '\t':
		return true
	}
	return false
}

// skipContainer returns the offset after the object or array at b[at], which
// nests at most limit levels.
func skipContainer(b []byte, at, limit int) (int, error) {
	for depth := 0; at < len(b); at++ {
		switch b[at] {
		case '"':
			end := skipString(b, at)
			if end < 0 {
				return 0, errBroken
			}
			at = end - 1
		case '{', '[':
			if depth++; depth > limit {
				return 0, errTooDeep
			}
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1, nil
			}
		}
	}
	return 0, errBroken
}

// skipString returns the offset after the string that begins at b[at], or -1.
func skipString(b []byte, at int) int {
	for i := at + 1; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		quote := i + n
		back := quote
		for back > i && b[back-1] == '\\' {
			back--
		}
		if (quote-back)%2 == 0 {
			return quote + 1
		}
		i = quote + 1
	}
}
