package mcp

import "github.com/go-json-experiment/json/jsontext"

// The methods whose params this package reads.
const (
	MethodInitialize = "initialize"
	MethodToolsList  = "tools/list"
	MethodToolsCall  = "tools/call"
)

// Fields reads the members of v, a value that the protocol defines as an
// object with the names known among its members; where says what v is, for the
// error. v is part of a parsed message, or nil for no members. The error is
// CodeInvalidParams where v is no object, and CodeInvalidRequest where a
// member's name differs from a known one only in case: some decoder further
// down would take it for the real one.
func Fields(v jsontext.Value, where string, known ...string) ([]Member, *Error) {
	if v == nil {
		return nil, nil
	}
	members, err := Split(v)
	if err != nil {
		return nil, NewError(CodeInvalidParams, where+" must be an object")
	}
	for i := range members {
		if key := foldedKey(members[i].Name, known...); key != "" {
			return nil, caseError(where, members[i].Name, key)
		}
	}
	return members, nil
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
	i := &Initialize{Capabilities: Get(fields, "capabilities")}
	var ok bool
	if i.ProtocolVersion, ok = Text(Get(fields, "protocolVersion")); !ok {
		return nil, NewError(CodeInvalidParams, "params.protocolVersion must be a string")
	}
	if i.Capabilities.Kind() != '{' {
		return nil, NewError(CodeInvalidParams, "params.capabilities must be an object")
	}
	if i.Client, e = readImplementation(Get(fields, "clientInfo"), "params.clientInfo"); e != nil {
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
	v := Get(fields, "cursor")
	if v == nil {
		return List{}, nil
	}
	cursor, ok := Text(v)
	if !ok {
		return List{}, NewError(CodeInvalidParams, "params.cursor must be a string")
	}
	return List{Cursor: cursor, HasCursor: true}, nil
}

// Call is the params of a tools/call request.
type Call struct {
	Name      string         // as the client knows the tool; any text
	Arguments jsontext.Value // an object, or nil where the client sent none

	params jsontext.Value
}

// ReadCall reads the params of a tools/call request. Members other than the
// two stay where they are and are forwarded. The error is CodeInvalidParams
// where name is missing or arguments is no object, and CodeInvalidRequest as
// Fields says.
func ReadCall(params jsontext.Value) (*Call, *Error) {
	fields, e := Fields(params, "params", "name", "arguments", "task", "inputResponses", "requestState", "_meta")
	if e != nil {
		return nil, e
	}
	c := &Call{Arguments: Get(fields, "arguments"), params: params}
	var ok bool
	if c.Name, ok = Text(Get(fields, "name")); !ok {
		return nil, NewError(CodeInvalidParams, "params.name must be a string")
	}
	if c.Arguments != nil && c.Arguments.Kind() != '{' {
		return nil, NewError(CodeInvalidParams, "params.arguments must be an object")
	}
	return c, nil
}

// Params returns the params for a backend that knows the tool as name: those
// of the client with the name and what else sets says changed, and every other
// byte as it was. The result does not alias the client's bytes.
func (c *Call) Params(name string, sets ...Set) jsontext.Value {
	// ReadCall has seen that params are an object, so edit cannot fail.
	params, _ := edit(c.params, append([]Set{{Name: "name", Value: String(name)}}, sets...))
	return params
}
