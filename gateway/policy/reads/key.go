package reads

import (
	"encoding/binary"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Marks of an encoded value. Each value begins with one, so that no value looks
// like the beginning of another.
const (
	markAbsent  = 'a' // nothing is there
	markOther   = 'o' // something is there that cannot hold what is looked for
	markType    = 'y'
	markNull    = 'n'
	markTrue    = 't'
	markFalse   = 'f'
	markNumber  = '#'
	markString  = '"'
	markArray   = '['
	markObject  = '{'
	markSet     = '('
	markUnknown = '?'
)

// Append appends what can matter of v, the value of the member of the input, nil
// where there is none. Two inputs whose members, in the same order, append the
// same bytes have the same answer, as long as Unsafe is "". It may be called
// concurrently.
func (r *Reads) Append(dst []byte, member string, v ast.Value) []byte {
	for _, k := range r.keys {
		switch {
		case len(k.path) == 0 && k.shallow: // the input is always an object
		case len(k.path) == 0:
			dst = appendAll(dst, v)
		case k.path[0].Compare(ast.String(member)) == 0:
			dst = appendPart(dst, k, v)
		}
	}
	return dst
}

// appendPart follows the rest of the path, and writes how far it leads.
func appendPart(dst []byte, k read, v ast.Value) []byte {
	for _, step := range k.path[1:] {
		if v == nil {
			return append(dst, markAbsent)
		}
		next, holds := child(v, step)
		if !holds {
			return append(dst, markOther)
		}
		// Where it ends tells what is there before.
		dst = append(dst, '.')
		v = next
	}
	if k.shallow && v != nil {
		return appendText(append(dst, markType), ast.ValueName(v))
	}
	return appendAll(dst, v)
}

// child is what a container holds under a key, and whether v is a container.
func child(v, key ast.Value) (ast.Value, bool) {
	var t *ast.Term
	switch x := v.(type) {
	case ast.Object:
		t = x.Get(ast.NewTerm(key))
	case *ast.Array:
		t = x.Get(ast.NewTerm(key))
	case ast.Set:
		if x.Contains(ast.NewTerm(key)) {
			return key, true
		}
	default:
		return nil, false
	}
	if t == nil {
		return nil, true
	}
	return t.Value, true
}

// appendAll writes a whole value.
func appendAll(dst []byte, v ast.Value) []byte {
	switch x := v.(type) {
	case nil:
		return append(dst, markAbsent)
	case ast.Null:
		return append(dst, markNull)
	case ast.Boolean:
		if x {
			return append(dst, markTrue)
		}
		return append(dst, markFalse)
	case ast.Number:
		return appendText(append(dst, markNumber), string(x))
	case ast.String:
		return appendText(append(dst, markString), string(x))
	case *ast.Array:
		dst = appendLength(append(dst, markArray), x.Len())
		x.Foreach(func(t *ast.Term) { dst = appendAll(dst, t.Value) })
		return dst
	case ast.Object:
		dst = appendLength(append(dst, markObject), x.Len())
		x.Foreach(func(key, value *ast.Term) { dst = appendAll(appendAll(dst, key.Value), value.Value) })
		return dst
	case ast.Set:
		dst = appendLength(append(dst, markSet), x.Len())
		x.Foreach(func(t *ast.Term) { dst = appendAll(dst, t.Value) })
		return dst
	}
	return appendText(append(dst, markUnknown), v.String())
}

func appendText(dst []byte, s string) []byte { return append(appendLength(dst, len(s)), s...) }

func appendLength(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }
