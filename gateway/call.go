package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// callTool answers tools/call: may the principal see the tool, may this very
// call go through, and only then is one backend asked.
func (x *exchange) callTool() *fault {
	params, err := mcp.ReadCall(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	t, question, name := x.question(now, params.Name)
	if !x.allowed(now, question, name) || t == nil {
		return faultUnknownTool(params.Name)
	}
	if f := x.permitted(now, question, name, params.Arguments); f != nil {
		return f
	}
	if x.era == mcp.Modern {
		if err := t.mirrored.Check(x.r.Header, params.Arguments); err != nil {
			return faultRPC(http.StatusBadRequest, codeMalformed, err)
		}
	}
	return x.forward(t, params)
}

// question makes the policy question about the tool that name means on this
// route. The tool is nil when no backend offers it; the question is asked all
// the same.
func (x *exchange) question(now pinned, name string) (*tool, policy.Question, policy.ToolName) {
	from := time.Now()
	defer func() { measure(&x.stages.registry, from) }()
	q := policy.Question{Method: methodCall, Subject: x.subject, Request: x.request()}
	if t := now.catalog.route(x.server).byName[name]; t != nil {
		x.tool, q.Item = t.exposed, t.item
		return t, q, policy.ToolName{Server: t.server, Name: t.name}
	}
	server, own, exposed := x.server, name, ""
	if x.server == "" {
		server, own, _ = registry.SplitExposed(name)
		exposed = name
	} else {
		exposed, _ = registry.Exposed(server, own)
	}
	x.tool, q.Item = exposed, unknown(server, own, exposed)
	return nil, q, policy.ToolName{Server: server, Name: own}
}

// allowed asks the first question: may the principal see and use the tool?
func (x *exchange) allowed(now pinned, q policy.Question, name policy.ToolName) bool {
	from := time.Now()
	d := now.policy.Allow(x.ctx, q)
	var why policy.Explanation
	if !d.Allowed {
		why = now.policy.Explain(x.ctx, q, nil)
	}
	measure(&x.stages.policy, from)
	x.recordOne(now, ruleAllow, q, name, d, why)
	return d.Allowed
}

// permitted asks the second question, where the policy has it: may this very
// call go through?
func (x *exchange) permitted(now pinned, q policy.Question, name policy.ToolName, arguments jsontext.Value) *fault {
	if !now.policy.HasCall() {
		return nil
	}
	from := time.Now()
	d := now.policy.Call(x.ctx, q, arguments)
	var why policy.Explanation
	if !d.Allowed {
		why = now.policy.Explain(x.ctx, q, arguments)
	}
	measure(&x.stages.policy, from)
	id := x.recordOne(now, ruleCall, q, name, d, why)
	switch {
	case d.Allowed:
		return nil
	case len(why.Scopes) > 0:
		return faultScope(id, why.Reasons, x.g.challenge(x.server).InsufficientScope(why.Scopes))
	}
	return faultDenied(id, why.Reasons)
}

// forward sends the call to the one backend that offers the tool and gives its
// answer back, byte for byte but for what belongs to the client's leg.
func (x *exchange) forward(t *tool, params *mcp.Call) *fault {
	ctx, end := x.callContext()
	defer end()
	stop := x.keepAlive()
	from := time.Now()
	answer, err := x.g.pool.Do(ctx, upstream.Call{
		Server: t.server, Peer: principalPeer{x.principal.Key()}, Method: methodCall, Params: params.Params(t.name), Notify: x.passOn,
	})
	stop()
	measure(&x.stages.upstream, from)
	if err != nil {
		return x.backendFault(ctx, t.server, err)
	}
	answer.ID = x.msg.ID
	if f := x.fitResult(t.server, answer); f != nil {
		return f
	}
	if x.g.config.ServerTiming && !x.answer.streaming {
		x.stages.total = time.Since(x.start)
		x.w.Header().Set("Server-Timing", x.stages.serverTiming())
	}
	x.reply(answer.Append(nil))
	return nil
}

// callContext is what a forwarded call lives on. In the modern era the client
// cancels by going away; in the legacy era it does not, only by
// notifications/cancelled. Neither outlives the gateway.
func (x *exchange) callContext() (context.Context, func()) {
	life := x.ctx
	if x.era == mcp.Legacy {
		life = context.WithoutCancel(life)
	}
	ctx, cancel := context.WithCancelCause(life)
	stop := context.AfterFunc(x.g.closing, func() { cancel(errClosing) })
	key := runningKey{x.session.ID, x.msg.ID}
	if x.era == mcp.Legacy {
		x.g.running.add(key, cancel)
	}
	return ctx, func() {
		x.g.running.remove(key)
		stop()
		cancel(nil)
	}
}

var errClosing = errors.New("the gateway is shutting down")

// fitResult makes a result of the other era fit the client's.
func (x *exchange) fitResult(server string, m *mcp.Message) *fault {
	if m.Result == nil {
		return nil
	}
	kind, err := mcp.ReadResultType(m.Result)
	switch {
	case err != nil:
		return faultBackend(server, "broken", "server "+server+" sent a result that is not an object", err)
	case x.era == mcp.Legacy && kind == "input_required":
		// The bridge between the eras' ways to ask the client belongs here.
		return faultBackend(server, "broken", "server "+server+" asked for input, which this client's protocol revision cannot give", nil)
	case x.era == mcp.Modern && kind == "":
		edited, err := mcp.Edit(m.Result, mcp.Set{Name: "resultType", Value: mcp.String("complete")})
		if err != nil {
			return faultInternal(err)
		}
		m.Result = edited
	}
	return nil
}

func (x *exchange) backendFault(ctx context.Context, server string, err error) *fault {
	if errors.Is(context.Cause(ctx), errCancelled) || x.ctx.Err() != nil {
		f := faultBackend(server, "cancelled", "the call was cancelled", err)
		f.code = codeGone
		return f
	}
	var failed *upstream.Error
	if errors.As(err, &failed) {
		return faultBackend(server, failed.Kind.String(), failed.Public(), err)
	}
	return faultInternal(err)
}

// passOn gives the client what a backend says of a call under way.
func (x *exchange) passOn(m *mcp.Message) {
	_, sse := accepts(x.r.Header)
	if sse && (m.Method == "notifications/progress" || m.Method == "notifications/message") {
		x.answer.event(m.Append(nil))
	}
}

// keepAlive turns an answer that takes long into a stream with comments, so
// that nothing on the way takes the connection for dead.
func (x *exchange) keepAlive() (stop func()) {
	if _, sse := accepts(x.r.Header); !sse {
		return func() {}
	}
	return every(keepAliveEvery, func() {
		x.answer.stream()
		x.answer.keepAlive()
	})
}

// keepAliveEvery is below the 30 s after which the strictest common balancers
// drop a silent connection (B020).
const keepAliveEvery = 15 * time.Second

// principalPeer holds one conversation with each server for a principal, which
// takes part in nothing but calls.
type principalPeer struct{ key string }

func (p principalPeer) Key() string                  { return p.key }
func (p principalPeer) Era() mcp.Era                 { return mcp.Legacy }
func (p principalPeer) Capabilities() jsontext.Value { return nil }
func (p principalPeer) Notify(string, *mcp.Message)  {}

func (p principalPeer) Ask(context.Context, string, *mcp.Message) *mcp.Message {
	return &mcp.Message{Error: jsontext.Value(`{"code":-32601,"message":"the client does not support this method"}`)}
}
