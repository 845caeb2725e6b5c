package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/session"
)

// fault is how a request ends without a result: one row of the table of
// denials. Every error that a client can meet is made in this file.
type fault struct {
	status     int        // HTTP status
	rpc        *mcp.Error // JSON-RPC error; nil where the answer has none
	challenge  string     // value of WWW-Authenticate
	retryAfter time.Duration
	code       string // stable, for logs and records
	cause      error  // for logs only
}

// Codes of faults. They stand in the log line as "outcome".
const (
	codeOK             = "ok"
	codeToken          = "invalid_token"
	codeOrigin         = "origin_refused"
	codeNotFound       = "not_found"
	codeHTTPMethod     = "http_method"
	codeMediaType      = "media_type"
	codeAccept         = "not_acceptable"
	codeTooLarge       = "body_too_large"
	codeBodyRead       = "body_unreadable"
	codeMalformed      = "malformed"
	codeSession        = "unknown_session"
	codeSessionMissing = "missing_session"
	codeSessionsFull   = "too_many_sessions"
	codeSessionsDown   = "sessions_unavailable"
	codeMethod         = "method_not_found"
	codeBusy           = "too_many_requests"
	codeRate           = "rate_limited"
	codePolicyNotReady = "policy_not_ready"
	codeRegistryStale  = "registry_stale"
	codeNoRecords      = "decision_log_unavailable"
	codeUnknown        = "unknown_" // and the kind of thing
	codeScope          = "insufficient_scope"
	codeDenied         = "denied"
	codeArguments      = "invalid_arguments"
	codeBackend        = "backend_" // and what is wrong with it
	codeGone           = "client_gone"
	codeInternal       = "internal"
)

func faultHTTP(status int, code string) *fault { return &fault{status: status, code: code} }

// faultOrigin refuses a request for where it comes from or goes to. Why is for
// the log alone: whoever asks learns nothing.
func faultOrigin(why string) *fault {
	return &fault{status: http.StatusForbidden, code: codeOrigin, cause: errors.New(why)}
}

// faultRPC is a request that cannot be understood: 400 with the JSON-RPC
// error that says why.
func faultRPC(status int, code string, err *mcp.Error) *fault {
	return &fault{status: status, code: code, rpc: err, cause: err}
}

// faultParams is params that cannot be read. A name that some decoder could take
// for another one makes the message malformed; anything else is an answer to it.
func faultParams(err *mcp.Error) *fault {
	if err.Code == mcp.CodeInvalidRequest {
		return faultRPC(http.StatusBadRequest, codeMalformed, err)
	}
	return faultRPC(http.StatusOK, codeMalformed, err)
}

func faultTooLarge() *fault {
	return faultRPC(http.StatusRequestEntityTooLarge, codeTooLarge,
		mcp.NewError(mcp.CodeInvalidRequest, "the request body is too large"))
}

func faultMediaType() *fault {
	return faultRPC(http.StatusUnsupportedMediaType, codeMediaType,
		mcp.NewError(mcp.CodeInvalidRequest, "send the message as Content-Type: application/json in UTF-8, without Content-Encoding"))
}

func faultAccept() *fault {
	return faultRPC(http.StatusNotAcceptable, codeAccept,
		mcp.NewError(mcp.CodeInvalidRequest, "accept application/json, text/event-stream or both"))
}

// faultSession tells a session that is not there from one that cannot be
// reached now: that one must not be given up.
func faultSession(err error) *fault {
	switch {
	case errors.Is(err, session.ErrUnknown):
		return &fault{status: http.StatusNotFound, code: codeSession, cause: err,
			rpc: mcp.NewError(mcp.CodeInvalidRequest, "session not found: initialize again")}
	case errors.Is(err, session.ErrFull):
		return faultBusy(codeSessionsFull, "too many sessions: end one and try again")
	case errors.Is(err, session.ErrTooLarge):
		return faultRPC(http.StatusOK, codeMalformed, mcp.NewError(mcp.CodeInvalidParams, "a session does not hold that much"))
	}
	f := faultRPC(http.StatusServiceUnavailable, codeSessionsDown, mcp.NewError(mcp.CodeUnavailable, "sessions cannot be reached now: try again"))
	f.retryAfter, f.cause = time.Second, err
	return f
}

func faultNoSession() *fault {
	return faultRPC(http.StatusBadRequest, codeSessionMissing,
		mcp.NewError(mcp.CodeInvalidRequest, "the Mcp-Session-Id header is missing: initialize first"))
}

// faultMethod answers a method that is not in the table. The modern era says
// 404 (MCP 2026-07-28, Streamable HTTP, protocol version header).
func faultMethod(era mcp.Era, method string) *fault {
	status := http.StatusOK
	if era == mcp.Modern {
		status = http.StatusNotFound
	}
	return faultRPC(status, codeMethod, mcp.NewError(mcp.CodeMethodNotFound, "Method not found: "+clip(method)))
}

func faultBusy(code, message string) *fault {
	f := faultRPC(http.StatusTooManyRequests, code, mcp.NewError(mcp.CodeTooManyRequests, message))
	f.retryAfter = time.Second
	return f
}

// faultRate is a request above a limit on how often; which is principal or tool.
func faultRate(which string, wait time.Duration) *fault {
	f := faultBusy(codeRate, "too many requests of this "+which+": try again later")
	f.retryAfter = wait
	f.rpc.Data = object(
		mcp.Set{Name: "limit", Value: mcp.String(which)},
		mcp.Set{Name: "retry_after_ms", Value: jsontext.Value(strconv.FormatInt(ceil(wait, time.Millisecond), 10))},
	)
	return f
}

// ceil is how many units a time is, rounded up: who waits that long has waited
// long enough.
func ceil(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

// faultNotReady is the answer to every name alike while the gateway as a whole
// cannot decide, and to a list that was not decided in time.
func faultNotReady(code string) *fault {
	err := mcp.NewError(mcp.CodeUnavailable, "the gateway cannot decide now: "+code)
	err.Data = object(mcp.Set{Name: "reasons", Value: stringArray([]string{code})})
	return faultRPC(http.StatusOK, code, err)
}

// faultUnknown is the one answer to a name that is hidden, unregistered or not
// there at all; nothing in it tells these apart. kind is tool, prompt or task.
func faultUnknown(kind, name string) *fault {
	return faultRPC(http.StatusOK, codeUnknown+kind, mcp.NewError(mcp.CodeInvalidParams, "Unknown "+kind+": "+clip(name)))
}

// unknownResource is the same for a URI, in the words of the client's era.
func (x *exchange) unknownResource(uri string) *fault {
	code := mcp.CodeResourceNotFound
	if x.era == mcp.Modern {
		code = mcp.CodeInvalidParams
	}
	err := mcp.NewError(code, "Resource not found")
	err.Data = object(mcp.Set{Name: "uri", Value: mcp.String(clip(uri))})
	return faultRPC(http.StatusOK, codeUnknown+"resource", err)
}

func faultScope(decisionID string, reasons []string, challenge string) *fault {
	f := faultDenied(decisionID, reasons)
	f.status, f.code, f.challenge = http.StatusForbidden, codeScope, challenge
	return f
}

func faultDenied(decisionID string, reasons []string) *fault {
	err := mcp.NewError(mcp.CodeForbidden, "the policy does not allow this call")
	err.Data = object(
		mcp.Set{Name: "decision_id", Value: mcp.String(decisionID)},
		mcp.Set{Name: "reasons", Value: stringArray(reasons)},
	)
	return faultRPC(http.StatusOK, codeDenied, err)
}

// faultBackend names the server of a tool that the principal may see, and
// never its address. kind is unavailable,
// timeout, broken or unauthorized.
func faultBackend(server, kind, message string, cause error) *fault {
	err := mcp.NewError(mcp.CodeInternal, message)
	err.Data = object(
		mcp.Set{Name: "server", Value: mcp.String(server)},
		mcp.Set{Name: "reason", Value: mcp.String(codeBackend + kind)},
	)
	return &fault{status: http.StatusOK, code: codeBackend + kind, rpc: err, cause: cause}
}

func faultInternal(cause error) *fault {
	return &fault{status: http.StatusInternalServerError, code: codeInternal, cause: cause,
		rpc: mcp.NewError(mcp.CodeInternal, "internal error")}
}

// maxEcho bounds how much of a client's own text an error gives back.
const maxEcho = 256

func clip(s string) string {
	if len(s) > maxEcho {
		return strings.ToValidUTF8(s[:maxEcho], "") + "…"
	}
	return s
}

func object(members ...mcp.Set) jsontext.Value {
	v, err := mcp.Edit(jsontext.Value("{}"), members...)
	if err != nil {
		panic(err) // the empty object can be edited
	}
	return v
}

func stringArray(ss []string) jsontext.Value {
	out := []byte{'['}
	for i, s := range ss {
		if i > 0 {
			out = append(out, ',')
		}
		out = mcp.AppendString(out, s)
	}
	return append(out, ']')
}
