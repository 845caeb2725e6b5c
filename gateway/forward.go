package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
)

// forward sends the request to the one backend and gives its answer back, byte
// for byte but for what belongs to the client's leg.
func (x *exchange) forward(now pinned, t target, u *use) *fault {
	var sets []mcp.Set
	if u.retry.HasState {
		state, f := x.openState(t, u)
		if f != nil {
			return f
		}
		sets = append(sets, mcp.SetRequestState(state))
	}
	params, level := u.params(t.own, sets...), x.logLevel(now, t.server)
	if level == "" && x.meta.LogLevel != "" { // the policy does not let it ask
		var err error
		if params, err = mcp.EditMeta(params, mcp.Set{Name: mcp.MetaLogLevel}); err != nil {
			return faultInternal(err)
		}
	}
	ctx, end := x.callContext()
	defer end()
	stop := x.keepAlive()
	from := time.Now()
	during := &asks{}
	answer, err := x.g.pool.Do(ctx, upstream.Call{
		Server: t.server, Peer: x.peer(), Subject: x.onBehalf(), Method: u.method, Params: params, LogLevel: level,
		Notify: x.passOn(ctx, t), Ask: x.asker(t, during),
	})
	during.end()
	stop()
	measure(&x.stages.upstream, from)
	x.g.answeredBy(t.server, from, answer, err)
	if err != nil {
		return x.backendFault(ctx, t.server, err)
	}
	answer.ID = x.msg.ID
	if f := x.fit(now, t, u, answer); f != nil {
		return f
	}
	if x.g.config.ServerTiming && !x.answer.isStreaming() {
		x.stages.total = time.Since(x.start)
		x.w.Header().Set("Server-Timing", x.stages.serverTiming())
	}
	x.replyAs(answer)
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

// keepAlive turns an answer that takes long into a stream with comments, so
// that nothing on the way takes the connection for dead.
func (x *exchange) keepAlive() (stop func()) {
	if _, sse := accepts(x.r.Header); !sse {
		return func() {}
	}
	return every(keepAliveEvery, func() {
		x.answer.keepAlive()
	})
}

// keepAliveEvery is below the 30 s after which the strictest common balancers
// drop a silent connection (B020).
const keepAliveEvery = 15 * time.Second
