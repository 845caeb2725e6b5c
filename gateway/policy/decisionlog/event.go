package decisionlog

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/regogate/regogate/gateway/policy"
)

// encoder makes lines of records. It belongs to one goroutine.
type encoder struct {
	labels  []byte // JSON
	masking masking
	// lists remembers results: the same list is judged again and again.
	lists *simplelru.LRU[List, []byte]
	// subjects and items remember the parts of inputs that many events share.
	subjects *simplelru.LRU[*policy.Subject, part]
	items    *simplelru.LRU[*policy.Item, part]
}

// part is JSON of an input.
type part struct {
	json []byte
	cut  bool
}

// maxParts is how many subjects and items are remembered, of up to maxPart bytes.
const (
	maxParts = 512
	maxPart  = 8 << 10
)

// maxLists is how many results are remembered.
const maxLists = 64

func newEncoder(labels map[string]string, m masking) *encoder {
	e := &encoder{
		labels: []byte{'{'}, masking: m, lists: remember[List, []byte](maxLists),
		subjects: remember[*policy.Subject, part](maxParts), items: remember[*policy.Item, part](maxParts),
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		e.labels = appendMember(e.labels, name, appendText(nil, labels[name]))
	}
	e.labels = append(e.labels, '}')
	return e
}

func remember[K comparable, V any](most int) *simplelru.LRU[K, V] {
	kept, err := simplelru.NewLRU[K, V](most, nil)
	if err != nil {
		panic(err) // the sizes are positive constants
	}
	return kept
}

// event is a record on its way to a line.
type event struct {
	*Record
	input          []byte // JSON; nil where there is none
	result         []byte // JSON; nil where there is none
	shortened      bool   // the input is not there in full
	erased, masked []string
	maskError      string
}

// line returns the record as one line of JSON, nil where the policy drops it.
func (e *encoder) line(ctx context.Context, r *Record) (line []byte, maskFailed bool) {
	v := &event{Record: r, result: e.result(r)}
	if drop := e.mask(ctx, v); drop {
		return nil, false
	}
	if len(v.input) > maxInput {
		v.input, v.shortened = v.named(), true
	}
	w := &writing{dst: make([]byte, 0, 1024+len(v.input)+len(v.result))}
	w.dst = appendMember(append(w.dst, '{'), "labels", e.labels)
	v.before(w)
	for _, document := range []struct {
		name  string
		value []byte
	}{{"input", v.input}, {"result", v.result}} {
		if document.value != nil {
			w.dst = appendMember(w.dst, document.name, document.value)
		}
	}
	w.texts("erased", v.erased)
	w.texts("masked", v.masked)
	v.after(w)
	return append(w.dst, '}', '\n'), v.maskError != ""
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

// named is the least that says what was judged: the method, and the thing by its
// name.
func (v *event) named() []byte {
	n := v.Thing()
	out, _ := appendCut([]byte(`{"method":`), v.Method)
	thing := []byte{'{'}
	put := func(key, text string) {
		text, _ = shorten(text, maxText)
		thing = appendMember(thing, key, appendText(nil, text))
	}
	switch n.Kind {
	case "":
		return append(out, '}')
	case policy.KindServer:
		put("name", n.Server)
	case policy.KindResource:
		put("server", n.Server)
		put("uri", n.Name)
	default:
		put("name", n.Name)
		put("server", n.Server)
	}
	return append(appendMember(out, string(n.Kind), append(thing, '}')), '}')
}

// form is how the members of an event are put down: as JSON for a line, as terms
// for a mask. A text or texts that are empty are left out.
type form interface {
	text(name, value string)
	texts(name string, values []string)
	number(name string, value int64)
	// Members between open and close are those of an object.
	open(name string)
	close()
}

// before and after are the members that stand before and after the documents, in
// the order of OPA's EventV1.
func (v *event) before(f form) {
	f.text("decision_id", v.ID)
	f.text("trace_id", v.TraceID)
	f.text("span_id", v.SpanID)
	if v.Snapshot != nil {
		f.open("bundles")
		revisions := v.Snapshot.Bundles()
		for _, name := range slices.Sorted(maps.Keys(revisions)) {
			f.open(name)
			f.text("revision", revisions[name])
			f.close()
		}
		f.close()
	}
	f.text("path", "mcp/authz/"+v.Rule)
}

func (v *event) after(f form) {
	if v.Err != nil {
		f.open("error")
		f.text("code", cmp.Or(v.Code, policy.CodeError))
		f.text("message", brief(v.Err))
		f.close()
	}
	f.text("requested_by", v.Request.RemoteAddr)
	f.text("timestamp", v.Time.UTC().Format(time.RFC3339Nano))
	if len(v.Stages) > 0 {
		f.open("metrics")
		for _, s := range v.Stages {
			f.number("timer_"+s.Name+"_ns", s.Took.Nanoseconds())
		}
		f.close()
	}
	f.open("custom")
	f.text("request_id", v.Request.ID)
	f.text("registry_revision", v.RegistryRevision)
	f.text("code", v.Code)
	f.texts("reasons", v.Reasons)
	if v.maskError == "" { // else nobody knows what may be in them
		f.texts("private_reasons", v.Private)
	}
	f.texts("scopes", v.Scopes)
	if v.Explanation.Err != nil {
		f.text("reasons_error", brief(v.Explanation.Err))
	}
	f.text("mask_error", v.maskError)
	f.texts("truncated", v.truncated())
	f.close()
}

func (v *event) truncated() (pointers []string) {
	if v.Cut {
		pointers = append(pointers, argumentsPath)
	}
	if v.shortened {
		pointers = append(pointers, "/input")
	}
	return pointers
}

func brief(err error) string {
	text, _ := shorten(strings.ReplaceAll(err.Error(), "\n", " "), maxText)
	return text
}
