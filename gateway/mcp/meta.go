package mcp

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The names in _meta that the gateway reads or writes. Every name under
// metaPrefix is the protocol's own.
const (
	MetaProgressToken      = "progressToken"
	MetaProtocolVersion    = metaPrefix + "protocolVersion"
	MetaClientInfo         = metaPrefix + "clientInfo"
	MetaClientCapabilities = metaPrefix + "clientCapabilities"
	MetaLogLevel           = metaPrefix + "logLevel"
	MetaServerInfo         = metaPrefix + "serverInfo"
	MetaSubscriptionID     = metaPrefix + "subscriptionId"
	MetaRelatedTask        = metaPrefix + "related-task" // legacy

	metaPrefix = "io.modelcontextprotocol/"
)

// Implementation names a client or a server, as it says of itself.
type Implementation struct{ Name, Version string }

// Meta is what the protocol defines in the _meta of a request. Anybody can
// write anything there: none of it is proven.
type Meta struct {
	Raw           jsontext.Value // the whole object, or nil
	ProgressToken jsontext.Value // a string or an integer, or nil

	// What follows is set on modern messages only, by Classify.

	Client       Implementation // empty where the client does not say
	Capabilities jsontext.Value // an object; nil only on a notification
	LogLevel     string         // one of the eight levels, or ""

	version, client, capabilities, logLevel jsontext.Value
}

// ReadMeta reads _meta from a message's params, which may be nil. The error is
// CodeInvalidParams where _meta is no object or progressToken is neither a
// string nor an integer, and CodeInvalidRequest where a name differs from one
// of the protocol's only in case. In either era.
func ReadMeta(params jsontext.Value) (Meta, *Error) {
	var m Meta
	if params == nil {
		return m, nil
	}
	p := scanObject(params)
	for p.next() {
		switch key := p.key(); {
		case string(key) == "_meta":
			m.Raw = p.value()
		case strings.EqualFold(string(key), "_meta"):
			return Meta{}, caseError("params", string(key), "_meta")
		}
	}
	if m.Raw == nil {
		return m, nil
	}
	if m.Raw.Kind() != '{' {
		return Meta{}, NewError(CodeInvalidParams, "params._meta must be an object")
	}
	s := scanObject(m.Raw)
	for s.next() {
		if e := m.take(s.key(), s.value()); e != nil {
			return Meta{}, e
		}
	}
	return m, nil
}

func (m *Meta) take(key []byte, value jsontext.Value) *Error {
	switch string(key) {
	case MetaProtocolVersion:
		m.version = value
	case MetaClientInfo:
		m.client = value
	case MetaClientCapabilities:
		m.capabilities = value
	case MetaLogLevel:
		m.logLevel = value
	case MetaProgressToken:
		if !validID(value) {
			return metaError(MetaProgressToken, "must be a string or an integer")
		}
		m.ProgressToken = value
	default:
		return foldedMeta(string(key))
	}
	return nil
}

// foldedMeta refuses a name that a decoder which ignores case would take for
// one of the protocol's.
func foldedMeta(name string) *Error {
	key := foldedKey(name, MetaProgressToken, MetaProtocolVersion, MetaClientInfo,
		MetaClientCapabilities, MetaLogLevel, MetaServerInfo, MetaSubscriptionID, MetaRelatedTask)
	if key != "" {
		return caseError("_meta", name, key)
	}
	prefix, _, found := strings.Cut(name, "/")
	if found && foldedKey(prefix+"/", metaPrefix) != "" {
		return caseError("_meta", name, metaPrefix)
	}
	return nil
}

// fill types what a modern message says of its client. A request must state
// version and capabilities, a notification need not.
func (m *Meta) fill(isRequest bool) *Error {
	switch {
	case isRequest && m.version == nil:
		return metaError(MetaProtocolVersion, "is missing")
	case isRequest && m.capabilities == nil:
		return metaError(MetaClientCapabilities, "is missing")
	case m.capabilities != nil && m.capabilities.Kind() != '{':
		return metaError(MetaClientCapabilities, "must be an object")
	}
	m.Capabilities = m.capabilities
	if m.client != nil {
		client, e := readImplementation(m.client, MetaClientInfo)
		if e != nil {
			return e
		}
		m.Client = client
	}
	if m.logLevel != nil {
		level, _ := Text(m.logLevel)
		if !IsLogLevel(level) {
			return metaError(MetaLogLevel, "is not a log level")
		}
		m.LogLevel = level
	}
	return nil
}

func readImplementation(v jsontext.Value, where string) (Implementation, *Error) {
	fields, e := Fields(v, where, "name", "version")
	if e != nil {
		return Implementation{}, e
	}
	name, nameOK := Text(fields[0])
	version, versionOK := Text(fields[1])
	if !nameOK || !versionOK {
		return Implementation{}, NewError(CodeInvalidParams, where+" needs name and version, both strings")
	}
	return Implementation{Name: name, Version: version}, nil
}

// IsLogLevel reports whether level is one of the eight levels of syslog
// (RFC 5424) that MCP uses.
func IsLogLevel(level string) bool {
	switch level {
	case "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency":
		return true
	}
	return false
}

// EditMeta returns params with the given members of its _meta replaced, added
// or removed as Edit does it, and every other byte unchanged. Where params is
// nil or has no _meta, one is made if there is something to put into it. With
// nothing to change the result is params itself. It fails where Edit does, and
// where _meta is no object.
func EditMeta(params jsontext.Value, sets ...Set) (jsontext.Value, error) {
	const empty = "{}"
	was := params
	if params == nil {
		params = jsontext.Value(empty)
	}
	if err := check(params, true); err != nil {
		return nil, err
	}
	meta := find(params, "_meta")
	if meta == nil {
		meta = jsontext.Value(empty)
	}
	edited, err := edit(meta, sets)
	if err != nil {
		return nil, err
	}
	if string(edited) == string(meta) {
		return was, nil
	}
	return edit(params, []Set{{Name: "_meta", Value: edited}})
}

func metaError(name, problem string) *Error {
	return NewError(CodeInvalidParams, name+" in params._meta "+problem)
}
