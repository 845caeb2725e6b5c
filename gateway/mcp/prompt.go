package mcp

import "github.com/go-json-experiment/json/jsontext"

// Prompt is the params of a prompts/get request.
type Prompt struct {
	Name      string         // as the client knows the prompt; any text
	Arguments jsontext.Value // an object of strings, or nil where the client sent none
	Retry

	params jsontext.Value
}

// ReadGet reads the params of a prompts/get request, on the terms of ReadCall.
// An argument that is no string is CodeInvalidParams, too.
func ReadGet(params jsontext.Value) (*Prompt, *Error) {
	fields, e := Fields(params, "params", "name", "arguments", "inputResponses", "requestState", "_meta")
	if e != nil {
		return nil, e
	}
	name, ok := Text(fields[0])
	if !ok {
		return nil, NewError(CodeInvalidParams, "params.name must be a string")
	}
	if e := checkStrings(fields[1], "params.arguments"); e != nil {
		return nil, e
	}
	retry, e := readRetry(fields[2], fields[3])
	if e != nil {
		return nil, e
	}
	return &Prompt{Name: name, Arguments: fields[1], Retry: retry, params: params}, nil
}

// Params is Call.Params for a prompt.
func (p *Prompt) Params(name string, sets ...Set) jsontext.Value {
	return replace(p.params, "name", String(name), sets)
}

// checkStrings accepts nil and an object whose values are strings.
func checkStrings(v jsontext.Value, where string) *Error {
	if v == nil {
		return nil
	}
	s := scanObject(v)
	for s.next() {
		if s.value().Kind() != '"' {
			return NewError(CodeInvalidParams, where+" must hold strings only, and "+shorten(string(s.quoted))+" is none")
		}
	}
	if s.err != nil {
		return NewError(CodeInvalidParams, where+" must be an object")
	}
	return nil
}

// Completion is the params of a completion/complete request.
type Completion struct {
	Prompt   string         // the prompt's name, as the client knows it, where IsPrompt
	URI      string         // else the uri or uriTemplate of a resource
	IsPrompt bool           // which of the two it is; either may be ""
	Argument jsontext.Value // an object with name and value, both strings
	Context  jsontext.Value // an object whose arguments, if any, are strings; or nil

	params, ref jsontext.Value
}

// The types of what an argument can belong to.
const (
	refPrompt   = "ref/prompt"
	refResource = "ref/resource"
)

// ReadComplete reads the params of a completion/complete request. The error is
// CodeInvalidParams where a member is missing or of another type, ref is of no
// known type, or ref names both a prompt and a resource, and CodeInvalidRequest
// as Fields says.
func ReadComplete(params jsontext.Value) (*Completion, *Error) {
	fields, e := Fields(params, "params", "ref", "argument", "context", "_meta")
	if e != nil {
		return nil, e
	}
	c := &Completion{Argument: fields[1], Context: fields[2], params: params, ref: fields[0]}
	if e := c.readRef(); e != nil {
		return nil, e
	}
	argument, e := objectFields(c.Argument, "params.argument", "name", "value")
	if e != nil {
		return nil, e
	}
	for i, name := range []string{"name", "value"} {
		if argument[i].Kind() != '"' {
			return nil, NewError(CodeInvalidParams, "params.argument."+name+" must be a string")
		}
	}
	if c.Context == nil {
		return c, nil
	}
	context, e := Fields(c.Context, "params.context", "arguments")
	if e != nil {
		return nil, e
	}
	if e := checkStrings(context[0], "params.context.arguments"); e != nil {
		return nil, e
	}
	return c, nil
}

func (c *Completion) readRef() *Error {
	ref, e := objectFields(c.ref, "params.ref", "type", "name", "uri")
	if e != nil {
		return e
	}
	kind, _ := Text(ref[0])
	name, uri := ref[1], ref[2]
	var ok bool
	switch {
	case kind == refPrompt && uri == nil:
		c.IsPrompt = true
		c.Prompt, ok = Text(name)
	case kind == refResource && name == nil:
		c.URI, ok = Text(uri)
	}
	if !ok {
		return NewError(CodeInvalidParams, `params.ref must be {"type": "`+refPrompt+`", "name": …} or {"type": "`+refResource+`", "uri": …}`)
	}
	return nil
}

// Params returns the params for a backend that knows the prompt or resource as
// name: those of the client with the name, or the uri, and what else sets says
// changed, and every other byte as it was. The result does not alias the
// client's bytes.
func (c *Completion) Params(name string, sets ...Set) jsontext.Value {
	member := "uri"
	if c.IsPrompt {
		member = "name"
	}
	return replace(c.params, "ref", replace(c.ref, member, String(name), nil), sets)
}

// Arguments returns an object with the members argument and context, as the
// client sent them.
func (c *Completion) Arguments() jsontext.Value {
	v := append([]byte(`{"argument":`), c.Argument...)
	if c.Context != nil {
		v = append(append(v, `,"context":`...), c.Context...)
	}
	return append(v, '}')
}

// objectFields is Fields for a value that has to be there.
func objectFields(v jsontext.Value, where string, names ...string) ([]jsontext.Value, *Error) {
	if v == nil {
		return nil, NewError(CodeInvalidParams, where+" must be an object")
	}
	return Fields(v, where, names...)
}
