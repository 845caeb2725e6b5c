package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/stream"
)

// post serves one message from a client. Who sent it is already known.
func (x *exchange) post() *fault {
	json, sse := accepts(x.r.Header)
	if !json && !sse {
		return faultAccept()
	}
	x.answer.prefersStream = prefersStream(x.r.Header)
	if !jsonBody(x.r.Header) {
		return faultMediaType()
	}
	body, f := x.readBody()
	if f != nil {
		return f
	}
	if f := x.parse(body); f != nil {
		return f
	}
	if f := x.join(); f != nil {
		return f
	}
	switch x.msg.Kind() {
	case mcp.Notification:
		x.notified()
		x.answer.empty(http.StatusAccepted)
		return nil
	case mcp.Response:
		x.answered()
		x.answer.empty(http.StatusAccepted)
		return nil
	}
	return x.serveRequest()
}

// readBody reads the whole body before anything is done with it: net/http
// cannot go on reading once the answer has begun, and only what was judged
// whole is forwarded.
func (x *exchange) readBody() ([]byte, *fault) {
	limits := x.g.config.Limits
	if x.r.ContentLength > int64(limits.Body) {
		x.w.Header().Set("Connection", "close")
		return nil, faultTooLarge()
	}
	_ = x.answer.control.SetReadDeadline(time.Now().Add(limits.ReadTimeout))
	var buf bytes.Buffer
	if n := min(x.r.ContentLength, unseen); n > 0 {
		buf.Grow(int(n) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(x.w, x.r.Body, int64(limits.Body)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, faultTooLarge()
	case err != nil && !errors.Is(err, io.EOF):
		x.w.Header().Set("Connection", "close")
		f := faultHTTP(http.StatusBadRequest, codeBodyRead)
		f.cause = err
		return nil, f
	}
	// The server watches the connection from here on to see the client go; a
	// deadline left behind would look like that.
	_ = x.answer.control.SetReadDeadline(time.Time{})
	return buf.Bytes(), nil
}

// unseen is for how much of a body that is only announced there is room at once.
const unseen = 64 << 10

// parse reads the message and settles era and revision. In the modern era the
// headers have to agree with the body before anything is looked up.
func (x *exchange) parse(body []byte) *fault {
	msg, err := mcp.Parse(body)
	if err != nil {
		return faultRPC(http.StatusBadRequest, codeMalformed, err)
	}
	x.msg = msg
	call, err := mcp.Classify(x.r.Header, msg)
	if err != nil {
		return faultRPC(http.StatusBadRequest, codeMalformed, err)
	}
	x.era, x.version, x.meta = call.Era, call.Version, call.Meta
	if x.era == mcp.Modern {
		if err := mcp.CheckHeaders(x.r.Header, msg); err != nil {
			return faultRPC(http.StatusBadRequest, codeMalformed, err)
		}
	}
	return nil
}

// join finds the legacy-era session of everything but initialize. The modern
// era has none.
func (x *exchange) join() *fault {
	if x.era == mcp.Modern || x.msg.Method == "initialize" {
		return nil
	}
	return x.findSession()
}

// findSession takes up the session that the header names.
func (x *exchange) findSession() *fault {
	ids := x.r.Header.Values("Mcp-Session-Id")
	if len(ids) == 0 {
		return faultNoSession()
	}
	if len(ids) > 1 {
		return faultSession(session.ErrUnknown)
	}
	s, err := x.g.sessions.Use(x.ctx, ids[0], x.owner())
	if err != nil {
		return faultSession(err)
	}
	x.session = s
	if x.version == "" {
		x.version = s.Version
	}
	x.talk = x.conversation()
	x.answer.resumable = func() *stream.Stream { return x.g.hub.New(s.ID) }
	x.answer.primed = s.Version >= mcp.V20251125
	return nil
}

// reply ends the exchange with the result of a request.
func (x *exchange) reply(body []byte) { x.replyWith(http.StatusOK, body) }

// replyAs ends the exchange with a server's answer.
func (x *exchange) replyAs(m *mcp.Message) { x.replyWith(x.statusOf(m), m.Append(nil)) }

func (x *exchange) replyWith(status int, body []byte) {
	switch {
	case x.answer.isStreaming():
		x.answer.event(body)
	case x.answer.prefersStream && status == http.StatusOK:
		x.answer.single(body)
	default:
		x.answer.json(status, body)
	}
}
