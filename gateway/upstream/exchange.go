package upstream

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// exchange is one request under way over HTTP: it reads responses until it has
// the answer.
type exchange struct {
	web     *web
	id      mcp.ID
	token   jsontext.Value     // the client's progress token, or nil
	request request            // the zero value for a stream that belongs to none
	cancel  context.CancelFunc // ends the context of the HTTP request

	session  *session // nil in the modern era
	refused  bool     // with HTTP status 400
	streamed bool     // the body need not be read to its end

	telling sync.Mutex // one notification after the other, and none once over
	over    bool
}

// answer reads the answer to the request from its HTTP response, and cancels
// the context when it is done with that.
func (x *exchange) answer(ctx context.Context, resp *http.Response) (*mcp.Message, error) {
	m, err := x.read(ctx, resp)
	switch {
	case err == nil && x.streamed:
		x.web.aside(ctx, func(context.Context) { x.linger(resp) })
		return m, nil
	case err != nil && ctx.Err() != nil:
		err = ctx.Err()
	}
	x.cancel()
	resp.Body.Close()
	return m, err
}

// linger reads on for a moment: a stream that ends now leaves its connection
// for the next request, and most do.
func (x *exchange) linger(resp *http.Response) {
	const moment = 100 * time.Millisecond
	timer := time.AfterFunc(moment, x.cancel)
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	timer.Stop()
	x.cancel()
	resp.Body.Close()
}

func (x *exchange) read(ctx context.Context, resp *http.Response) (*mcp.Message, error) {
	body, err := decoded(resp)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return x.failure(resp, body)
	}
	switch kind := mediaType(resp); kind {
	case "application/json":
		data, err := x.whole(body)
		if err != nil {
			return nil, err
		}
		return x.single(data)
	case "text/event-stream":
		x.streamed = true
		return x.stream(ctx, body)
	case "":
		return nil, broken("it answered a request with HTTP status %d and no content", resp.StatusCode)
	default:
		return nil, broken("it answered with content of type %s, which is not MCP", escape([]byte(kind)))
	}
}

func mediaType(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	}
	return strings.ToLower(strings.TrimSpace(kind))
}

// decoded returns the body without its gzip encoding. It is bounded by whoever
// reads it.
func decoded(resp *http.Response) (io.Reader, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return &gunzip{src: resp.Body}, nil
	default:
		return nil, broken("its answer has the Content-Encoding %s, which was not asked for", escape([]byte(encoding)))
	}
}

// gunzip reads the header with the first byte that is asked for, not before.
type gunzip struct {
	src io.Reader
	zip *gzip.Reader
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.zip == nil {
		zip, err := gzip.NewReader(g.src)
		if err != nil {
			return 0, err
		}
		g.zip = zip
	}
	return g.zip.Read(p)
}

// whole reads a body that is one message.
func (x *exchange) whole(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, int64(x.web.limit)+1))
	if err != nil {
		return nil, broken("read its answer: %w", bare(err))
	}
	if len(data) > x.web.limit {
		return nil, broken("its answer is longer than %d bytes", x.web.limit)
	}
	return data, nil
}

// single takes a body that must be the answer.
func (x *exchange) single(data []byte) (*mcp.Message, error) {
	m, bad := mcp.ParseBackend(data)
	switch {
	case bad != nil:
		return nil, broken("its answer is not valid: %s", bad.Message)
	case !x.isAnswer(m):
		return nil, broken("it answered with something else than the response to the request")
	}
	return m, nil
}

// isAnswer: an error without an id can only be about the one request that was
// sent.
func (x *exchange) isAnswer(m *mcp.Message) bool {
	return m.Kind() == mcp.Response && (m.ID == x.id || m.ID.IsZero())
}

// failure reads a response with an HTTP error. A JSON-RPC error in it is the
// server's own and an answer, unless the status is about the way there.
func (x *exchange) failure(resp *http.Response, body io.Reader) (*mcp.Message, error) {
	e := x.web.httpError(resp.StatusCode, "")
	switch {
	case resp.StatusCode == http.StatusNotFound && x.session != nil && x.session.id != "":
		return nil, errStale
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		e.detail = "it turns the gateway's credentials away"
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		e.detail = "redirects are not followed; set the url to where it leads: " + target(resp)
	case !e.saysNothing() && mediaType(resp) == "application/json":
		x.refused = resp.StatusCode == http.StatusBadRequest
		data, err := x.whole(body)
		if err != nil {
			return nil, err
		}
		if m, err := x.single(data); err == nil && m.Error != nil {
			return m, nil
		}
	default:
		x.refused = resp.StatusCode == http.StatusBadRequest
	}
	return nil, e.fault()
}

// target names where a redirect leads, without a query.
func target(resp *http.Response) string {
	u, err := resp.Location()
	if err != nil {
		return "nowhere"
	}
	return escape([]byte((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()))
}

// stream reads events until the answer, over as many connections as a legacy
// server cuts the stream into.
func (x *exchange) stream(ctx context.Context, body io.Reader) (*mcp.Message, error) {
	var from resumption
	var again *http.Response
	defer func() { closeBody(again) }()
	for {
		events := mcp.NewEventReader(body, x.web.limit)
		m, err := x.events(ctx, events)
		if m != nil || !x.resumable(err) {
			return m, err
		}
		if !from.advance(events) {
			return nil, broken("its stream ended without an answer")
		}
		closeBody(again)
		if again, err = x.session.resume(ctx, &from); err != nil {
			return nil, err
		}
		if body, err = decoded(again); err != nil {
			return nil, err
		}
	}
}

func closeBody(resp *http.Response) {
	if resp != nil {
		resp.Body.Close()
	}
}

// errEnd: the stream ended before the answer came.
var errEnd = errors.New("its stream ended without an answer")

func (x *exchange) resumable(err error) bool { return x.session != nil && errors.Is(err, errEnd) }

// events reads one stream. Exactly one of its results is nil.
func (x *exchange) events(ctx context.Context, events *mcp.EventReader) (*mcp.Message, error) {
	for {
		e, err := events.Next()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, mcp.ErrEventTooLarge):
			return nil, broken("an event of its answer is longer than %d bytes", x.web.limit)
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, &fault{kind: Broken, err: errEnd}
		case err != nil:
			return nil, broken("%w: %w", errEnd, bare(err))
		case len(e.Data) == 0 || e.Name != "" && e.Name != "message":
			continue
		}
		if m, err := x.event(ctx, e.Data); m != nil || err != nil {
			return m, err
		}
	}
}

// event takes the data of one event. Both results are nil for all but the
// answer.
func (x *exchange) event(ctx context.Context, data []byte) (*mcp.Message, error) {
	m, bad := mcp.ParseBackend(data)
	if bad != nil {
		x.web.noise.report("sent what is no message", data)
		if id, ok := mcp.ReadID(looseID(data)); ok && id == x.id {
			return nil, broken("its answer is not valid: %s", bad.Message)
		}
		return nil, nil
	}
	switch m.Kind() {
	case mcp.Response:
		if x.isAnswer(m) {
			return m, nil
		}
		x.web.noise.report("answered a request that is not under way", nil)
	case mcp.Request:
		if x.session == nil {
			x.web.noise.report("made a request, which its era does not know", nil)
			break
		}
		if answer := x.session.party.take(m, x.request.turn, x.session.answer); answer != nil {
			x.session.answer(answer)
		}
	case mcp.Notification:
		x.note(m)
	}
	return nil, nil
}

// note hands a notification on to whom it is for.
func (x *exchange) note(m *mcp.Message) {
	if m.Method == progress {
		x.progress(m)
		return
	}
	switch {
	case x.session != nil:
		x.session.party.hear(m, x.belongs())
	case x.request.method == listen && x.request.notify != nil:
		x.request.notify(m)
	default:
		x.stray(m)
	}
}

// belongs is who hears of what belongs to the request; nil is the session's
// peer, where there is no client's call.
func (x *exchange) belongs() func(*mcp.Message) {
	if x.request.notify == nil && x.request.turn == nil {
		return nil
	}
	return x.tell
}

// progress hands on what a notification says of a request. There are servers
// that say it on the session's own stream.
func (x *exchange) progress(m *mcp.Message) {
	if x.session != nil && x.id.IsZero() {
		if x = x.session.exchangeOf(progressOf(m)); x == nil {
			return
		}
	}
	if m = restore(m, x.id, x.token); m != nil {
		x.tell(m)
	}
}

// tell tells whoever made the request, unless that has been answered.
func (x *exchange) tell(m *mcp.Message) {
	x.telling.Lock()
	defer x.telling.Unlock()
	if x.request.notify != nil && !x.over {
		x.request.notify(m)
	}
}

func (x *exchange) end() {
	x.telling.Lock()
	defer x.telling.Unlock()
	x.over = true
}

// stray takes what a modern server says beside the answer to a request.
func (x *exchange) stray(m *mcp.Message) {
	switch m.Method {
	case toolsChanged, promptsChanged, resourcesChanged:
		said := m.Method
		if x.request.peer != nil {
			said = "" // the gateway's own conversation says so, too
		}
		x.web.changed(said)
	case cancelled, acknowledged:
	case updated, elicited, taskStatus:
		if x.request.peer != nil {
			x.request.peer.Notify(x.web.name, m)
		}
	default:
		x.tell(m)
	}
}
