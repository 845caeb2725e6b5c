package mcp

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Fields returns the values of those members of v that have the given names,
// in the order of the names, and nil for those that v lacks. v is a value that
// the protocol defines as an object, part of a parsed message, or nil for an
// object without members; where says what it is, for the error. The error is
// CodeInvalidParams where v is no object, and CodeInvalidRequest where a
// member's name differs from a given one only in case: some decoder further
// down would take it for the real one.
func Fields(v jsontext.Value, where string, names ...string) ([]jsontext.Value, *Error) {
	values := make([]jsontext.Value, len(names))
	if v == nil {
		return values, nil
	}
	s := scanObject(v)
	for s.next() {
		key := s.key()
		if i := slices.IndexFunc(names, func(name string) bool { return name == string(key) }); i >= 0 {
			values[i] = s.value()
			continue
		}
		if name := foldedKey(string(key), names...); name != "" {
			return nil, caseError(where, string(key), name)
		}
	}
	if s.err != nil {
		return nil, NewError(CodeInvalidParams, where+" must be an object")
	}
	return values, nil
}

// Initialize is the params of an initialize request.
type Initialize struct {
	ProtocolVersion string // any text, "" included
	Client          Implementation
	Capabilities    jsontext.Value // an object
}

// ReadInitialize reads the params of an initialize request. The error is
// CodeInvalidParams where a member is missing or of another type, and
// CodeInvalidRequest as Fields says.
func ReadInitialize(params jsontext.Value) (*Initialize, *Error) {
	fields, e := Fields(params, "params", "protocolVersion", "capabilities", "clientInfo", "_meta")
	if e != nil {
		return nil, e
	}
	version, capabilities, client := fields[0], fields[1], fields[2]
	i := &Initialize{Capabilities: capabilities}
	var ok bool
	if i.ProtocolVersion, ok = Text(version); !ok {
		return nil, NewError(CodeInvalidParams, "params.protocolVersion must be a string")
	}
	if capabilities.Kind() != '{' {
		return nil, NewError(CodeInvalidParams, "params.capabilities must be an object")
	}
	if i.Client, e = readImplementation(client, "params.clientInfo"); e != nil {
		return nil, e
	}
	return i, nil
}

// List is the params of a tools/list request and of the other lists.
type List struct {
	Cursor    string
	HasCursor bool // "" is a cursor, too
}

// ReadList reads the params of a list request; they may be nil. The error is
// CodeInvalidParams where cursor is no string, and CodeInvalidRequest as
// Fields says.
func ReadList(params jsontext.Value) (List, *Error) {
	fields, e := Fields(params, "params", "cursor", "_meta")
	if e != nil {
		return List{}, e
	}
	if fields[0] == nil {
		return List{}, nil
	}
	cursor, ok := Text(fields[0])
	if !ok {
		return List{}, NewError(CodeInvalidParams, "params.cursor must be a string")
	}
	return List{Cursor: cursor, HasCursor: true}, nil
}

// Call is the params of a tools/call request.
type Call struct {
	Name      string         // as the client knows the tool; any text
	Arguments jsontext.Value // an object, or nil where the client sent none
	Task      jsontext.Value // an object, or nil where the client does not ask for a task (legacy)
	Retry

	params jsontext.Value
}

// ReadCall reads the params of a tools/call request. Members that it does not
// know stay where they are and are forwarded. The error is CodeInvalidParams
// where name is missing, arguments or task is no object or Retry is malformed,
// and CodeInvalidRequest as Fields says.
func ReadCall(params jsontext.Value) (*Call, *Error) {
	fields, e := Fields(params, "params", "name", "arguments", "task", "inputResponses", "requestState", "_meta")
	if e != nil {
		return nil, e
	}
	c := &Call{Arguments: fields[1], Task: fields[2], params: params}
	var ok bool
	if c.Name, ok = Text(fields[0]); !ok {
		return nil, NewError(CodeInvalidParams, "params.name must be a string")
	}
	for i, name := range []string{1: "arguments", 2: "task"} {
		if v := fields[i]; name != "" && v != nil && v.Kind() != '{' {
			return nil, NewError(CodeInvalidParams, "params."+name+" must be an object")
		}
	}
	if c.Retry, e = readRetry(fields[3], fields[4]); e != nil {
		return nil, e
	}
	return c, nil
}

// Params returns the params for a backend that knows the tool as name: those
// of the client with the name and what else sets says changed, and every other
// byte as it was. The result does not alias the client's bytes.
func (c *Call) Params(name string, sets ...Set) jsontext.Value {
	return replace(c.params, "name", String(name), sets)
}

// replace returns params with one member replaced and what else sets says
// changed. A reader has seen that they are an object, so edit cannot fail.
func replace(params jsontext.Value, name string, value jsontext.Value, sets []Set) jsontext.Value {
	params, _ = edit(params, append([]Set{{Name: name, Value: value}}, sets...))
	return params
}

// ReadCancelled returns the id that a notifications/cancelled names. The error
// is CodeInvalidParams where requestId is no id, and CodeInvalidRequest as
// Fields says.
func ReadCancelled(params jsontext.Value) (ID, *Error) {
	fields, e := Fields(params, "params", "requestId", "reason", "_meta")
	if e != nil {
		return ID{}, e
	}
	id, ok := ReadID(fields[0])
	if !ok {
		return ID{}, NewError(CodeInvalidParams, "params.requestId must be a string or an integer")
	}
	return id, nil
}

// ReadResultType returns the resultType of a result, "" where it has none. It
// fails when the result is no object or the member no string.
func ReadResultType(result jsontext.Value) (string, error) {
	members, err := Split(result)
	if err != nil {
		return "", err
	}
	value := Get(members, "resultType")
	if value == nil {
		return "", nil
	}
	kind, ok := Text(value)
	if !ok {
		return "", errors.New("resultType is not a string")
	}
	return kind, nil
}

// ReadSetLevel returns the level that a logging/setLevel request names, or a
// notifications/message has. The error is CodeInvalidParams where it is none of
// the eight, and CodeInvalidRequest as Fields says.
func ReadSetLevel(params jsontext.Value) (level string, e *Error) {
	fields, e := Fields(params, "params", "level", "logger", "data", "_meta")
	if e != nil {
		return "", e
	}
	level, _ = Text(fields[0])
	if !IsLogLevel(level) {
		return "", NewError(CodeInvalidParams, "params.level must be one of debug, info, notice, warning, error, critical, alert, emergency")
	}
	return level, nil
}

// Progress is the params of a notifications/progress, of either side.
type Progress struct {
	Token jsontext.Value // a string or an integer, as it was written

	params jsontext.Value
}

// ReadProgress reads the params of a notifications/progress. The error is
// CodeInvalidParams where progressToken is neither a string nor an integer, and
// CodeInvalidRequest as Fields says.
func ReadProgress(params jsontext.Value) (*Progress, *Error) {
	fields, e := Fields(params, "params", MetaProgressToken, "progress", "total", "message", "_meta")
	if e != nil {
		return nil, e
	}
	if !validID(fields[0]) {
		return nil, NewError(CodeInvalidParams, "params.progressToken must be a string or an integer")
	}
	return &Progress{Token: fields[0], params: params}, nil
}

// Params is Call.Params for a progress token, which is a string or an integer.
func (p *Progress) Params(token jsontext.Value, sets ...Set) jsontext.Value {
	return replace(p.params, MetaProgressToken, token, sets)
}
