package mcp

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ParamHeaders are the arguments of one tool that the modern era mirrors into
// Mcp-Param- headers. The zero value mirrors none. It is immutable.
type ParamHeaders struct{ params []paramHeader }

type paramHeader struct {
	key  string   // as net/http keys it
	path []string // the names that lead to the value in the arguments
	kind string   // the schema's type
}

// ReadParamHeaders finds the x-mcp-header annotations in a tool's inputSchema,
// which is part of a parsed message. An error means that they break the rules
// of the specification, and that the tool must not be used over HTTP in the
// modern era: an annotation is a header name token, unique in the schema
// without regard to case, on a property of type string, integer or boolean
// that is reached from the root through "properties" alone. Keywords that hold
// no schemas, such as default and examples, are not searched.
func ReadParamHeaders(inputSchema jsontext.Value) (ParamHeaders, error) {
	var h ParamHeaders
	if err := h.walk(inputSchema, nil, true); err != nil {
		return ParamHeaders{}, err
	}
	return h, nil
}

// IsZero reports whether no argument is mirrored.
func (h ParamHeaders) IsZero() bool { return len(h.params) == 0 }

// subschemas says how a keyword of JSON Schema holds schemas.
type subschemas uint8

const (
	noSchema subschemas = iota
	oneOrMany
	byName
)

func holds(keyword string) subschemas {
	switch keyword {
	case "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains",
		"additionalProperties", "unevaluatedProperties", "propertyNames",
		"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "contentSchema":
		return oneOrMany
	case "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
		return byName
	}
	return noSchema
}

// walk reads the annotations of one schema and of those within it. reachable
// says that path leads to it through properties alone.
func (h *ParamHeaders) walk(schema jsontext.Value, path []string, reachable bool) error {
	s := scanObject(schema)
	var annotation, kind jsontext.Value
	for s.next() {
		var err error
		value := s.value()
		switch keyword := string(s.key()); holds(keyword) {
		case byName:
			err = h.walkNamed(value, path, reachable && keyword == "properties")
		case oneOrMany:
			err = h.walkMany(value, path)
		default:
			switch keyword {
			case "x-mcp-header":
				annotation = value
			case "type":
				kind = value
			}
		}
		if err != nil {
			return err
		}
	}
	if annotation == nil {
		return nil // also for true and false, which are schemas
	}
	if err := h.add(annotation, kind, path, reachable); err != nil {
		return fmt.Errorf("x-mcp-header at %q: %w", "/"+strings.Join(path, "/"), err)
	}
	return nil
}

func (h *ParamHeaders) walkNamed(schemas jsontext.Value, path []string, reachable bool) error {
	s := scanObject(schemas)
	for s.next() {
		if err := h.walk(s.value(), append(slices.Clip(path), string(s.key())), reachable); err != nil {
			return err
		}
	}
	return nil
}

func (h *ParamHeaders) walkMany(schemas jsontext.Value, path []string) error {
	if schemas.Kind() != '[' {
		return h.walk(schemas, path, false)
	}
	s := scanArray(schemas)
	for s.next() {
		if err := h.walk(s.value(), path, false); err != nil {
			return err
		}
	}
	return nil
}

func (h *ParamHeaders) add(annotation, kind jsontext.Value, path []string, reachable bool) error {
	name, ok := Text(annotation)
	if !ok || name == "" || strings.Trim(name, tokenChars) != "" {
		return errors.New("it must be a header name token")
	}
	if !reachable || len(path) == 0 {
		return errors.New("the property is not reached from the root through properties alone")
	}
	typeName, _ := Text(kind)
	if typeName != "string" && typeName != "integer" && typeName != "boolean" {
		return errors.New("the property's type must be string, integer or boolean")
	}
	p := paramHeader{key: http.CanonicalHeaderKey(headerParam + name), path: path, kind: typeName}
	if slices.ContainsFunc(h.params, func(other paramHeader) bool { return other.key == p.key }) {
		return fmt.Errorf("%s is annotated twice", name)
	}
	h.params = append(h.params, p)
	return nil
}

// tokenChars are the characters of a token (RFC 9110 section 5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Check compares the headers of a modern tools/call with its arguments, an
// object or nil. The error, without an id, is CodeHeaderMismatch where a
// mirrored argument has a value and its header is missing, comes more than
// once, is malformed or disagrees, and where a header has no argument. Headers
// that mirror nothing here are not looked at.
func (h ParamHeaders) Check(header http.Header, arguments jsontext.Value) *Error {
	for i := range h.params {
		p := &h.params[i]
		want, present, err := p.text(arguments)
		switch {
		case err != nil:
			return mismatch(err.Error())
		case !present && len(header[p.key]) > 0:
			return mismatch(p.key + " mirrors an argument that is not there")
		case !present:
			continue
		}
		if e := checkMirror(header, p.key, want, true, p.decode); e != nil {
			return e
		}
	}
	return nil
}

// Set sets the headers for arguments on a modern tools/call to a backend. The
// error, without an id, is CodeInvalidParams where a mirrored argument has no
// header form: it is no string, no boolean and no integer below 2^53.
func (h ParamHeaders) Set(header http.Header, arguments jsontext.Value) *Error {
	for i := range h.params {
		p := &h.params[i]
		value, present, err := p.text(arguments)
		if err != nil {
			return NewError(CodeInvalidParams, err.Error())
		}
		if present {
			header.Set(p.key, EncodeHeader(value))
		}
	}
	return nil
}

// text returns the mirrored value in its canonical text. It is not present
// where there is none, or where it is null.
func (p *paramHeader) text(arguments jsontext.Value) (text string, present bool, err error) {
	v := arguments
	for _, name := range p.path {
		if v = find(v, name); v == nil {
			return "", false, nil
		}
	}
	ok := false
	switch v.Kind() {
	case 'n':
		return "", false, nil
	case '"':
		text, ok = Text(v)
	case 't', 'f':
		text, ok = string(v), true
	case '0':
		text, ok = integer(string(v))
	}
	if !ok {
		return "", false, fmt.Errorf("the argument that %s mirrors must be a string, a boolean or an integer below 2^53", p.key)
	}
	return text, true, nil
}

// decode decodes a header line; an integer comes out in its canonical text, so
// that 42.0 equals 42.
func (p *paramHeader) decode(line string) (string, error) {
	text, err := DecodeHeader(line)
	if err == nil && p.kind == "integer" {
		if canonical, ok := integer(text); ok {
			return canonical, nil
		}
	}
	return text, err
}

// integer returns the plain digits of a whole number that JavaScript holds
// exactly, however it is written.
func integer(number string) (string, bool) {
	const most = 1<<53 - 1
	// Go reads more forms than JSON does, such as 0x2A.
	if v := jsontext.Value(number); v.Kind() != '0' || !v.IsValid() {
		return "", false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > most {
			return "", false
		}
		n = int64(f)
	}
	if n > most || n < -most {
		return "", false
	}
	return strconv.FormatInt(n, 10), true
}
