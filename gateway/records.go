package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// stages is where the time of one request went.
type stages struct {
	auth     time.Duration // who: token to principal
	registry time.Duration // which: policy and catalog taken, the tool looked up
	policy   time.Duration // may it: all questions
	upstream time.Duration // do it: the backend
	total    time.Duration
}

func (s *stages) list() []decisionlog.Stage {
	return []decisionlog.Stage{
		{Name: "auth", Took: s.auth}, {Name: "registry", Took: s.registry},
		{Name: "policy", Took: s.policy}, {Name: "upstream", Took: s.upstream}, {Name: "total", Took: s.total},
	}
}

// serverTiming is the stages as the value of a Server-Timing header (W3C
// Server Timing), durations in milliseconds.
func (s *stages) serverTiming() string {
	var b strings.Builder
	for i, stage := range s.list() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s;dur=%.3f", stage.Name, milliseconds(stage.Took))
	}
	return b.String()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// The rules that decide, as decision records name them.
const (
	ruleAllow = "allow"
	ruleCall  = "call"
)

// newRecord is the record of one policy question.
func newRecord(now pinned, caller trace, rule string, q policy.Question) *decisionlog.Record {
	return &decisionlog.Record{
		ID: decisionlog.NewDecisionID(), Time: time.Now(),
		Snapshot: now.policy, RegistryRevision: now.catalog.registry,
		Rule: rule, Question: q, TraceID: caller.id, SpanID: caller.span,
	}
}

// asked begins the record of one of the exchange's questions. It is handed over
// only when the exchange ends, so that it carries the request's stages.
func (x *exchange) asked(now pinned, rule string, q policy.Question) *decisionlog.Record {
	r := newRecord(now, traceOf(x.r.Header), rule, q)
	x.records = append(x.records, r)
	return r
}

// recordOne records the decision on one thing.
func (x *exchange) recordOne(now pinned, rule string, q policy.Question, d policy.Decision) *decisionlog.Record {
	r := x.asked(now, rule, q)
	r.Allowed, r.Code, r.Err = d.Allowed, d.Code, d.Err
	return r
}

// recordList records the decision on a list: one record, with the exact set
// that was allowed, and the first thing that kept an item from being judged. Of a
// list that could not be decided to its end the principal was shown nothing.
func (x *exchange) recordList(now pinned, q policy.Question, items *policy.Items, answers *policy.Answers) {
	r := x.asked(now, ruleAllow, q)
	r.List = &decisionlog.List{Items: items, Answers: answers}
	first := answers.First()
	r.Code, r.Err = first.Code, first.Err
	if answers.Unfinished != "" {
		r.Code = answers.Unfinished
		return
	}
	r.Allowed = answers.Count() > 0
}

// reserve makes sure, once, that what the exchange decides from here on can be put
// on record.
func (x *exchange) reserve() bool {
	if x.release != nil {
		return true
	}
	release, ok := x.g.records.Reserve()
	x.release = release
	return ok
}

// hand gives the exchange's records to the recorder, and then what was reserved
// for them back.
func (x *exchange) hand() {
	for _, f := range x.later {
		f()
	}
	x.later = nil
	stages := x.stages.list()
	for _, r := range x.records {
		r.Stages = stages
		x.g.record(r)
	}
	x.records = nil
	if x.release != nil {
		x.release()
		x.release = nil
	}
}

// trace is where a request belongs in the trace of its caller.
type trace struct{ id, span string }

// traceOf reads the traceparent header (W3C Trace Context). Where it is absent,
// more than one or malformed there is no trace, as the standard has it.
func traceOf(h http.Header) trace {
	values := h["Traceparent"]
	if len(values) != 1 {
		return trace{}
	}
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	text := values[0]
	if len(text) < size || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return trace{}
	}
	version, id, span, flags := text[:2], text[3:35], text[36:52], text[53:size]
	// Later versions may append more after another dash; ff is none.
	rest := text[size:]
	if version == "ff" || rest != "" && (version == "00" || rest[0] != '-') {
		return trace{}
	}
	for _, part := range []string{version, id, span, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return trace{}
		}
	}
	if strings.Trim(id, "0") == "" || strings.Trim(span, "0") == "" {
		return trace{}
	}
	return trace{id, span}
}
