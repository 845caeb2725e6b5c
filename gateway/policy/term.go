package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/gateway/mcp"
)

// maxDigits bounds the text of a number. Reading a number of a million digits
// takes seconds, and no deadline interrupts it.
const maxDigits = 1024

// parse reads exactly one JSON value into a term. Numbers keep their text. It
// refuses duplicate names, invalid UTF-8, trailing data, and what would cost
// more to read than to send: deep nesting, numbers of many digits or with a
// large exponent. The term shares nothing with v.
func parse(v jsontext.Value) (*ast.Term, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	t, err := parseValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return t, nil
}

// parseObjectValue is parse for a value that must be an object. Its errors hold
// nothing of the value.
func parseObjectValue(v jsontext.Value) (*ast.Term, error) {
	t, err := parse(v)
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return nil, errors.New("duplicate member name")
	case errors.As(err, &syntax), errors.Is(err, io.EOF):
		return nil, errors.New("not valid JSON")
	case err != nil:
		return nil, err
	}
	if _, ok := t.Value.(ast.Object); !ok {
		return nil, fmt.Errorf("want a JSON object, not %s", ast.ValueName(t.Value))
	}
	return t, nil
}

func parseValue(dec *jsontext.Decoder) (*ast.Term, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	if dec.StackDepth() > mcp.MaxDepth {
		return nil, fmt.Errorf("JSON is nested deeper than %d levels", mcp.MaxDepth)
	}
	switch tok.Kind() {
	case '{':
		return parseObject(dec)
	case '[':
		return parseArray(dec)
	case '"':
		return ast.InternedTerm(tok.String()), nil
	case '0':
		return parseNumber(tok.String())
	case 't', 'f':
		return ast.InternedTerm(tok.Bool()), nil
	}
	return ast.InternedNullTerm, nil
}

func parseObject(dec *jsontext.Decoder) (*ast.Term, error) {
	var items [][2]*ast.Term
	for dec.PeekKind() != '}' {
		key, err := parseValue(dec)
		if err != nil {
			return nil, err
		}
		value, err := parseValue(dec)
		if err != nil {
			return nil, err
		}
		items = append(items, ast.Item(key, value))
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	return ast.ObjectTerm(items...), nil
}

func parseArray(dec *jsontext.Decoder) (*ast.Term, error) {
	var elems []*ast.Term
	for dec.PeekKind() != ']' {
		elem, err := parseValue(dec)
		if err != nil {
			return nil, err
		}
		elems = append(elems, elem)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	return ast.ArrayTerm(elems...), nil
}

func parseNumber(text string) (*ast.Term, error) {
	if len(text) > maxDigits {
		return nil, fmt.Errorf("number of more than %d digits", maxDigits)
	}
	if t := ast.InternedIntNumberTermFromString(text); t != nil {
		return t, nil
	}
	n, err := ast.NumberChecked(text)
	if err != nil {
		return nil, errors.New("number with too large an exponent")
	}
	return ast.NewTerm(n), nil
}

// object builds an object term field by field. A value that is not known stays
// out, so that Rego sees it as undefined and not as "" or [].
type object [][2]*ast.Term

func (o *object) set(key string, value *ast.Term) {
	if value != nil {
		*o = append(*o, ast.Item(ast.InternedTerm(key), value))
	}
}

func (o *object) text(key, value string) {
	if value != "" {
		o.set(key, ast.InternedTerm(value))
	}
}

func (o *object) flag(key string, value bool) { o.set(key, ast.InternedTerm(value)) }

func (o *object) texts(key string, values []string) {
	if len(values) == 0 {
		return
	}
	elems := make([]*ast.Term, len(values))
	for i, v := range values {
		elems[i] = ast.InternedTerm(v)
	}
	o.set(key, ast.ArrayTerm(elems...))
}

// term returns nil for an object without fields.
func (o object) term() *ast.Term {
	if len(o) == 0 {
		return nil
	}
	return ast.ObjectTerm(o...)
}

// shorten cuts s to at most max bytes, at a character, and marks the cut.
func shorten(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…"
}
