// Package upstream is the backend leg: it reaches the MCP servers behind the
// gateway, over HTTP and stdio and in both eras of the protocol,
// keeps what they list, and sends them the requests that were judged.
// It judges nothing itself.
package upstream

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Options are what all servers of a pool have in common. Zero values mean the
// defaults.
type Options struct {
	Log *slog.Logger // nil discards

	// Name and Version are how the gateway introduces itself to servers:
	// regogate, dev.
	Name, Version string

	// Refresh is how often lists are read again, give or take a tenth: 1m.
	Refresh time.Duration
	// RetryMin and RetryMax bound the growing time between attempts to reach
	// a server that is down: 500ms, 30s. A list that cannot be read or
	// believed, and one of tools that is empty, is asked for again after twice
	// RetryMin at first, Refresh at last, and a server that says that a list
	// changed is looked at no more often than that.
	RetryMin, RetryMax time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	fallback(&o.Name, "regogate")
	fallback(&o.Version, "dev")
	fallback(&o.Refresh, time.Minute)
	fallback(&o.RetryMin, 500*time.Millisecond)
	fallback(&o.RetryMax, 30*time.Second)
	return o
}

func (o Options) clientInfo() jsontext.Value {
	out := mcp.AppendString([]byte(`{"name":`), o.Name)
	return append(mcp.AppendString(append(out, `,"version":`...), o.Version), '}')
}

// Pool is all servers. Its methods may be called concurrently.
type Pool struct {
	servers map[string]*server
	names   []string // sorted
	life    context.Context
	end     context.CancelFunc
	beside  sync.WaitGroup // the starter

	state   atomic.Pointer[State]
	changed chan struct{}
	settled chan struct{}

	mu     sync.Mutex // serialises publishing, guards closed
	closed bool
	busy   sync.WaitGroup // requests under way and Run

	closing sync.Once
}

// New returns a pool of the servers, by name. It reaches none of them yet. The
// error is that of strictyaml.Err: every problem of every configuration, with
// a path that begins with servers. The pool must be closed.
func New(servers map[string]Config, o Options) (*Pool, error) {
	if problems := Validate("servers", servers); len(problems) > 0 {
		return nil, strictyaml.Err(problems)
	}
	o = o.withDefaults()
	p := &Pool{
		servers: map[string]*server{},
		names:   slices.Sorted(maps.Keys(servers)),
		changed: make(chan struct{}, 1),
		settled: make(chan struct{}),
	}
	p.life, p.end = context.WithCancel(context.Background())
	starter := newStarter(p.life.Done(), p.beside.Go)
	quota := &quota{of: map[string]int{}}
	for _, name := range p.names {
		s, err := newServer(name, servers[name], o, p.life, starter, quota, p.publish)
		if err != nil {
			p.Close()
			return nil, &Error{Kind: Broken, Server: name, Err: err}
		}
		p.servers[name] = s
	}
	p.publish(false)
	return p, nil
}

// Validate returns everything that is wrong with the configurations of
// servers; path is where they stand.
func Validate(path string, servers map[string]Config) (problems []strictyaml.Problem) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		at := strictyaml.Field(path, name)
		if !registry.ValidServer(name) {
			problems = append(problems, strictyaml.Problem{Path: at, Message: registry.ServerRule})
		}
		problems = append(problems, servers[name].Validate(at)...)
	}
	return problems
}

// Run keeps the state up to date until ctx ends or the pool is closed: all
// servers at once, each for itself. It is called once and returns nil.
func (p *Pool) Run(ctx context.Context) error {
	if !p.enter() {
		return nil
	}
	defer p.busy.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	var running, looking sync.WaitGroup
	looking.Add(len(p.servers))
	for _, s := range p.servers {
		running.Go(func() {
			settled := sync.OnceFunc(looking.Done)
			defer settled()
			s.run(ctx, settled)
		})
	}
	looking.Wait()
	close(p.settled)
	running.Wait()
	return nil
}

// Current returns the latest state. It is never nil: before a server was first
// reached it is listed as down, without anything.
func (p *Pool) Current() *State { return p.state.Load() }

// Changed is a hint channel for one reader: a value means that Current may
// return something else than before. It is never closed.
func (p *Pool) Changed() <-chan struct{} { return p.changed }

// Loads returns how busy each server is now, sorted by name.
func (p *Pool) Loads() []Load {
	list := make([]Load, 0, len(p.names))
	for _, name := range p.names {
		s := p.servers[name]
		list = append(list, Load{Server: name, Resting: s.breaker.open(), InFlight: len(s.slots)})
	}
	return list
}

// Settled is closed when every server has been looked at once, for better or
// worse: from then on an unknown tool is unknown, and not just early.
func (p *Pool) Settled() <-chan struct{} { return p.settled }

// publish makes a new state of the servers' views. changed says that it tells
// something new.
func (p *Pool) publish(changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := &State{Servers: make([]Server, 0, len(p.names))}
	for _, name := range p.names {
		state.Servers = append(state.Servers, *p.servers[name].view.Load())
	}
	p.state.Store(state)
	if !changed {
		return
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Do sends a request to its server and waits for the answer: the server's own
// JSON-RPC response, result or error, whose id is of no meaning. The message is
// the caller's; its result is as the server sent it, byte for byte, whichever
// era that is in.
//
// Otherwise the error is an *Error. When ctx ends, or the server's
// CallTimeout, the server is told to stop; so it is when the peer's key is
// released, which is a call Canceled. CallTimeout does not run while call.Ask
// does, save that a call takes no more than ten times as long in all. A request
// that may have been carried out is never sent again.
func (p *Pool) Do(ctx context.Context, call Call) (m *mcp.Message, err error) {
	err = p.with(ctx, call.Server, func(ctx context.Context, s *server) error {
		m, err = s.do(ctx, call)
		return err
	})
	return m, err
}

// Subscribe has the server tell of every change of the resource uri: from then
// on until Unsubscribe or Release, peer's Notify gets its
// notifications/resources/updated, also over a new conversation when the one
// there was is lost. The message is the server's answer, a result or an error;
// an error subscribes to nothing, and so does an *Error, as in Do. A key has no
// more than 256 subscriptions: one more is answered with an error.
func (p *Pool) Subscribe(ctx context.Context, name string, peer Peer, uri string) (m *mcp.Message, err error) {
	err = p.with(ctx, name, func(ctx context.Context, s *server) error {
		m, err = s.subs.subscribe(ctx, peer, uri)
		return err
	})
	return m, err
}

// Unsubscribe ends what Subscribe began; where there is nothing to end it does
// nothing. The error, an *Error, says that the server could not be told so;
// the subscription has ended nevertheless.
func (p *Pool) Unsubscribe(ctx context.Context, name string, peer Peer, uri string) error {
	return p.with(ctx, name, func(ctx context.Context, s *server) error {
		return s.subs.unsubscribe(ctx, peer.Key(), uri)
	})
}

// with runs f on a server, which must be configured, while the pool is open.
func (p *Pool) with(ctx context.Context, name string, f func(context.Context, *server) error) error {
	s := p.servers[name]
	if s == nil {
		return &Error{Unavailable, name, unavailable("no server of this name is configured")}
	}
	if !p.enter() {
		return &Error{Unavailable, name, errClosed}
	}
	defer p.busy.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	err := f(ctx, s)
	if err != nil && p.life.Err() != nil {
		return &Error{Unavailable, name, errClosed}
	}
	return err
}

// Tell sends a notification to the server over the open conversation of the
// key, if there is one and its era knows notifications of clients; "" is every
// server. It does not wait.
func (p *Pool) Tell(server, key string, m *mcp.Message) {
	p.talks(key, func(name string, l link) {
		if server == "" || server == name {
			l.tell(m)
		}
	})
}

// Open returns the servers with an open conversation of the key, sorted.
func (p *Pool) Open(key string) (names []string) {
	p.talks(key, func(name string, _ link) { names = append(names, name) })
	return names
}

// talks calls f with every open conversation of the key, sorted by the names of
// servers.
func (p *Pool) talks(key string, f func(name string, l link)) {
	if !p.enter() {
		return
	}
	defer p.busy.Done()
	for _, name := range p.names {
		s := p.servers[name]
		if s.transport.key(key) != key {
			continue
		}
		if e := s.links.open(key); e != nil {
			f(name, e.link)
			s.links.give(e)
		}
	}
}

// Release ends all conversations and subscriptions of the key, and what is
// under way over them, and waits for none of it.
func (p *Pool) Release(key string) {
	if !p.enter() {
		return
	}
	defer p.busy.Done()
	for _, s := range p.servers {
		s.subs.release(key)
		s.links.release(key)
	}
}

func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.busy.Add(1)
	}
	return !p.closed
}

// Close ends what is under way, every session and every process with all that
// it started, and returns when nothing of it is left. It may be called more
// than once. The error is always nil.
func (p *Pool) Close() error {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.end()
		p.busy.Wait()
		var closing sync.WaitGroup
		for _, s := range p.servers {
			closing.Go(s.close)
		}
		closing.Wait()
		p.beside.Wait()
	})
	return nil
}
