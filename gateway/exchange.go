package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/gateway/session"
)

// exchange is one HTTP request on its way through the gateway. It belongs to
// the goroutine that serves the request.
type exchange struct {
	g      *Gateway
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	id     string // request id, ours
	server string // the route's server; "" on the aggregate route
	start  time.Time
	stages stages
	answer answer

	principal *auth.Principal
	subject   *policy.Subject
	msg       *mcp.Message
	era       mcp.Era
	version   string
	meta      mcp.Meta
	session   session.Session
	judging   *judge        // made when first needed
	talk      *conversation // of the session; nil in the modern era

	outcome string // code of the fault, or codeOK
	aside   bool   // it is none of the requests that are counted
	lasting bool   // it is open for as long as the client likes
	cause   error
	thing   string // what the request is about, as the client knows it; for the log
	records []*decisionlog.Record
	release func()   // gives back what was reserved for the records; nil without
	leave   func()   // gives the place among the principal's requests back, once
	later   []func() // what the records still need, and the client does not wait for
}

// owner is whose a session is: the principal's, and where a server's route wants
// tokens that are meant for it, only on that route.
func (x *exchange) owner() string {
	if x.server == "" || x.g.audience(x.server) == nil {
		return x.principal.Key()
	}
	return x.principal.Key() + "\x00" + x.server
}

// routePath is the path of the exchange's MCP endpoint.
func (x *exchange) routePath() string { return routePath(x.server) }

func routePath(server string) string {
	if server == "" {
		return "/mcp"
	}
	return "/mcp/" + server
}

// request is what the policy is told of the request itself.
func (x *exchange) request() policy.Request {
	return policy.Request{
		ID: x.id, ProtocolVersion: x.version, RemoteAddr: x.g.remoteAddr(x.r), Route: x.routePath(),
		Client: policy.Client{Name: x.client().Name, Version: x.client().Version},
	}
}

func (x *exchange) client() session.Implementation {
	if x.era == mcp.Modern {
		return session.Implementation{Name: x.meta.Client.Name, Version: x.meta.Client.Version}
	}
	return x.session.Client
}

// measure adds the time since from to a stage and returns now.
func measure(stage *time.Duration, from time.Time) time.Time {
	now := time.Now()
	*stage += now.Sub(from)
	return now
}

// refuse ends the exchange with a fault.
func (x *exchange) refuse(f *fault) {
	x.outcome, x.cause = f.code, f.cause
	if x.answer.isStreaming() {
		if f.rpc != nil {
			x.answer.event(x.errorBody(f))
		}
		return
	}
	h := x.w.Header()
	if f.challenge != "" {
		h.Set("WWW-Authenticate", f.challenge)
	}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(ceil(f.retryAfter, time.Second), 10))
	}
	if f.rpc == nil {
		x.answer.plain(f.status, http.StatusText(f.status))
		return
	}
	if f.status == http.StatusOK {
		x.reply(x.errorBody(f)) // an answer like any other
		return
	}
	x.answer.json(f.status, x.errorBody(f))
}

func (x *exchange) errorBody(f *fault) []byte {
	err := *f.rpc
	if x.msg != nil && x.msg.Kind() == mcp.Request {
		err.ID = x.msg.ID
	}
	return err.Append(nil)
}

// exchangeOf returns the exchange that observe put into the request's context.
func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange)
}

type exchangeKey struct{}

// observe makes the exchange, turns a panic into an answer, and writes the one
// log line of the request on every path.
func (g *Gateway) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{g: g, w: w, r: r, id: newID(), start: time.Now(), outcome: codeOK}
		x.answer = answer{w: w, control: http.NewResponseController(w), patience: g.config.Limits.WriteTimeout}
		x.ctx = context.WithValue(r.Context(), exchangeKey{}, x)
		g.meter.InFlight.Inc()
		defer g.meter.InFlight.Dec()
		defer x.finish()
		w.Header().Set("X-Request-Id", x.id)
		next.ServeHTTP(w, r.WithContext(x.ctx))
	})
}

func (x *exchange) finish() {
	if p := recover(); p != nil {
		x.g.log.Error("panic while serving a request", keyRequest, x.id, "panic", fmt.Sprint(p), "stack", stack())
		if !x.answer.started {
			x.refuse(faultInternal(fmt.Errorf("panic: %v", p)))
		}
		x.outcome = codeInternal
	}
	x.answer.end()
	x.stages.total = time.Since(x.start)
	if len(x.later) > 0 {
		x.answer.flush()
	}
	x.hand()
	x.count()
	level := slog.LevelInfo
	if x.outcome == codeInternal {
		level = slog.LevelError
	}
	x.g.log.LogAttrs(context.WithoutCancel(x.r.Context()), level, "request", x.attrs()...)
}

// Names of log fields.
const (
	keyRequest = "request_id"
	keyServer  = "server"
	keyKind    = "kind"
	keyName    = "name"
	keyError   = "error"
)

func (x *exchange) attrs() []slog.Attr {
	status, sent := x.answer.sent()
	attrs := []slog.Attr{
		slog.String(keyRequest, x.id),
		slog.String("http_method", x.r.Method),
		slog.String("path", loggable(clip(x.r.URL.Path))),
		slog.Int("status", status),
		slog.String("outcome", x.outcome),
		slog.Int64("bytes_out", sent),
		slog.String("remote_addr", loggable(x.g.remoteAddr(x.r))),
	}
	for _, stage := range x.stages.list() {
		attrs = append(attrs, slog.Float64(stage.Name+"_ms", milliseconds(stage.Took)))
	}
	if x.principal != nil {
		attrs = append(attrs, slog.String("issuer", x.principal.Issuer), slog.String("subject", loggable(x.principal.Subject)))
	}
	if x.msg != nil {
		attrs = append(attrs, slog.String("mcp_method", loggable(clip(x.msg.Method))), slog.String("protocol_version", x.version))
	}
	if x.thing != "" {
		attrs = append(attrs, slog.String(keyName, loggable(clip(x.thing))))
	}
	if x.cause != nil {
		attrs = append(attrs, slog.String(keyError, loggable(x.cause.Error())))
	}
	return attrs
}

// loggable escapes what does not show, or makes a line read otherwise than it
// is: control, invisible and bidirectional characters (B105).
func loggable(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u{%04X}`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }
