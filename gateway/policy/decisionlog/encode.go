package decisionlog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Limits of one event. Who asks chooses the length of most texts in it.
const (
	maxText  = 4 << 10   // bytes of one text; a longer one is cut and ends in …
	maxInput = 128 << 10 // bytes of an input; a larger one is left out but for what it names
)

// appendValue appends a value as JSON, objects and sets sorted, and reports
// whether a text had to be cut.
func appendValue(dst []byte, v ast.Value) (out []byte, cut bool) {
	switch v := v.(type) {
	case ast.Boolean:
		return strconv.AppendBool(dst, bool(v)), false
	case ast.Number:
		return append(dst, v...), false
	case ast.String:
		return appendCut(dst, string(v))
	case *ast.Array:
		return appendAll(dst, v.Foreach)
	case ast.Set:
		return appendAll(dst, func(each func(*ast.Term)) {
			for _, t := range v.Slice() {
				each(t)
			}
		})
	case ast.Object:
		dst = append(dst, '{')
		v.Foreach(func(key, value *ast.Term) {
			name, ok := key.Value.(ast.String)
			if !ok {
				name = ast.String(key.String())
			}
			var c bool
			dst, c = appendCut(separate(dst), string(name))
			cut = cut || c
			dst, c = appendValue(append(dst, ':'), value.Value)
			cut = cut || c
		})
		return append(dst, '}'), cut
	}
	return append(dst, "null"...), false
}

// appendJSON is appendValue for JSON as Go values, numbers being json.Number.
func appendJSON(dst []byte, v any) (out []byte, cut bool) {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v), false
	case json.Number:
		return append(dst, v...), false
	case string:
		return appendCut(dst, v)
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			var c bool
			dst, c = appendJSON(separate(dst), e)
			cut = cut || c
		}
		return append(dst, ']'), cut
	case map[string]any:
		dst = append(dst, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			var c bool
			dst, c = appendCut(separate(dst), name)
			cut = cut || c
			dst, c = appendJSON(append(dst, ':'), v[name])
			cut = cut || c
		}
		return append(dst, '}'), cut
	}
	return append(dst, "null"...), false
}

func appendAll(dst []byte, foreach func(func(*ast.Term))) (out []byte, cut bool) {
	dst = append(dst, '[')
	foreach(func(t *ast.Term) {
		var c bool
		dst, c = appendValue(separate(dst), t.Value)
		cut = cut || c
	})
	return append(dst, ']'), cut
}

func appendCut(dst []byte, s string) (out []byte, cut bool) {
	s, cut = shorten(s, maxText)
	return appendText(dst, s), cut
}

// appendText appends a string with every character escaped that does not show or
// makes a line read otherwise than it is: who asks chooses names. What is no
// UTF-8 is replaced.
func appendText(dst []byte, s string) []byte {
	if plain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
	}
	return append(dst, '"')
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// appendMember appends one member to an object that is open, value being JSON.
func appendMember(dst []byte, name string, value []byte) []byte {
	dst = appendText(separate(dst), name)
	return append(append(dst, ':'), value...)
}

// separate appends a comma where a member or an element precedes.
func separate(dst []byte) []byte {
	if n := len(dst); n > 0 && dst[n-1] != '{' && dst[n-1] != '[' {
		return append(dst, ',')
	}
	return dst
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for _, s := range texts {
		dst = appendText(separate(dst), s)
	}
	return append(dst, ']')
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// shorten cuts s to at most max bytes, at a character, and marks the cut.
func shorten(s string, max int) (short string, cut bool) {
	if len(s) <= max {
		return s, false
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…", true
}

// writing puts members down as JSON, in an object that is open.
type writing struct{ dst []byte }

func (w *writing) name(name string) {
	w.dst = append(appendText(separate(w.dst), name), ':')
}

func (w *writing) text(name, value string) {
	if value != "" {
		w.name(name)
		w.dst = appendText(w.dst, value)
	}
}

func (w *writing) texts(name string, values []string) {
	if len(values) > 0 {
		w.name(name)
		w.dst = appendTexts(w.dst, values)
	}
}

func (w *writing) number(name string, value int64) {
	w.name(name)
	w.dst = strconv.AppendInt(w.dst, value, 10)
}

func (w *writing) open(name string) {
	w.name(name)
	w.dst = append(w.dst, '{')
}

func (w *writing) close() { w.dst = append(w.dst, '}') }
