package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// transport is a way to reach one server. It is safe for concurrent use.
type transport interface {
	// dial makes a link for peer that is ready for requests. The error's kind
	// tells what went wrong.
	dial(ctx context.Context, peer Peer) (link, error)
	// key names the link that the requests of a peer's key go over.
	key(peer string) string
	// ready returns when a request on behalf of the subject can go out with what
	// proves it. The error is that of the request.
	ready(ctx context.Context, as Subject) error
	// forget drops what was found out of the server, which may have changed.
	forget()
	// close releases what the links have left behind. They are all closed.
	close()
}

// discovery is the key of the link that the gateway uses for itself. No peer
// has it.
const discovery = "\x00discovery"

// server is one configured server at work.
type server struct {
	name      string
	config    Config
	log       *slog.Logger
	transport transport
	links     *links
	breaker   breaker
	slots     chan struct{} // one for each request under way
	subs      *subscriptions
	crowd     *crowd // for whom the links are that belong to no peer alone
	options   Options

	kick      chan struct{} // holds one: look again soon
	announced [lists]atomic.Uint64
	view      atomic.Pointer[Server]
	publish   func(changed bool) // there is a new view

	// Of the goroutine that discovers:
	retry, empty backoff
	empties      [lists]int      // empty lists in a row that were not believed
	said         map[string]bool // complaints of the last look, each logged once
}

func newServer(name string, c Config, o Options, life context.Context, starter *starter, quota *quota, publish func(changed bool)) (*server, error) {
	c = c.withDefaults()
	s := &server{
		name: name, config: c, log: o.Log, options: o, publish: publish,
		slots: make(chan struct{}, c.MaxConcurrent),
		kick:  make(chan struct{}, 1),
		retry: backoff{least: o.RetryMin, most: o.RetryMax},
		empty: backoff{least: 2 * o.RetryMin, most: o.Refresh},
	}
	s.subs = &subscriptions{server: s, quota: quota, life: life, of: map[string]*subscriber{}}
	s.crowd = &crowd{s.subs}
	s.breaker.wait = backoff{least: o.RetryMin, most: o.RetryMax}
	s.view.Store(&Server{Name: name, Problem: "not reached yet"})
	if c.Command != "" {
		s.transport = newStdio(name, c, o, starter, s.heard)
	} else {
		w, err := newWeb(name, c, o, s.heard)
		if err != nil {
			return nil, err
		}
		s.transport = w
	}
	s.links = &links{
		dial: s.transport.dial, limit: c.MaxSessions, idle: c.IdleTimeout, connect: c.ConnectTimeout, life: life,
		restart: func() backoff { return backoff{least: o.RetryMin, most: o.RetryMax} },
		entries: map[string]*entry{}, deaths: map[string]*deaths{},
	}
	return s, nil
}

// look asks for the lists to be read again soon.
func (s *server) look() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// heard takes note of the server saying that a list changed. said is its
// notification, or "" where it says so to others or does not say.
func (s *server) heard(said string) {
	switch said {
	case toolsChanged:
		s.announced[tools].Add(1)
	case promptsChanged:
		s.announced[prompts].Add(1)
	case resourcesChanged:
		s.announced[resources].Add(1)
		s.announced[templates].Add(1)
	}
	s.look()
}

func (s *server) close() {
	s.subs.wg.Wait()
	s.links.close()
	s.transport.close()
}

// do makes one call, over a new link if the one there has gone stale.
func (s *server) do(ctx context.Context, call Call) (*mcp.Message, error) {
	r := request{
		method: call.Method, params: call.Params, notify: call.Notify,
		peer: call.Peer, as: call.Subject, level: call.LogLevel, turn: &turn{ask: call.Ask},
	}
	if call.Method == mcp.MethodToolsCall {
		r.tool = s.view.Load().Tool(toolName(call))
	}
	ctx, r.turn.clock = newClock(ctx, s.config.CallTimeout)
	defer r.turn.clock.stop()
	r.turn.ctx = ctx
	m, err := s.admit(ctx, r)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	recovered := s.breaker.worked()
	// It may have changed which arguments it wants as headers.
	outdated := m.Error != nil && m.Err().Code == mcp.CodeHeaderMismatch
	if recovered || outdated {
		s.look()
	}
	return m, nil
}

// failure takes note of why a request came to nothing, and returns that as an
// *Error.
func (s *server) failure(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && expired(ctx) {
		err = context.DeadlineExceeded
	}
	switch {
	case kindOf(err) == Unavailable && !errors.Is(err, errBusy):
		s.breaker.failed(time.Now())
		fallthrough
	case kindOf(err) == Broken:
		if s.view.Load().Up {
			s.look()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	return &Error{Kind: kindOf(err), Server: s.name, Err: err}
}

func (s *server) admit(ctx context.Context, r request) (*mcp.Message, error) {
	if !s.breaker.allow(time.Now()) {
		return nil, busy("it could not be reached several times in a row and is tried again soon")
	}
	// Who waits for a token takes no place from who has one.
	if err := s.transport.ready(ctx, r.as); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.send(ctx, r)
}

// enter waits for one of the places for requests, which leave gives back.
func (s *server) enter(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		if !expired(ctx) {
			return ctx.Err()
		}
		return busy("all of its %d places for requests were taken", cap(s.slots))
	}
}

func (s *server) leave() { <-s.slots }

func toolName(call Call) string {
	members, err := mcp.Split(call.Params)
	if err != nil {
		return ""
	}
	name, _ := mcp.Text(mcp.Get(members, "name"))
	return name
}

func (s *server) send(ctx context.Context, r request) (*mcp.Message, error) {
	m, err := s.once(ctx, r)
	if errors.Is(err, errStale) {
		// The request was not carried out, so it is not carried out twice.
		m, err = s.once(ctx, r)
	}
	if errors.Is(err, errStale) {
		return nil, unavailable("a new session was gone at once")
	}
	return m, err
}

// take takes the link for what a peer wants of the server.
func (s *server) take(ctx context.Context, peer Peer) (*entry, error) {
	key := s.transport.key(peer.Key())
	if key == "" {
		peer = s.crowd
	}
	return s.links.take(ctx, key, peer)
}

func (s *server) once(ctx context.Context, r request) (*mcp.Message, error) {
	e, err := s.take(ctx, r.peer)
	if err != nil {
		return nil, err
	}
	defer s.links.give(e)
	return s.over(ctx, e, r)
}

// over sends a request over a link, and drops that if it has gone stale.
func (s *server) over(ctx context.Context, e *entry, r request) (*mcp.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	err := s.prepare(ctx, e, r.level)
	var m *mcp.Message
	if err == nil {
		m, err = e.link.call(ctx, r)
	}
	switch {
	case err == nil:
		s.links.worked(e.key)
	case errors.Is(err, errStale):
		s.links.drop(e)
		s.look() // the server has been restarted, perhaps with other tools
	case errors.Is(err, errLost):
		s.links.drop(e)
	}
	return m, err
}
