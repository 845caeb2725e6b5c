// Package mcp is the wire format of the Model Context Protocol as a gateway
// meets it: JSON-RPC messages parsed strictly once into closed types that keep
// the raw bytes, the request rules of both eras, and SSE framing. It decides
// nothing and imports nothing of ours.
package mcp

import (
	"bytes"
	"errors"
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

// envelopeKeys are the members of the envelope. A name that equals one of them
// only when case is ignored is refused: some decoder further down would take
// it for the real one (B001).
var envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// Parse reads one message that a client sent. The error is never nil when the
// message is; it carries the id where one could be read.
func Parse(data []byte) (*Message, *Error) {
	data = bytes.Trim(data, " \t\r\n")
	if len(data) > 0 && data[0] == '[' {
		return nil, NewError(CodeInvalidRequest, "JSON-RPC batches are not supported: send one message in a request")
	}
	members, err := Members(data)
	if err != nil {
		return nil, syntaxError(data, err)
	}
	m := &Message{}
	if e := m.fill(members); e != nil {
		e.ID = m.ID
		return nil, e
	}
	return m, nil
}

func syntaxError(data []byte, err error) *Error {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return NewError(CodeInvalidRequest, "duplicate member name in the message")
	case errors.Is(err, errTooDeep):
		return NewError(CodeParse, err.Error())
	case jsontext.Value(data).IsValid():
		return NewError(CodeInvalidRequest, "the message is not a JSON object")
	}
	return NewError(CodeParse, "the message is not valid JSON")
}

func (m *Message) fill(members []Member) *Error {
	version, hasMethod := "", false
	for _, mb := range members {
		switch mb.Name {
		case "jsonrpc":
			version, _ = Text(mb.Value)
		case "id":
			if !validID(mb.Value) {
				return NewError(CodeInvalidRequest, "id must be a string or an integer")
			}
			m.ID = ID{string(mb.Value)}
		case "method":
			m.Method, hasMethod = Text(mb.Value)
			if !hasMethod || m.Method == "" {
				return NewError(CodeInvalidRequest, "method must be a string that is not empty")
			}
		case "params":
			if mb.Value.Kind() != '{' {
				return NewError(CodeInvalidRequest, "params must be an object")
			}
			m.Params = mb.Value
		case "result":
			m.Result = mb.Value
		case "error":
			if mb.Value.Kind() != '{' {
				return NewError(CodeInvalidRequest, "error must be an object")
			}
			m.Error = mb.Value
		default:
			if key := foldedKey(mb.Name, envelopeKeys); key != "" {
				return NewError(CodeInvalidRequest, "member name differs from "+key+" only in case")
			}
			m.extra = append(m.extra, mb)
		}
	}
	return m.check(version)
}

func (m *Message) check(version string) *Error {
	switch {
	case version != "2.0":
		return NewError(CodeInvalidRequest, `jsonrpc must be "2.0"`)
	case m.Method != "" && (m.Result != nil || m.Error != nil):
		return NewError(CodeInvalidRequest, "a message with a method has no result and no error")
	case m.Method != "":
		return nil
	case (m.Result == nil) == (m.Error == nil):
		return NewError(CodeInvalidRequest, "a message needs a method, or else one of result and error")
	case m.ID.IsZero() && m.Error == nil:
		return NewError(CodeInvalidRequest, "a response needs an id")
	}
	return nil
}

// validID accepts a string and an integer in plain digits. Fractions,
// exponents and null are not ids (JSON-RPC 2.0 section 4, MCP base protocol).
func validID(v jsontext.Value) bool {
	if v.Kind() == '"' {
		return true
	}
	digits := strings.TrimPrefix(string(v), "-")
	return v.Kind() == '0' && strings.Trim(digits, "0123456789") == ""
}

func foldedKey(name string, keys []string) string {
	for _, key := range keys {
		if name != key && strings.EqualFold(name, key) {
			return key
		}
	}
	return ""
}

// NewRequest makes a request, or a notification where id is the zero ID.
// params may be nil.
func NewRequest(id ID, method string, params jsontext.Value) *Message {
	return &Message{ID: id, Method: method, Params: params}
}

// Append appends the message's JSON to dst: the envelope in a fixed order, the
// values byte for byte, unknown members of the envelope at the end.
func (m *Message) Append(dst []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if !m.ID.IsZero() || m.Kind() == Response {
		dst = append(append(dst, `,"id":`...), m.ID.Raw()...)
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
