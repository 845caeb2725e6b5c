package mcp

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The revisions of the protocol. 2024-11-05 is spoken to backends only.
const (
	V20241105 = "2024-11-05"
	V20250326 = "2025-03-26"
	V20250618 = "2025-06-18"
	V20251125 = "2025-11-25"
	V20260728 = "2026-07-28"
)

// Era says how a peer states its version: once in an initialize handshake
// (legacy) or in the _meta of every request (modern).
type Era uint8

// The eras. The zero Era is neither.
const (
	Legacy Era = iota + 1
	Modern
)

func (e Era) String() string {
	switch e {
	case Legacy:
		return "legacy"
	case Modern:
		return "modern"
	}
	return "unknown"
}

// EraOf returns the era of a revision that the gateway speaks on either leg,
// and the zero Era for any other text.
func EraOf(version string) Era {
	switch version {
	case V20260728:
		return Modern
	case V20241105, V20250326, V20250618, V20251125:
		return Legacy
	}
	return 0
}

// Supported returns the revisions that clients may speak, newest first. The
// caller owns the slice.
func Supported() []string { return []string{V20260728, V20251125, V20250618, V20250326} }

// Negotiate returns the revision with which an initialize request is answered:
// the requested one if clients may speak it after a handshake, else the newest
// of those. It never fails, whatever was requested.
func Negotiate(requested string) string {
	switch requested {
	case V20250326, V20250618:
		return requested
	}
	return V20251125
}

// Protocol is how a client's message speaks.
type Protocol struct {
	Era Era
	// Version is the revision, one of Supported. It is "" on a legacy message
	// without the header: an initialize, or a message that speaks whatever its
	// session negotiated.
	Version string
	Meta    Meta
}

// Classify tells the era and version of a message that a client posted with
// header. It is modern when its _meta carries a protocol version, or when the
// MCP-Protocol-Version header says 2026-07-28 or later; otherwise it is
// legacy. An initialize without a version in _meta is always legacy, and what
// older revision its header says has no weight: it negotiates in its body.
//
// The error carries the message's id; each one is HTTP 400:
//
//   - CodeHeaderMismatch: the header comes more than once, is missing from a
//     modern request, differs from _meta, or is a modern one on initialize.
//   - CodeUnsupportedVersion, with supported and requested in its data: the
//     version is none of the era's that clients may speak.
//   - CodeInvalidParams: _meta is malformed, or a modern request lacks the
//     version or the client's capabilities in it.
//   - CodeInvalidRequest: a name in _meta differs from one of the protocol's
//     only in case, or a response was posted in the modern era.
func Classify(header http.Header, m *Message) (Protocol, *Error) {
	p, e := classify(header, m)
	if e != nil {
		e.ID = m.ID
		return Protocol{}, e
	}
	return p, nil
}

func classify(header http.Header, m *Message) (Protocol, *Error) {
	meta, e := ReadMeta(m.Params)
	if e != nil {
		return Protocol{}, e
	}
	lines := header[HeaderVersion]
	if len(lines) > 1 {
		return Protocol{}, mismatch(HeaderVersion + " must come once")
	}
	stated := strings.Join(lines, "")
	switch {
	case meta.version != nil || (m.Method != MethodInitialize && isModern(stated)):
		return classifyModern(stated, m, meta)
	case isModern(stated):
		return Protocol{}, mismatch("initialize does not exist in the version that " + HeaderVersion + " states")
	case m.Method == MethodInitialize || len(lines) == 0:
		return Protocol{Era: Legacy, Meta: meta}, nil
	case EraOf(stated) != Legacy || stated == V20241105:
		return Protocol{}, unsupported(stated)
	}
	return Protocol{Era: Legacy, Version: stated, Meta: meta}, nil
}

func classifyModern(stated string, m *Message, meta Meta) (Protocol, *Error) {
	if m.Kind() == Response {
		return Protocol{}, NewError(CodeInvalidRequest, "responses cannot be posted in version "+V20260728)
	}
	version := stated
	if meta.version != nil {
		var ok bool
		if version, ok = Text(meta.version); !ok {
			return Protocol{}, metaError(MetaProtocolVersion, "must be a string")
		}
		if stated == "" {
			return Protocol{}, mismatch(HeaderVersion + " is missing")
		}
		if stated != version {
			return Protocol{}, mismatch(HeaderVersion + " differs from " + MetaProtocolVersion + " in _meta")
		}
	}
	if EraOf(version) != Modern {
		return Protocol{}, unsupported(version)
	}
	if e := meta.fill(m.Kind() == Request); e != nil {
		return Protocol{}, e
	}
	return Protocol{Era: Modern, Version: version, Meta: meta}, nil
}

// isModern reports whether a header states 2026-07-28 or a later date.
// Revisions are dates, so text order is their order.
func isModern(version string) bool {
	const shape = "dddd-dd-dd"
	if len(version) != len(shape) || version < V20260728 {
		return false
	}
	for i := range shape {
		if digit := version[i] >= '0' && version[i] <= '9'; digit != (shape[i] == 'd') {
			return false
		}
	}
	return version[4] == '-' && version[7] == '-'
}

func unsupported(requested string) *Error {
	data := []byte(`{"supported":[`)
	for i, version := range Supported() {
		if i > 0 {
			data = append(data, ',')
		}
		data = AppendString(data, version)
	}
	data = AppendString(append(data, `],"requested":`...), shorten(requested))
	return &Error{Code: CodeUnsupportedVersion, Message: "Unsupported protocol version", Data: jsontext.Value(append(data, '}'))}
}

// IsUnsupportedVersion reports whether e is a backend's refusal of our
// version, and which versions it speaks instead, in its own order.
func (e *Error) IsUnsupportedVersion() (supported []string, ok bool) {
	if e.Code != CodeUnsupportedVersion {
		return nil, false
	}
	versions, err := Elements(find(e.Data, "supported"))
	if err != nil {
		return nil, true
	}
	for _, v := range versions {
		if s, ok := Text(v); ok && !slices.Contains(supported, s) {
			supported = append(supported, s)
		}
	}
	return supported, true
}
