package gateway

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry/strictyaml"
)

// judge asks the policy about what servers send to a client of their own
// accord: on the claims of the request that opened the way to the client, and
// on the policy that is in force at the time. It is immutable and safe for
// concurrent use.
type judge struct {
	g         *Gateway
	principal *auth.Principal
	subject   *policy.Subject
	request   policy.Request
	route     string // the route's server; "" on the aggregate route
	trace     trace  // that the request belongs to
	onBehalf  upstream.Subject
}

// judge returns the exchange's; it is called once the message is read, and the
// session found.
func (x *exchange) judge() *judge {
	if x.judging == nil {
		x.judging = &judge{g: x.g, principal: x.principal, subject: x.subject, request: x.request(), route: x.server, trace: traceOf(x.r.Header), onBehalf: x.onBehalf()}
	}
	return x.judging
}

// onBehalf is the principal as the backend leg knows it. Its token is kept only
// where a server is to have another one for it.
func (x *exchange) onBehalf() upstream.Subject {
	if !x.g.exchanges {
		return upstream.Subject{}
	}
	token, err := auth.Bearer(x.r.Header)
	if err != nil { // it is anonymous
		return upstream.Subject{}
	}
	return upstream.Subject{Issuer: x.principal.Issuer, Token: strictyaml.Secret(token), Expires: x.principal.Expires}
}

func (j *judge) question(method string, t target) policy.Question {
	return policy.Question{Method: method, Subject: j.subject, Item: t.item, Request: j.request}
}

// verdict is the answer to both gates.
type verdict struct {
	allowed bool
	record  *decisionlog.Record // of the question that decided; nil while nothing can be decided
	code    string              // why not, where the gateway's log says so
}

// tells reports whether the client may be told by a notification of this
// method about the target. Only refusals are recorded: a call may be followed
// by thousands.
func (j *judge) tells(ctx context.Context, method string, t target) bool {
	now, code := j.now()
	if code != "" {
		return false
	}
	release, ok := j.g.records.Reserve()
	if !ok {
		return false
	}
	defer release()
	q, d := t.allow(ctx, now, j.question(method, t))
	if !d.Allowed {
		j.record(now, ruleAllow, q, d, nil)
	}
	return d.Allowed
}

// asks reports whether the client may be asked by a request of this method with
// these params.
func (j *judge) asks(ctx context.Context, method string, t target, params jsontext.Value) verdict {
	now, code := j.now()
	if code != "" {
		return verdict{}
	}
	release, ok := j.g.records.Reserve()
	if !ok {
		return verdict{code: codeNoRecords}
	}
	defer release()
	t = now.catalog.again(t)
	q, d := t.allow(ctx, now, j.question(method, t))
	r := j.record(now, ruleAllow, q, d, nil)
	if !d.Allowed || !now.policy.HasCall() {
		return verdict{allowed: d.Allowed, record: r}
	}
	if params == nil {
		params = jsontext.Value("{}")
	}
	d = now.policy.Call(ctx, q, params)
	return verdict{allowed: d.Allowed, record: j.record(now, ruleCall, q, d, params)}
}

// now is nothing once the token has expired.
func (j *judge) now() (pinned, string) {
	at := time.Now()
	if end := j.principal.Expires; !end.IsZero() && !at.Before(end) {
		return pinned{}, codeToken
	}
	return j.g.now(at)
}

func (j *judge) record(now pinned, rule string, q policy.Question, d policy.Decision, arguments jsontext.Value) *decisionlog.Record {
	r := newRecord(now, j.trace, rule, q)
	r.Allowed, r.Code, r.Err = d.Allowed, d.Code, d.Err
	if rule == ruleCall {
		r.Argue(arguments)
	}
	if !d.Allowed {
		// Who sent the message waits for no one, so this may take its time.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.Explanation = now.policy.Explain(ctx, q, arguments)
	}
	j.g.record(r)
	return r
}
