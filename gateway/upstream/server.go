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
	// dial makes a link that is ready for requests. The error's kind tells
	// what went wrong.
	dial(ctx context.Context) (link, error)
	// key names the link that a principal's requests go over.
	key(principal string) string
	// forget drops what was found out of the server, which may have changed.
	forget()
	// close releases what the links have left behind. They are all closed.
	close()
}

// discovery is the key of the link that the gateway uses for itself. No
// principal has it.
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
	options   Options

	kick    chan struct{} // holds one: look again soon
	view    atomic.Pointer[Server]
	publish func(changed bool) // there is a new view

	// Of the goroutine that discovers:
	retry, empty backoff
	empties      [lists]int      // empty lists in a row that were not believed
	said         map[string]bool // complaints of the last look, each logged once
}

func newServer(name string, c Config, o Options, life context.Context, starter *starter, publish func(changed bool)) (*server, error) {
	c = c.withDefaults()
	s := &server{
		name: name, config: c, log: o.Log, options: o, publish: publish,
		slots: make(chan struct{}, c.MaxConcurrent),
		kick:  make(chan struct{}, 1),
		retry: backoff{least: o.RetryMin, most: o.RetryMax},
		empty: backoff{least: 2 * o.RetryMin, most: o.Refresh},
	}
	s.breaker.wait = backoff{least: o.RetryMin, most: o.RetryMax}
	s.view.Store(&Server{Name: name, Problem: "not reached yet"})
	if c.Command != "" {
		s.transport = newStdio(name, c, o, starter, s.look)
	} else {
		w, err := newWeb(name, c, o, s.look)
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

func (s *server) close() {
	s.links.close()
	s.transport.close()
}

// do sends one request, over a new link if the one there has gone stale.
func (s *server) do(ctx context.Context, call Call) (*mcp.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.CallTimeout)
	defer cancel()
	m, err := s.admit(ctx, call)
	switch {
	case err == nil:
		recovered := s.breaker.worked()
		// It may have changed which arguments it wants as headers.
		outdated := m.Error != nil && readError(m.Error).Code == mcp.CodeHeaderMismatch
		if recovered || outdated {
			s.look()
		}
		return m, nil
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
	return nil, &Error{Kind: kindOf(err), Server: s.name, Err: err}
}

func (s *server) admit(ctx context.Context, call Call) (*mcp.Message, error) {
	if !s.breaker.allow(time.Now()) {
		return nil, busy("it could not be reached several times in a row and is tried again soon")
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return nil, busy("all of its %d places for requests were taken", cap(s.slots))
	}
	r := request{method: call.Method, params: call.Params, notify: call.Notify}
	if call.Method == mcp.MethodToolsCall {
		r.tool = s.view.Load().Tool(toolName(call))
	}
	return s.send(ctx, s.transport.key(call.Peer.Key()), r)
}

func toolName(call Call) string {
	members, err := mcp.Split(call.Params)
	if err != nil {
		return ""
	}
	name, _ := mcp.Text(mcp.Get(members, "name"))
	return name
}

func (s *server) send(ctx context.Context, key string, r request) (*mcp.Message, error) {
	m, err := s.once(ctx, key, r)
	if errors.Is(err, errStale) {
		// The request was not carried out, so it is not carried out twice.
		m, err = s.once(ctx, key, r)
	}
	if errors.Is(err, errStale) {
		return nil, unavailable("a new session was gone at once")
	}
	return m, err
}

func (s *server) once(ctx context.Context, key string, r request) (*mcp.Message, error) {
	e, err := s.links.take(ctx, key)
	if err != nil {
		return nil, err
	}
	defer s.links.give(e)
	m, err := e.link.call(ctx, r)
	switch {
	case err == nil:
		s.links.worked(key)
	case errors.Is(err, errStale):
		s.links.drop(e)
		s.look() // the server has been restarted, perhaps with other tools
	}
	return m, err
}
