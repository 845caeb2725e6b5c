package mcp

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Retry is what a request brings along of an earlier one that was answered
// with input_required. Both come from the client, and prove nothing.
type Retry struct {
	InputResponses jsontext.Value // an object with results by key, or nil
	RequestState   string
	HasState       bool // "" is a state, too
}

func readRetry(responses, state jsontext.Value) (Retry, *Error) {
	r := Retry{InputResponses: responses, HasState: state != nil}
	if responses != nil && responses.Kind() != '{' {
		return Retry{}, NewError(CodeInvalidParams, "params.inputResponses must be an object")
	}
	var ok bool
	if r.RequestState, ok = Text(state); state != nil && !ok {
		return Retry{}, NewError(CodeInvalidParams, "params.requestState must be a string")
	}
	return r, nil
}

// SetRequestState puts a state into the params of a retry, or into a result.
func SetRequestState(state string) Set { return Set{Name: "requestState", Value: String(state)} }

// MaxInputRequests is how many inputs one result may ask for.
const MaxInputRequests = 64

// InputRequired is what a result asks for before the request can be completed.
type InputRequired struct {
	Requests     []InputRequest // in the server's order, each Key once
	RequestState string
	HasState     bool // "" is a state, too
}

// InputRequest is one request of a server to the client.
type InputRequest struct {
	Key    string // any text
	Method string // MethodCreateMessage, MethodElicit or MethodRootsList

	// Params is an object; nil only where MethodRootsList has none.
	Params jsontext.Value
}

// ReadInputRequired reads what an input_required result asks for, and a
// tasks/get result or notifications/tasks whose status is input_required; it is
// part of a parsed message, and the caller has seen that it is one of these. It
// fails where the result is malformed: no object, neither inputRequests nor
// requestState, more than MaxInputRequests, an entry of another method or
// without the params that its method has, a name that differs from one of the
// protocol's only in case.
func ReadInputRequired(result jsontext.Value) (*InputRequired, error) {
	fields, e := Fields(result, "the result", "inputRequests", "requestState", "resultType", "_meta")
	if e != nil {
		return nil, errors.New(e.Message)
	}
	requests, state := fields[0], fields[1]
	if requests == nil && state == nil {
		return nil, errors.New("an input_required result needs inputRequests or requestState")
	}
	r := &InputRequired{HasState: state != nil}
	var ok bool
	if r.RequestState, ok = Text(state); r.HasState && !ok {
		return nil, errors.New("requestState must be a string")
	}
	if requests == nil {
		return r, nil
	}
	s := scanObject(requests)
	for s.next() {
		if len(r.Requests) == MaxInputRequests {
			return nil, fmt.Errorf("inputRequests must not hold more than %d", MaxInputRequests)
		}
		request, err := readInputRequest(s.quoted, s.value())
		if err != nil {
			return nil, err
		}
		r.Requests = append(r.Requests, request)
	}
	if s.err != nil {
		return nil, fmt.Errorf("inputRequests: %w", s.err)
	}
	return r, nil
}

func readInputRequest(quoted []byte, v jsontext.Value) (InputRequest, error) {
	// A key that is no text could not be told from another one.
	key, ok := Text(quoted)
	if !ok {
		return InputRequest{}, errors.New("a key of inputRequests is not valid text")
	}
	where := "inputRequests[" + shorten(strconv.Quote(key)) + "]"
	fields, e := Fields(v, where, "method", "params")
	if e != nil {
		return InputRequest{}, errors.New(e.Message)
	}
	method, _ := Text(fields[0])
	r := InputRequest{Key: key, Method: method, Params: fields[1]}
	switch method {
	case MethodCreateMessage, MethodElicit, MethodRootsList:
	default:
		return InputRequest{}, fmt.Errorf("%s: method must be %s, %s or %s", where, MethodCreateMessage, MethodElicit, MethodRootsList)
	}
	if optional := method == MethodRootsList; r.Params.Kind() != '{' && (r.Params != nil || !optional) {
		return InputRequest{}, errors.New(where + ": params must be an object")
	}
	return r, nil
}

// Result returns an input_required result that asks for this and holds nothing
// else.
func (r *InputRequired) Result() jsontext.Value {
	v := []byte(`{"resultType":"input_required"`)
	if len(r.Requests) > 0 {
		v = append(v, `,"inputRequests":{`...)
		for i, request := range r.Requests {
			v = appendMember(v, i > 0, request.Key, request.Value())
		}
		v = append(v, '}')
	}
	if r.HasState {
		v = appendMember(v, true, "requestState", String(r.RequestState))
	}
	return append(v, '}')
}

// Value returns the request as an entry of inputRequests.
func (r InputRequest) Value() jsontext.Value {
	v := AppendString([]byte(`{"method":`), r.Method)
	if r.Params != nil {
		v = append(append(v, `,"params":`...), r.Params...)
	}
	return append(v, '}')
}

// Elicitation is the params of elicitation/create and of
// notifications/elicitation/complete, which the id ties together.
type Elicitation struct {
	ID    string // any text
	HasID bool   // elicitation/create has one where the user is sent to a URL (legacy)

	params jsontext.Value
}

// ReadElicitation reads the id from either one's params. The error is
// CodeInvalidParams where elicitationId is no string, and CodeInvalidRequest as
// Fields says.
func ReadElicitation(params jsontext.Value) (*Elicitation, *Error) {
	fields, e := Fields(params, "params", "elicitationId", "_meta")
	if e != nil {
		return nil, e
	}
	id, ok := Text(fields[0])
	if fields[0] != nil && !ok {
		return nil, NewError(CodeInvalidParams, "params.elicitationId must be a string")
	}
	return &Elicitation{ID: id, HasID: ok, params: params}, nil
}

// Params is Call.Params for the id of an elicitation; it is for params that
// have one.
func (l *Elicitation) Params(id string, sets ...Set) jsontext.Value {
	return replace(l.params, "elicitationId", String(id), sets)
}
