package mcp

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Resource is the params of what names one resource: the requests
// resources/read, resources/subscribe and resources/unsubscribe, and the
// notification notifications/resources/updated.
type Resource struct {
	URI string // any text
	Retry

	params jsontext.Value
}

// ReadURI reads the params of what names a resource, on the terms of ReadCall.
func ReadURI(params jsontext.Value) (*Resource, *Error) {
	fields, e := Fields(params, "params", "uri", "inputResponses", "requestState", "_meta")
	if e != nil {
		return nil, e
	}
	uri, ok := Text(fields[0])
	if !ok {
		return nil, NewError(CodeInvalidParams, "params.uri must be a string")
	}
	retry, e := readRetry(fields[1], fields[2])
	if e != nil {
		return nil, e
	}
	return &Resource{URI: uri, Retry: retry, params: params}, nil
}

// Params is Call.Params for a resource.
func (r *Resource) Params(uri string, sets ...Set) jsontext.Value {
	return replace(r.params, "uri", String(uri), sets)
}

// MaxSubscriptions is how many resources, and how many tasks, one
// subscriptions/listen request may name.
const MaxSubscriptions = 256

// Filter is the notifications that a subscriptions/listen request opts in to,
// or that its acknowledgement agrees to. Nothing else is sent.
type Filter struct {
	ToolsListChanged     bool
	PromptsListChanged   bool
	ResourcesListChanged bool
	Resources            []string // uris, each once, in the client's order
	Tasks                []string // task ids, likewise
}

// ReadListen reads the params of a subscriptions/listen request, or of the
// notification that acknowledges it. The error is CodeInvalidParams where
// notifications is missing, a member of it is of another type or names more
// than MaxSubscriptions, and CodeInvalidRequest as Fields says. Members that
// are not known are left out: they are not opted in to.
func ReadListen(params jsontext.Value) (Filter, *Error) {
	var f Filter
	outer, e := Fields(params, "params", "notifications", "_meta")
	if e != nil {
		return f, e
	}
	const where = "params.notifications"
	fields, e := objectFields(outer[0], where,
		"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds")
	if e != nil {
		return f, e
	}
	for i, flag := range []*bool{&f.ToolsListChanged, &f.PromptsListChanged, &f.ResourcesListChanged} {
		if v := fields[i]; v != nil {
			if *flag = v.Kind() == 't'; v.Kind() != 't' && v.Kind() != 'f' {
				return Filter{}, NewError(CodeInvalidParams, where+": the members that end in ListChanged must be true or false")
			}
		}
	}
	if f.Resources, e = readTexts(fields[3], where+".resourceSubscriptions"); e != nil {
		return Filter{}, e
	}
	if f.Tasks, e = readTexts(fields[4], where+".taskIds"); e != nil {
		return Filter{}, e
	}
	return f, nil
}

func readTexts(v jsontext.Value, where string) ([]string, *Error) {
	if v == nil {
		return nil, nil
	}
	var texts []string
	s := scanArray(v)
	for n := 0; s.next(); n++ {
		text, ok := Text(s.value())
		if !ok {
			return nil, NewError(CodeInvalidParams, where+" must hold strings only")
		}
		if n == MaxSubscriptions {
			return nil, NewError(CodeInvalidParams, fmt.Sprintf("%s must not hold more than %d", where, MaxSubscriptions))
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if s.err != nil {
		return nil, NewError(CodeInvalidParams, where+" must be an array")
	}
	return texts, nil
}

// Value returns the filter as an object that holds only what is opted in to.
func (f Filter) Value() jsontext.Value {
	v := []byte{'{'}
	for _, flag := range []struct {
		name string
		on   bool
	}{
		{"toolsListChanged", f.ToolsListChanged},
		{"promptsListChanged", f.PromptsListChanged},
		{"resourcesListChanged", f.ResourcesListChanged},
	} {
		if flag.on {
			v = appendMember(v, len(v) > 1, flag.name, jsontext.Value("true"))
		}
	}
	if len(f.Resources) > 0 {
		v = appendMember(v, len(v) > 1, "resourceSubscriptions", texts(f.Resources))
	}
	if len(f.Tasks) > 0 {
		v = appendMember(v, len(v) > 1, "taskIds", texts(f.Tasks))
	}
	return append(v, '}')
}

func texts(list []string) jsontext.Value {
	v := []byte{'['}
	for i, s := range list {
		if i > 0 {
			v = append(v, ',')
		}
		v = AppendString(v, s)
	}
	return append(v, ']')
}
