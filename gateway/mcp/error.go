package mcp

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Codes of JSON-RPC errors: those of JSON-RPC 2.0 section 5.1, those that MCP
// 2026-07-28 reserves, two that it retires and legacy peers know, and our own,
// which stay outside the reserved range -32768 to -32000 and follow HTTP's
// numbers.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603

	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022

	CodeResourceNotFound = -32002
	CodeURLElicitation   = -32042

	CodeForbidden       = 403
	CodeTooManyRequests = 429
	CodeUnavailable     = 503
)

// Error is a JSON-RPC error. ID is the request's, where it is known.
type Error struct {
	ID      ID
	Code    int
	Message string
	Data    jsontext.Value
}

// NewError returns an error without id and data.
func NewError(code int, message string) *Error { return &Error{Code: code, Message: message} }

func (e *Error) Error() string { return "JSON-RPC error " + strconv.Itoa(e.Code) + ": " + e.Message }

// Err returns the error of a response, nil where it has none. A code that is no
// integer reads as CodeInternal, a message that is no string as "".
func (m *Message) Err() *Error {
	if m.Error == nil {
		return nil
	}
	e := &Error{ID: m.ID, Code: CodeInternal, Data: find(m.Error, "data")}
	if code, err := strconv.Atoi(string(find(m.Error, "code"))); err == nil {
		e.Code = code
	}
	e.Message, _ = Text(find(m.Error, "message"))
	return e
}

// Response returns the message that carries the error.
func (e *Error) Response() *Message {
	object := strconv.AppendInt([]byte(`{"code":`), int64(e.Code), 10)
	object = AppendString(append(object, `,"message":`...), e.Message)
	if e.Data != nil {
		object = append(append(object, `,"data":`...), e.Data...)
	}
	return &Message{ID: e.ID, Error: append(object, '}')}
}

// Append appends the whole error response to dst.
func (e *Error) Append(dst []byte) []byte {
	dst = e.ID.Append(append(dst, `{"jsonrpc":"2.0","id":`...))
	dst = strconv.AppendInt(append(dst, `,"error":{"code":`...), int64(e.Code), 10)
	dst = AppendString(append(dst, `,"message":`...), e.Message)
	if e.Data != nil {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, '}', '}')
}
