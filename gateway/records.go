package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway/auth"
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
func newRecord(now pinned, who *auth.Principal, rule, method string, q policy.Request) *decisionlog.Record {
	return &decisionlog.Record{
		ID: decisionlog.NewDecisionID(), Time: time.Now(), RequestID: q.ID,
		Rule: rule, Method: method,
		Issuer: who.Issuer, Subject: who.Subject,
		Client: q.Client, Address: q.RemoteAddr, Route: q.Route,
		PolicyRevision: now.policy.Revision(), RegistryRevision: now.catalog.registry,
	}
}

// asked begins the record of one of the exchange's questions. It is handed over
// only when the exchange ends, so that it carries the request's stages.
func (x *exchange) asked(now pinned, rule, method string, q policy.Request) *decisionlog.Record {
	r := newRecord(now, x.principal, rule, method, q)
	x.records = append(x.records, r)
	return r
}

// recordOne records the decision on one thing.
func (x *exchange) recordOne(now pinned, rule string, q policy.Question, name policy.Name, d policy.Decision) *decisionlog.Record {
	r := x.asked(now, rule, q.Method, q.Request)
	r.Thing, r.Allowed, r.Code, r.Err = name, d.Allowed, d.Code, d.Err
	return r
}

// recordList records the decision on a list: one record, with the exact set
// that was allowed, and the first thing that kept an item from being judged. Of a
// list that could not be decided to its end the principal was shown nothing.
func (x *exchange) recordList(now pinned, method string, q policy.Request, name func(i int) policy.Name, answers *policy.Answers) {
	r := x.asked(now, ruleAllow, method, q)
	r.List = &decisionlog.ListSeen{Total: answers.Len()}
	first := answers.First()
	r.Code, r.Err = first.Code, first.Err
	if answers.Unfinished != "" {
		r.Code = answers.Unfinished
		return
	}
	for i := range answers.Len() {
		if answers.Allowed(i) {
			r.List.Allowed = append(r.List.Allowed, name(i))
		}
	}
	r.Allowed = len(r.List.Allowed) > 0
}

// hand gives the exchange's records to the recorder.
func (x *exchange) hand() {
	for _, f := range x.later {
		f()
	}
	x.later = nil
	for _, r := range x.records {
		r.Stages = x.stages.list()
		x.g.records.Record(r)
	}
	x.records = nil
}
