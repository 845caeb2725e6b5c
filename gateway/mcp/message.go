// Package mcp is the wire format of the Model Context Protocol as a gateway
// meets it: JSON-RPC messages parsed strictly once into closed types that keep
// the raw bytes, the request rules of both eras, and SSE framing. It decides
// nothing and imports nothing of ours.
package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ID is a JSON-RPC id exactly as it was written, so 1 and "1" differ. It is
// comparable; the zero ID means that there is none.
type ID struct{ raw string }

// NumberID returns the id n.
func NumberID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// IsZero reports whether there is no id.
func (id ID) IsZero() bool { return id.raw == "" }

// Raw returns the id's JSON, and null where there is none.
func (id ID) Raw() jsontext.Value {
	if id.raw == "" {
		return jsontext.Value("null")
	}
	return jsontext.Value(id.raw)
}

// Append appends what Raw returns to dst.
func (id ID) Append(dst []byte) []byte {
	if id.raw == "" {
		return append(dst, "null"...)
	}
	return append(dst, id.raw...)
}

// ReadID reads an id that stands somewhere else than in an envelope, such as
// requestId in notifications/cancelled. ok is false for what is not an id.
func ReadID(v jsontext.Value) (id ID, ok bool) {
	if !validID(v) {
		return ID{}, false
	}
	return ID{string(v)}, true
}

// Kind says what a message is.
type Kind uint8

// The kinds of messages. A Message that Parse returns is never Invalid.
const (
	Invalid Kind = iota
	Request
	Notification
	Response
)

// Message is one JSON-RPC message. All values alias the bytes that were
// parsed; nobody modifies them.
type Message struct {
	ID     ID
	Method string
	Params jsontext.Value // an object, or nil
	Result jsontext.Value // any value, or nil
	Error  jsontext.Value // an object, or nil

	extra []Member // members of the envelope that no revision we know defines
}

// NewRequest makes a request, or a notification where id is the zero ID.
// params may be nil.
func NewRequest(id ID, method string, params jsontext.Value) *Message {
	return &Message{ID: id, Method: method, Params: params}
}

// NewResponse makes the response that carries result.
func NewResponse(id ID, result jsontext.Value) *Message {
	return &Message{ID: id, Result: result}
}

// Kind returns what the message is.
func (m *Message) Kind() Kind {
	switch {
	case m.Method != "" && m.ID.IsZero():
		return Notification
	case m.Method != "":
		return Request
	case m.Result != nil || m.Error != nil:
		return Response
	}
	return Invalid
}

// Append appends the message's JSON to dst: the envelope in a fixed order, the
// values byte for byte, unknown members of the envelope at the end.
func (m *Message) Append(dst []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if !m.ID.IsZero() || m.Kind() == Response {
		dst = m.ID.Append(append(dst, `,"id":`...))
	}
	if m.Method != "" {
		dst = AppendString(append(dst, `,"method":`...), m.Method)
	}
	if m.Params != nil {
		dst = append(append(dst, `,"params":`...), m.Params...)
	}
	if m.Result != nil {
		dst = append(append(dst, `,"result":`...), m.Result...)
	}
	if m.Error != nil {
		dst = append(append(dst, `,"error":`...), m.Error...)
	}
	for _, mb := range m.extra {
		dst = appendMember(dst, true, mb.Name, mb.Value)
	}
	return append(dst, '}')
}

// Parse reads one message that a client sent: one JSON object, valid
// throughout (unique names, UTF-8, no more than MaxDepth levels), and no
// batch. The error is nil exactly when the message is not; it carries the id
// where one could be read. The message aliases data, which nobody modifies
// from then on.
func Parse(data []byte) (*Message, *Error) {
	data = bytes.Trim(data, " \t\r\n")
	if !isBatch(data) && !isValid(data, false) {
		return nil, syntaxError(data)
	}
	return parse(data, false)
}

// ParseBackend is Parse for a message that a backend sent. It differs where
// Parse would break servers that work with every client:
//
//   - Strings may hold lone surrogates as escapes: JavaScript writes them when
//     a text was cut in the middle of a character.
//   - An error may have the id null, as for a request that could not be read.
//   - 1.0 as an id is 1, as for a server that reads numbers as floats.
func ParseBackend(data []byte) (*Message, *Error) {
	data = bytes.Trim(data, " \t\r\n")
	if !isBatch(data) && !isValid(data, true) {
		return nil, syntaxError(data)
	}
	return parse(data, true)
}

func isBatch(data []byte) bool { return len(data) > 0 && data[0] == '[' }

// parse reads a message from bytes that are valid JSON or begin a batch.
func parse(data []byte, backend bool) (*Message, *Error) {
	if isBatch(data) {
		return nil, NewError(CodeInvalidRequest, "JSON-RPC batches are not supported: send one message at a time")
	}
	m := &Message{}
	e := m.fill(data, backend)
	if e == nil {
		return m, nil
	}
	e.ID, _ = readID(find(data, "id"), backend)
	return nil, e
}

func syntaxError(data []byte) *Error {
	if len(data) == 0 {
		return NewError(CodeParse, "the message is empty")
	}
	// jsontext has a limit of its own, far above ours.
	if err := checkDepth(data); errors.Is(err, errTooDeep) {
		return NewError(CodeParse, "the message is "+err.Error())
	}
	err := check(data, false)
	var where *jsontext.SyntacticError
	switch {
	case errors.As(err, &where) && errors.Is(err, jsontext.ErrDuplicateName):
		return NewError(CodeInvalidRequest, "duplicate member name at "+shorten(string(where.JSONPointer)))
	case errors.As(err, &where):
		return NewError(CodeParse, fmt.Sprintf("the message is not valid JSON at byte %d: %v", where.ByteOffset, where.Err))
	}
	return NewError(CodeParse, "the message is not valid JSON: "+err.Error())
}

// shorten bounds what an answer repeats of a request.
func shorten(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func (m *Message) fill(data []byte, backend bool) *Error {
	version, hasID := "", false
	s := scanObject(data)
	for s.next() {
		var e *Error
		value := s.value()
		switch key := s.key(); string(key) {
		case "jsonrpc":
			version, _ = Text(value)
		case "id":
			hasID = true
			m.ID, e = envelopeID(value, backend)
		case "method":
			m.Method, e = envelopeMethod(value)
		case "params":
			m.Params, e = envelopeObject("params", value)
		case "result":
			m.Result = value
		case "error":
			m.Error, e = envelopeObject("error", value)
		default:
			e = m.other(string(key), value)
		}
		if e != nil {
			return e
		}
	}
	switch {
	case errors.Is(s.err, errNotObject):
		return NewError(CodeInvalidRequest, "the message is not a JSON object")
	case s.err != nil:
		return NewError(CodeParse, "the message is "+s.err.Error())
	}
	return m.check(version, hasID)
}

// envelopeID lets null pass where the sender is a backend; check sees to it that
// it comes with an error only.
func envelopeID(v jsontext.Value, backend bool) (ID, *Error) {
	if backend && v.Kind() == 'n' {
		return ID{}, nil
	}
	id, ok := readID(v, backend)
	if !ok {
		return ID{}, idError()
	}
	return id, nil
}

func envelopeMethod(v jsontext.Value) (string, *Error) {
	method, ok := Text(v)
	if !ok || method == "" {
		return "", NewError(CodeInvalidRequest, "method must be a string that is not empty")
	}
	return method, nil
}

func envelopeObject(name string, v jsontext.Value) (jsontext.Value, *Error) {
	if v.Kind() != '{' {
		return nil, NewError(CodeInvalidRequest, name+" must be an object")
	}
	return v, nil
}

// other keeps a member that the envelope does not define. A name that equals a
// defined one only when case is ignored is refused: some decoder further down
// would take it for the real one.
func (m *Message) other(name string, value jsontext.Value) *Error {
	if key := foldedKey(name, "jsonrpc", "id", "method", "params", "result", "error"); key != "" {
		return caseError("the message", name, key)
	}
	m.extra = append(m.extra, Member{Name: name, Value: value})
	return nil
}

func (m *Message) check(version string, hasID bool) *Error {
	switch {
	case version != "2.0":
		return NewError(CodeInvalidRequest, `jsonrpc must be "2.0"`)
	case hasID && m.ID.IsZero() && m.Error == nil:
		return idError()
	case m.Method != "" && (m.Result != nil || m.Error != nil):
		return NewError(CodeInvalidRequest, "a message with a method has no result and no error")
	case m.Method != "":
		return nil
	case (m.Result == nil) == (m.Error == nil):
		return NewError(CodeInvalidRequest, "a message needs a method, or else one of result and error")
	case !hasID:
		return NewError(CodeInvalidRequest, "a response needs an id")
	}
	return nil
}

func idError() *Error { return NewError(CodeInvalidRequest, "id must be a string or an integer") }

func readID(v jsontext.Value, backend bool) (ID, bool) {
	if whole, zeros, ok := bytes.Cut(v, []byte(".")); ok && backend && v.Kind() == '0' {
		if len(bytes.Trim(zeros, "0")) == 0 {
			v = whole
		}
	}
	return ReadID(v)
}

// validID accepts a string and an integer in plain digits. Fractions,
// exponents and null are not ids (JSON-RPC 2.0 section 4, MCP base protocol).
func validID(v jsontext.Value) bool {
	switch v.Kind() {
	case '"':
		return true
	case '0':
		return len(bytes.Trim(bytes.TrimPrefix(v, []byte("-")), "0123456789")) == 0
	}
	return false
}

// foldedKey returns the one of keys that name equals only when case is
// ignored, or "".
func foldedKey(name string, keys ...string) string {
	for _, key := range keys {
		if len(name) >= len(key) && name != key && strings.EqualFold(name, key) {
			return key
		}
	}
	return ""
}

func caseError(where, name, key string) *Error {
	return NewError(CodeInvalidRequest, "member "+shorten(strconv.Quote(name))+" of "+where+" differs from "+strconv.Quote(key)+" only in case")
}
