package decisionlog

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/gateway/policy"
)

// encoder makes lines of records. It belongs to one goroutine.
type encoder struct {
	labels  []byte // JSON
	masking masking
	// lists remembers results: the same list is judged again and again.
	lists *simplelru.LRU[List, []byte]
}

// maxLists is how many results are remembered.
const maxLists = 64

func newEncoder(labels map[string]string, m masking) *encoder {
	lists, err := simplelru.NewLRU[List, []byte](maxLists, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	e := &encoder{labels: []byte{'{'}, masking: m, lists: lists}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		e.labels = appendMember(e.labels, name, appendText(nil, labels[name]))
	}
	e.labels = append(e.labels, '}')
	return e
}

// event is a record on its way to a line.
type event struct {
	*Record
	labels []byte // JSON
	input  ast.Value
	// result is JSON; nil where it is removed.
	result         []byte
	erased, masked []string
	maskError      string
	truncated      []string
}

// line returns the record as one line of JSON, nil where the policy drops it.
func (e *encoder) line(ctx context.Context, r *Record) (line []byte, maskFailed bool) {
	v := &event{Record: r, labels: e.labels, result: e.result(r)}
	if r.Cut {
		v.truncated = []string{argumentsPath}
	}
	if drop := e.masking.apply(ctx, v); drop {
		return nil, false
	}
	return append(v.appendTo(make([]byte, 0, 1024), v.appendInput()), '\n'), v.maskError != ""
}

func (e *encoder) result(r *Record) []byte {
	if r.List == nil {
		return strconv.AppendBool(nil, r.Allowed)
	}
	if known, ok := e.lists.Get(*r.List); ok {
		return known
	}
	result := r.List.append(nil)
	e.lists.Add(*r.List, result)
	return result
}

// appendInput returns the input as JSON, nil where there is none.
func (v *event) appendInput() []byte {
	if v.input == nil {
		return nil
	}
	input, cut := appendValue(nil, v.input)
	if len(input) > maxInput {
		input, _ = appendValue(nil, v.named())
		cut = true
	}
	if cut {
		v.truncated = append(v.truncated, "/input")
	}
	return input
}

// named is the least that says what was judged: the method, and the thing by its
// name.
func (v *event) named() ast.Value {
	in := ast.NewObject(ast.Item(ast.InternedTerm("method"), ast.StringTerm(v.Method)))
	n := v.Thing()
	thing := ast.NewObject()
	put := func(key, text string) { thing.Insert(ast.InternedTerm(key), ast.StringTerm(text)) }
	switch n.Kind {
	case "":
		return in
	case policy.KindServer:
		put("name", n.Server)
	case policy.KindResource:
		put("server", n.Server)
		put("uri", n.Name)
	default:
		put("server", n.Server)
		put("name", n.Name)
	}
	in.Insert(ast.InternedTerm(string(n.Kind)), ast.NewTerm(thing))
	return in
}

// appendTo appends the event, in the order of OPA's EventV1.
func (v *event) appendTo(dst, input []byte) []byte {
	dst = appendMember(append(dst, '{'), "labels", v.labels)
	dst = appendString(dst, "decision_id", v.ID)
	dst = appendString(dst, "trace_id", v.TraceID)
	dst = appendString(dst, "span_id", v.SpanID)
	dst = v.appendBundles(dst)
	dst = appendString(dst, "path", "mcp/authz/"+v.Rule)
	dst = appendSome(dst, "input", input)
	dst = appendSome(dst, "result", v.result)
	dst = appendSet(dst, "erased", v.erased)
	dst = appendSet(dst, "masked", v.masked)
	if v.Err != nil {
		code := v.Code
		if code == "" {
			code = policy.CodeError
		}
		problem := appendString([]byte{'{'}, "code", code)
		dst = appendMember(dst, "error", append(appendString(problem, "message", shorten(v.Err.Error(), maxText)), '}'))
	}
	dst = appendString(dst, "requested_by", v.Request.RemoteAddr)
	dst = appendMember(dst, "timestamp", v.Time.UTC().AppendFormat(nil, `"`+time.RFC3339Nano+`"`))
	dst = v.appendMetrics(dst)
	return append(v.appendCustom(dst), '}')
}

func (v *event) appendBundles(dst []byte) []byte {
	if v.Snapshot == nil {
		return dst
	}
	revisions := v.Snapshot.Bundles()
	bundles := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(revisions)) {
		bundles = appendMember(bundles, name, append(appendString([]byte{'{'}, "revision", revisions[name]), '}'))
	}
	return appendMember(dst, "bundles", append(bundles, '}'))
}

func (v *event) appendMetrics(dst []byte) []byte {
	if len(v.Stages) == 0 {
		return dst
	}
	metrics := []byte{'{'}
	for i, s := range v.Stages {
		if i == slices.IndexFunc(v.Stages, func(other Stage) bool { return other.Name == s.Name }) {
			var took time.Duration
			for _, other := range v.Stages[i:] {
				if other.Name == s.Name {
					took += other.Took
				}
			}
			metrics = appendMember(metrics, "timer_"+s.Name+"_ns", strconv.AppendInt(nil, took.Nanoseconds(), 10))
		}
	}
	return appendMember(dst, "metrics", append(metrics, '}'))
}

func (v *event) appendCustom(dst []byte) []byte {
	custom := appendString([]byte{'{'}, "request_id", v.Request.ID)
	custom = appendString(custom, "registry_revision", v.RegistryRevision)
	custom = appendString(custom, "code", v.Code)
	custom = appendSet(custom, "reasons", v.Reasons)
	if v.maskError == "" { // else nobody knows what may be in them
		custom = appendSet(custom, "private_reasons", v.Private)
	}
	custom = appendSet(custom, "scopes", v.Scopes)
	if v.Explanation.Err != nil {
		custom = appendString(custom, "reasons_error", shorten(v.Explanation.Err.Error(), maxText))
	}
	custom = appendString(custom, "mask_error", v.maskError)
	custom = appendSet(custom, "truncated", v.truncated)
	if len(custom) == 1 {
		return dst
	}
	return appendMember(dst, "custom", append(custom, '}'))
}

// appendString, appendSome and appendSet append a member that is not empty.

func appendString(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendText(append(appendText(separate(dst), name), ':'), value)
}

func appendSome(dst []byte, name string, value []byte) []byte {
	if value == nil {
		return dst
	}
	return appendMember(dst, name, value)
}

func appendSet(dst []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return dst
	}
	return appendTexts(append(appendText(separate(dst), name), ':'), values)
}
