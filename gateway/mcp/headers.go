package mcp

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// The headers of the modern era, spelled as net/http keys them. HeaderVersion
// is on legacy requests, too.
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"

	headerParam = "Mcp-Param-"
)

// Values that a header cannot carry as they are travel as base64 between these.
const (
	sentinelOpen  = "=?base64?"
	sentinelClose = "?="
)

// nameSource returns the member of params that Mcp-Name mirrors, or "" where
// the method has none.
func nameSource(method string) string {
	switch method {
	case MethodToolsCall, MethodPromptsGet:
		return "name"
	case MethodResourcesRead:
		return "uri"
	case MethodTasksGet, MethodTasksUpdate, MethodTasksCancel:
		return "taskId"
	}
	return ""
}

// CheckHeaders compares Mcp-Method and Mcp-Name with the body of a modern
// message; Classify has compared the version. It needs nothing but the two, so
// it runs before any look-up. The error is CodeHeaderMismatch, with the
// message's id, where a header is missing, comes more than once, is malformed
// or disagrees. Notifications need not have the headers, but those they have
// must agree. Where the body lacks the member that Mcp-Name mirrors, that is
// left to the reader of the params; on a method that mirrors no name, Mcp-Name
// means nothing.
//
// It is not for legacy messages: there these headers mean nothing.
func CheckHeaders(header http.Header, m *Message) *Error {
	e := checkMirror(header, HeaderMethod, m.Method, m.Kind() == Request, plainValue)
	if source := nameSource(m.Method); e == nil && source != "" {
		if name, ok := Text(find(m.Params, source)); ok {
			e = checkMirror(header, HeaderName, name, m.Kind() == Request, DecodeHeader)
		}
	}
	if e != nil {
		e.ID = m.ID
	}
	return e
}

func checkMirror(header http.Header, key, want string, required bool, decode func(string) (string, error)) *Error {
	lines := header[key]
	switch {
	case len(lines) == 0 && !required:
		return nil
	case len(lines) == 0:
		return mismatch(key + " is missing")
	case len(lines) > 1:
		return mismatch(key + " must come once")
	}
	got, err := decode(lines[0])
	if err != nil {
		return mismatch(key + " " + err.Error())
	}
	if got != want {
		return mismatch(key + " differs from the body")
	}
	return nil
}

// SetHeaders sets HeaderVersion, HeaderMethod and HeaderName on a modern
// request to a backend, from the message that goes there, and deletes every
// other Mcp- header of that kind, so that none of a client's own is left.
func SetHeaders(header http.Header, version string, m *Message) {
	for key := range header {
		if strings.HasPrefix(key, headerParam) {
			header.Del(key)
		}
	}
	header.Del(HeaderName)
	header.Set(HeaderVersion, version)
	header.Set(HeaderMethod, m.Method)
	if source := nameSource(m.Method); source != "" {
		if name, ok := Text(find(m.Params, source)); ok {
			header.Set(HeaderName, EncodeHeader(name))
		}
	}
}

// EncodeHeader returns the header form of a value: the value itself, or its
// base64 form where it holds anything but printable ASCII, spaces and tabs,
// begins or ends with white space, or looks like a base64 form itself.
func EncodeHeader(value string) string {
	_, err := plainValue(value)
	if err == nil && strings.Trim(value, " \t") == value && !isSentinel(value) {
		return value
	}
	return sentinelOpen + base64.StdEncoding.EncodeToString([]byte(value)) + sentinelClose
}

// DecodeHeader returns the value that a header carries in either form. It
// fails on bytes that no header may hold, on base64 that is not canonical and
// on text that is not UTF-8.
func DecodeHeader(line string) (string, error) {
	if !isSentinel(line) {
		return plainValue(line)
	}
	if len(line) < len(sentinelOpen)+len(sentinelClose) {
		return "", errors.New("is not valid base64")
	}
	encoded := line[len(sentinelOpen) : len(line)-len(sentinelClose)]
	// The decoder would skip line ends.
	if strings.ContainsAny(encoded, "\r\n") {
		return "", errors.New("is not valid base64")
	}
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return "", errors.New("is not valid base64")
	}
	if !utf8.Valid(b) {
		return "", errors.New("is not valid UTF-8")
	}
	return string(b), nil
}

// isSentinel also holds where the two markers overlap: such a value must have
// been encoded, so as it stands it is malformed.
func isSentinel(value string) bool {
	return strings.HasPrefix(value, sentinelOpen) && strings.HasSuffix(value, sentinelClose)
}

func plainValue(line string) (string, error) {
	for i := range len(line) {
		if c := line[i]; (c < ' ' && c != '\t') || c > '~' {
			return "", errors.New("holds characters that a header cannot carry as they are")
		}
	}
	return line, nil
}

func mismatch(problem string) *Error {
	return NewError(CodeHeaderMismatch, "Header mismatch: "+problem)
}
