package upstream

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// session is the link to a legacy HTTP server.
type session struct {
	web  *web
	id   string // "" for a server that keeps none
	told *hello
	next atomic.Int64
}

// initialize begins a session.
func (w *web) initialize(ctx context.Context) (*session, error) {
	s := &session{web: w, told: legacyLeg()}
	m, header, err := s.exchange(ctx, initializeRequest(w.me))
	if err != nil {
		return nil, err
	}
	if s.told, err = initialized(m); err != nil {
		return nil, err
	}
	s.id = header.Get(headerSession)
	if strings.ContainsFunc(s.id, func(r rune) bool { return r < '!' || r > '~' }) {
		return nil, broken("its session id holds more than visible ASCII characters")
	}
	resp, err := w.post(ctx, s.header(), mcp.NewRequest(mcp.ID{}, greeted, nil))
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, (&httpError{status: resp.StatusCode, detail: "in answer to " + greeted}).fault()
	}
	return s, nil
}

// header returns what every request of the session carries.
func (s *session) header() http.Header {
	h := http.Header{}
	h.Set(mcp.HeaderVersion, s.told.version)
	if s.id != "" {
		h.Set(headerSession, s.id)
	}
	return h
}

func (s *session) call(ctx context.Context, r request) (*mcp.Message, error) {
	m, _, err := s.exchange(ctx, r)
	return m, err
}

// exchange sends one request and returns its answer with the headers that it
// came with.
func (s *session) exchange(ctx context.Context, r request) (*mcp.Message, http.Header, error) {
	id := mcp.NumberID(s.next.Add(1))
	params, token, err := outbound(r.params, s.told, s.web.me, id)
	if err != nil {
		return nil, nil, err
	}
	header := s.header()
	if r.method == mcp.MethodInitialize {
		header = http.Header{} // no version is negotiated yet
	}
	live, cancel := context.WithCancel(ctx)
	x := &exchange{web: s.web, id: id, token: token, notify: r.notify, cancel: cancel, session: s}
	resp, err := s.web.post(live, header, mcp.NewRequest(id, r.method, params))
	if err != nil {
		cancel()
		s.abandon(ctx, r.method, id)
		return nil, nil, err
	}
	m, err := x.answer(live, resp)
	if ctx.Err() != nil && err != nil {
		s.abandon(ctx, r.method, id)
		return nil, nil, ctx.Err()
	}
	if x.refused && s.id != "" && !s.lives(ctx) {
		return nil, nil, errStale
	}
	return m, resp.Header, err
}

// lives finds out whether the server still knows the session after it has
// refused a request with HTTP status 400. Some servers say so instead of 404.
func (s *session) lives(ctx context.Context) bool {
	m := mcp.NewRequest(mcp.NumberID(s.next.Add(1)), "ping", nil)
	resp, err := s.web.post(ctx, s.header(), m)
	if err != nil {
		return true
	}
	resp.Body.Close()
	return resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusNotFound
}

// abandon tells the server that nobody waits for a request any more, if that
// is why it ended: in this era a closed connection does not say so.
func (s *session) abandon(ctx context.Context, method string, id mcp.ID) {
	if ctx.Err() == nil || method == mcp.MethodInitialize {
		return
	}
	m := mcp.NewRequest(mcp.ID{}, cancelled, cancelParams(id, ctx))
	s.web.aside(ctx, func(ctx context.Context) { s.tell(ctx, m) })
}

// tell sends a message that has no answer.
func (s *session) tell(ctx context.Context, m *mcp.Message) {
	if resp, err := s.web.post(ctx, s.header(), m); err == nil {
		resp.Body.Close()
	}
}

// answer answers a request of the server.
func (s *session) answer(ctx context.Context, m *mcp.Message) {
	const most = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	s.tell(ctx, reply(m))
}

// resumption is where a stream that was cut off goes on.
type resumption struct {
	last      string // id of the last event
	wait      time.Duration
	fruitless int
}

// fruitlessMost is how many times in a row a stream may be resumed without a
// single new event.
const fruitlessMost = 5

// advance takes note of how far a stream came. False means that it cannot be
// resumed.
func (r *resumption) advance(events *mcp.EventReader) bool {
	if id := events.LastID(); id != "" && id != r.last {
		r.last, r.fruitless = id, 0
	} else {
		r.fruitless++
	}
	if wait := events.Retry(); wait > 0 {
		r.wait = wait
	}
	return r.last != "" && r.fruitless < fruitlessMost
}

// resume opens the stream again after the time that the server asked for.
func (s *session) resume(ctx context.Context, from *resumption) (*http.Response, error) {
	wait := max(from.wait, 50*time.Millisecond)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.open(ctx, from.last)
}

// open opens a stream by GET: the session's own, or one to be resumed.
func (s *session) open(ctx context.Context, last string) (*http.Response, error) {
	header := s.header()
	header.Set("Accept", "text/event-stream")
	if last != "" {
		header.Set("Last-Event-Id", last)
	}
	resp, err := s.web.do(ctx, http.MethodGet, s.web.url, header, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || mediaType(resp) != "text/event-stream" {
		resp.Body.Close()
		return nil, broken("open a stream: %w", &httpError{status: resp.StatusCode})
	}
	return resp, nil
}

func (s *session) describe(context.Context) (*hello, error) { return s.told, nil }

// watch reads the session's own stream, on which a server says what belongs to
// no request.
func (s *session) watch(ctx context.Context) {
	keepWatch(ctx, func() error {
		resp, err := s.open(ctx, "")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := decoded(resp)
		if err != nil {
			return err
		}
		x := &exchange{web: s.web, session: s}
		_, err = x.events(ctx, mcp.NewEventReader(body, s.web.limit))
		return err
	})
}

func (s *session) ended() <-chan struct{} { return nil }

// close tells the server that the session is over. Many do not want to know.
func (s *session) close() {
	if s.id == "" {
		return
	}
	const most = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if resp, err := s.web.do(ctx, http.MethodDelete, s.web.url, s.header(), nil); err == nil {
		resp.Body.Close()
	}
}

// errUnwatched: the server does not tell of changes.
var errUnwatched = errors.New("it does not tell of changes")

// keepWatch keeps a stream of changes open until ctx ends, or the server turns
// it down.
func keepWatch(ctx context.Context, open func() error) {
	wait := backoff{least: time.Second, most: time.Minute}
	for {
		began := time.Now()
		err := open()
		var status *httpError
		switch {
		case ctx.Err() != nil, errors.Is(err, errUnwatched), errors.Is(err, errStale):
			return
		case errors.As(err, &status) && !status.saysNothing():
			return
		case time.Since(began) > time.Minute:
			wait.reset()
		}
		if within(ctx.Done(), wait.next()) {
			return
		}
	}
}
