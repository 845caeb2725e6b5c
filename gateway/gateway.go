// Package gateway is the front door: it takes MCP messages from agents, asks
// the policy about each, and forwards what may go through to one backend.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/limit"
	"github.com/regogate/regogate/gateway/meter"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/stream"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// Options is what the process that runs a gateway brings along.
type Options struct {
	Version   string
	Log       *slog.Logger
	Level     *slog.LevelVar       // of Log, for operators to change; nil where it stays
	Policies  fs.FS                // used when the configuration names no policy directory
	Catalogue fs.FS                // used when the configuration names no catalogue
	Records   decisionlog.Recorder // where decision records go
}

// Gateway serves one configuration. Make it with New, run it with Run.
type Gateway struct {
	config     Config
	version    string
	log        *slog.Logger
	level      *slog.LevelVar // nil where it does not change
	publicURL  string
	publicHost string
	proxies    []netip.Prefix

	verifier *auth.Verifier
	subjects *subjects
	engine   *policy.Engine
	keeper   *registry.Keeper
	pool     *upstream.Pool
	// exchanges: there are servers that are to see the user.
	exchanges bool
	records   decisionlog.Recorder
	meter     *meter.Meter

	catalog   atomic.Pointer[catalog]
	known     chan struct{} // closed when there is a first catalog
	changes   broadcast     // the catalog or the policy is another one
	sessions  session.Store
	shared    *session.Redis // sessions, where they are in Redis
	hub       *stream.Hub
	asked     asked
	running   running
	slots     slots
	limits    *limit.Limiter
	listeners slots // long streams
	seals     *seals

	mu    sync.Mutex
	talks map[string]*conversation // by session, those that are live here

	draining chan struct{}   // closed when the gateway stops taking requests
	closing  context.Context // ends when calls under way have to
	close    context.CancelFunc
}

// New wires a gateway and reads its catalogue and policy. The configuration must
// have passed Validate. No backend is reached before Run, which has to follow.
func New(ctx context.Context, c Config, o Options) (*Gateway, error) {
	g := &Gateway{
		config: c, version: o.Version, log: o.Log, level: o.Level, records: o.Records, meter: newMeter(),
		publicURL: strings.TrimRight(c.PublicURL, "/"),
		subjects:  newSubjects(),
		hub:       stream.New(stream.Config{}, time.Now),
		talks:     map[string]*conversation{},
		slots:     slots{max: c.Limits.Concurrent}, listeners: slots{max: c.Limits.Concurrent},
		draining: make(chan struct{}), known: make(chan struct{}),
	}
	if err := g.openSessions(); err != nil {
		return nil, fmt.Errorf("set up the sessions: %w", err)
	}
	g.closing, g.close = context.WithCancel(context.Background())
	if u, err := url.Parse(c.PublicURL); err == nil {
		g.publicHost = strings.ToLower(u.Hostname())
	}
	for _, p := range c.TrustedProxies {
		g.proxies = append(g.proxies, netip.MustParsePrefix(p))
	}
	var err error
	if g.verifier, err = auth.New(c.Auth, o.Log); err != nil {
		return nil, fmt.Errorf("set up authentication: %w", err)
	}
	if g.limits, err = limit.New(c.Limits.Rate, c.Sessions.Bytes(), time.Now, o.Log); err != nil {
		return nil, fmt.Errorf("set up the limits: %w", err)
	}
	c.Policy.FS, c.Policy.Version = o.Policies, o.Version
	if g.engine, err = policy.New(c.Policy, o.Log); err != nil {
		return nil, fmt.Errorf("set up the policy engine: %w", err)
	}
	g.attach()
	g.exchanges = c.exchanges()
	if g.pool, err = upstream.New(c.upstreams(), upstream.Options{Log: o.Log, Version: o.Version}); err != nil {
		return nil, fmt.Errorf("set up the backends: %w", err)
	}
	if g.keeper, err = registry.Open(ctx, c.Registry, o.Catalogue, o.Log); err != nil {
		return nil, fmt.Errorf("open the registry: %w", err)
	}
	return g, nil
}

// openSessions chooses where sessions live. What else replicas give clients to
// bring back is sealed with the key that they share.
func (g *Gateway) openSessions() error {
	c := g.config.Sessions
	ended := func(id string) { go g.endConversation(id) }
	if c.Redis == nil {
		g.sessions, g.seals = session.NewMemory(c, time.Now, ended), newSeals(nil)
		return nil
	}
	store, err := session.NewRedis(c, time.Now, ended, g.log)
	if err != nil {
		return err
	}
	g.sessions, g.shared, g.seals = store, store, newSeals(c.Bytes())
	return nil
}

func (g *Gateway) trusted(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, p := range g.proxies {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// Close ends a gateway that Run was never called on.
func (g *Gateway) Close() error {
	g.close()
	err := errors.Join(g.pool.Close(), g.keeper.Close(), g.limits.Close())
	if g.shared != nil {
		err = errors.Join(err, g.shared.Stop())
	}
	return err
}

// Run serves on the listener until the context ends, then drains: no new
// request is taken, streams end, calls under way get the configured time.
// Everything it started has ended when it returns. The error is nil after a
// drain.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	if strings.HasSuffix(g.publicURL, ":0") { // a free port, which is known by now
		g.publicURL = "http://" + l.Addr().String()
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, background := errgroup.WithContext(background)
	parts.Go(func() error { return g.verifier.Run(background) })
	parts.Go(func() error { return g.engine.Run(background) })
	parts.Go(func() error { return g.keeper.Run(background) })
	parts.Go(func() error { return g.pool.Run(background) })
	parts.Go(func() error { return g.refresh(background) })
	parts.Go(func() error { return g.tidy(background) })
	parts.Go(func() error { return g.serveAdmin(background) })

	server := &http.Server{
		Handler:           g.Handler(),
		ReadHeaderTimeout: g.config.Limits.ReadTimeout,
		// Of a body that nobody reads as well: the server reads it to its end
		// before it goes on, and would wait for a client that never sends it.
		ReadTimeout: g.config.Limits.ReadTimeout,
		// OPTIONS * goes the way of everything else.
		DisableGeneralOptionsHandler: true,
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               64 << 10,
		ErrorLog:                     slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-background.Done():
	case <-ctx.Done():
		err = g.drain(server)
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	_ = server.Close()
	g.flush()
	stop()
	if e := parts.Wait(); e != nil && !errors.Is(e, context.Canceled) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, g.Close())
}

// drain gives calls under way their time and then ends them.
func (g *Gateway) drain(server *http.Server) error {
	close(g.draining)
	g.log.Info("draining", "grace", g.config.Limits.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), g.config.Limits.Drain)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		g.log.Warn("calls under way were cut off", "grace", g.config.Limits.Drain)
		g.close()
		ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
		defer cancel()
		_ = server.Shutdown(ctx) // who does not take the answer either has had time
		return nil
	}
	return err
}

// lastAnswers is how long the calls that were cut off have to be answered.
const lastAnswers = time.Second

// settleWait is how long the first requests wait for backends to say what they
// offer, so that a tool is not unknown just because it is early (B046). A
// backend that takes longer is left behind and joins later.
const settleWait = 3 * time.Second

// refresh keeps the catalog the join of the registry and the backends, and
// tells the streams when what they may show could have changed.
func (g *Gateway) refresh(ctx context.Context) error {
	select {
	case <-g.pool.Settled():
	case <-time.After(settleWait):
	case <-ctx.Done():
	}
	var state *upstream.State
	var snap *registry.Snapshot
	for n := 1; ; n++ {
		// Before the registry's first snapshot nothing is known, and all is denied.
		if s, r := g.pool.Current(), g.keeper.Current(); r != nil && (s != state || r != snap) {
			g.catalog.Store(newCatalog(&g.config, g.catalog.Load(), s, r, g.log))
			state, snap = s, r
		}
		if n == 1 {
			close(g.known)
		}
		g.changes.send()
		select {
		case <-ctx.Done():
			return nil
		case <-g.pool.Changed():
		case <-g.keeper.Changed():
		case <-g.engine.Changed():
		}
	}
}

// tidy ends what is left here of sessions that are used no more, or at another
// replica now.
func (g *Gateway) tidy(ctx context.Context) error {
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			g.sweep(g.config.Sessions.Idle)
			g.hub.Stats() // looking at the streams forgets those whose time is over
		}
	}
}
