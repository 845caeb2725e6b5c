package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
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

	party    *party
	attended func()        // closes heard; may be called again
	heard    chan struct{} // closed when its own stream is open, or cannot be

	mu     sync.Mutex
	before chan struct{} // closed when what was told last has been sent
	queue  int           // of what is told
	under  map[mcp.ID]*exchange
}

// initialize begins a session for a peer.
func (w *web) initialize(ctx context.Context, peer Peer) (*session, error) {
	s := &session{web: w, told: legacyLeg(), party: w.party(peer), heard: make(chan struct{})}
	s.attended = sync.OnceFunc(func() { close(s.heard) })
	if err := s.begin(ctx); err != nil {
		w.aside(ctx, func(context.Context) { s.close() }) // it may have begun at the server
		return nil, err
	}
	return s, nil
}

func (s *session) begin(ctx context.Context) error {
	m, header, err := s.exchange(ctx, initializeRequest(s.web.me, s.party.peer))
	if err != nil {
		return err
	}
	if s.told, err = initialized(m); err != nil {
		return err
	}
	s.id = header.Get(headerSession)
	if strings.ContainsFunc(s.id, func(r rune) bool { return r < '!' || r > '~' }) {
		return broken("its session id holds more than visible ASCII characters")
	}
	resp, err := s.web.post(ctx, s.party.subject(), s.header(), mcp.NewRequest(mcp.ID{}, greeted, nil))
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return s.web.httpError(resp.StatusCode, "in answer to "+greeted).fault()
	}
	return nil
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
	if r.method == subscribe || r.turn != nil && string(declared(s.party.peer, mcp.Legacy)) != "{}" {
		// What changes from now on, and what some servers ask during a call,
		// comes on the session's own stream, and is lost where there is none.
		const most = 2 * time.Second
		within(s.heard, most)
		s.attended()
	}
	m, _, err := s.exchange(ctx, r)
	return m, err
}

// exchange sends one request and returns its answer with the headers that it
// came with.
func (s *session) exchange(ctx context.Context, r request) (*mcp.Message, http.Header, error) {
	id := mcp.NumberID(s.next.Add(1))
	params, token, err := outbound(r, s.told, s.web.me, id)
	if err != nil {
		return nil, nil, err
	}
	header := s.header()
	if r.method == mcp.MethodInitialize {
		header = http.Header{} // no version is negotiated yet
	}
	live, cancel := context.WithCancel(ctx)
	x := &exchange{web: s.web, id: id, token: token, request: r, cancel: cancel, session: s}
	if token != nil {
		s.enter(x)
		defer s.leave(x)
	}
	as := s.party.speaks(r.turn, r.as)
	resp, err := s.web.post(live, as, header, mcp.NewRequest(id, r.method, params))
	if err != nil {
		cancel()
		s.abandon(ctx, as, r.method, id)
		return nil, nil, err
	}
	m, err := x.answer(live, resp)
	if ctx.Err() != nil && err != nil {
		s.abandon(ctx, as, r.method, id)
		return nil, nil, ctx.Err()
	}
	switch {
	case s.id == "":
	case x.refused && !s.lives(ctx, as):
		return nil, nil, errStale
	case turnedAway(err) && !s.pings(ctx, as):
		// Some servers say so of a session that they have forgotten.
		return nil, nil, fmt.Errorf("%w: %w", err, errLost)
	}
	return m, resp.Header, err
}

// enter has progress of the request find it; leave ends that.
func (s *session) enter(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under == nil {
		s.under = map[mcp.ID]*exchange{}
	}
	s.under[x.id] = x
}

func (s *session) leave(x *exchange) {
	s.mu.Lock()
	delete(s.under, x.id)
	s.mu.Unlock()
	x.end()
}

// exchangeOf returns the request under way that has the id and wants to hear of
// its progress, or nil.
func (s *session) exchangeOf(id mcp.ID) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under[id]
}

// turnedAway reports whether a server answered as it would to anybody whom it
// does not want to, or cannot, serve.
func turnedAway(err error) bool {
	var e *httpError
	if !errors.As(err, &e) {
		return false
	}
	return e.status == http.StatusUnauthorized || e.status == http.StatusForbidden || e.status == http.StatusServiceUnavailable
}

// pings reports whether the server answers a ping in the session.
func (s *session) pings(ctx context.Context, as Subject) bool {
	resp, err := s.ping(ctx, as)
	return err == nil && resp >= 200 && resp <= 299
}

// ping returns the HTTP status that a ping in the session is answered with.
func (s *session) ping(ctx context.Context, as Subject) (status int, err error) {
	resp, err := s.web.post(ctx, as, s.header(), mcp.NewRequest(mcp.NumberID(s.next.Add(1)), "ping", nil))
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// lives finds out whether the server still knows the session after it has
// refused a request with HTTP status 400. Some servers say so instead of 404.
func (s *session) lives(ctx context.Context, as Subject) bool {
	status, err := s.ping(ctx, as)
	return err != nil || status != http.StatusBadRequest && status != http.StatusNotFound
}

// abandon tells the server that nobody waits for a request any more, if that
// is why it ended: in this era a closed connection does not say so.
func (s *session) abandon(ctx context.Context, as Subject, method string, id mcp.ID) {
	if ctx.Err() == nil || method == mcp.MethodInitialize {
		return
	}
	m := mcp.NewRequest(mcp.ID{}, cancelled, cancelParams(id, ctx))
	s.web.aside(ctx, func(ctx context.Context) { s.send(ctx, as, m) })
}

// send sends a message that has no answer.
func (s *session) send(ctx context.Context, as Subject, m *mcp.Message) {
	if resp, err := s.web.post(ctx, as, s.header(), m); err == nil {
		resp.Body.Close()
	}
}

// answer answers a request of the server.
func (s *session) answer(m *mcp.Message) {
	const most = 5 * time.Second
	ctx, cancel := context.WithTimeout(s.party.life, most)
	defer cancel()
	s.send(ctx, s.party.subject(), m)
}

// toldMost bounds what waits to be told to a server.
const toldMost = 64

// tell sends one message after the other, each on a connection of its own.
func (s *session) tell(m *mcp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == toldMost {
		s.web.noise.report("does not take what it is sent; a message was left out", nil)
		return
	}
	before, done := s.before, make(chan struct{})
	s.before = done
	s.queue++
	s.web.aside(context.Background(), func(ctx context.Context) {
		defer func() {
			s.mu.Lock()
			s.queue--
			s.mu.Unlock()
			close(done)
		}()
		if before != nil {
			<-before
		}
		s.send(ctx, s.party.subject(), m)
	})
}

func (s *session) describe(context.Context) (*hello, error) { return s.told, nil }

func (s *session) hello() *hello { return s.told }

func (s *session) ended() <-chan struct{} { return nil }

// close tells the server that the session is over. Many do not want to know.
func (s *session) close() {
	s.party.close()
	if s.id == "" {
		return
	}
	const most = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if resp, err := s.web.do(ctx, s.party.subject(), http.MethodDelete, s.web.url, s.header(), nil); err == nil {
		resp.Body.Close()
	}
}
