package gateway

import (
	"errors"
	"time"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/meter"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/gateway/upstream"
)

// newMeter knows every name that requests, decisions and servers are counted
// under.
func newMeter() *meter.Meter {
	s := meter.Sets{
		Outcomes: outcomes(),
		Verdicts: []string{
			verdictAllowed, verdictDenied,
			policy.CodeUndefined, policy.CodeType, policy.CodeError, policy.CodeTimeout, policy.CodeCancelled,
		},
		Answers: []string{answerOK, answerError},
	}
	s.Methods = sortedKeys(fromClients)
	for list := range listings {
		s.Lists = append(s.Lists, lists[list].member)
	}
	for k := upstream.Unavailable; k <= upstream.Unauthorized; k++ {
		s.Answers = append(s.Answers, k.String())
	}
	return meter.New(s)
}

const (
	verdictAllowed = "allowed"
	verdictDenied  = "denied"
	answerOK       = "ok"
	answerError    = "error" // the server's own JSON-RPC error
)

// outcomes are those of requests, as the log line has them.
func outcomes() []string {
	list := []string{
		codeOK, codeToken, codeOrigin, codeNotFound, codeHTTPMethod, codeMediaType, codeAccept, codeTooLarge, codeBodyRead,
		codeMalformed, codeSession, codeSessionMissing, codeSessionsFull, codeSessionsDown, codeMethod, codeBusy, codeRate,
		codePolicyNotReady, codeRegistryStale, codeNoRecords, codeScope, codeDenied, codeArguments, codeGone, codeInternal,
		policy.CodeTimeout, policy.CodeCancelled, // of a list that was not decided to its end
	}
	for _, kind := range []string{"tool", "prompt", "resource", "task"} {
		list = append(list, codeUnknown+kind)
	}
	for k := auth.Other; k <= auth.Unavailable; k++ {
		list = append(list, k.Code())
	}
	for k := upstream.Unavailable; k <= upstream.Unauthorized; k++ {
		list = append(list, codeBackend+k.String())
	}
	return list
}

// count adds the exchange, which has ended, to the metrics.
func (x *exchange) count() {
	if x.aside {
		return
	}
	status, _ := x.answer.sent()
	r := meter.Request{Era: x.era, Outcome: x.outcome, Status: status}
	r.Stages = [meter.Stages]time.Duration{
		meter.Auth: x.stages.auth, meter.Registry: x.stages.registry, meter.Policy: x.stages.policy, meter.Upstream: x.stages.upstream,
	}
	if x.msg != nil {
		r.Method = x.msg.Method
		if x.msg.Kind() == mcp.Response {
			r.Method = ""
		}
	}
	if !x.lasting {
		r.Took = x.stages.total
	}
	x.g.meter.Request(r)
}

// record counts a decision and puts it on record.
func (g *Gateway) record(r *decisionlog.Record) {
	gate, verdict := meter.Allow, verdictDenied
	switch {
	case r.List != nil:
		gate = meter.List
	case r.Rule == ruleCall:
		gate = meter.Call
	}
	switch {
	case r.Code != "":
		verdict = r.Code
	case r.Allowed:
		verdict = verdictAllowed
	}
	g.meter.Decision(gate, verdict, r.Reasons)
	g.records.Record(r)
}

// answeredBy counts what came of a request to a server.
func (g *Gateway) answeredBy(server string, from time.Time, m *mcp.Message, err error) {
	answer := answerOK
	var failed *upstream.Error
	switch {
	case errors.As(err, &failed):
		answer = failed.Kind.String()
	case err != nil || m.Error != nil:
		answer = answerError
	}
	g.meter.Upstream(server, answer, time.Since(from))
}
