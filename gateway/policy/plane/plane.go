// Package plane embeds OPA's management plane: bundles with their signatures,
// persistence and long polling, discovery, status and the upload of decision
// logs, configured as OPA documents it. It distributes and decides nothing: what
// bundles would bring into force is put to a judge before it is committed. What
// the judge refuses is therefore not kept, not persisted, reported as the
// bundle's error, and asked for again even if its server calls it unchanged.
package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/config"
	"github.com/open-policy-agent/opa/v1/hooks"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/bundle"
	"github.com/open-policy-agent/opa/v1/plugins/discovery"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	"github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/tracing"
)

// DefaultMaxBundle is the largest bundle that is taken, in bytes as they are sent.
const DefaultMaxBundle = 64 << 20

// stopping bounds how long the plugins have to upload what they hold.
const stopping = 10 * time.Second

// Candidate is what would be in force if an activation were committed.
type Candidate struct {
	Modules []Module   // sorted by bundle and path
	Data    ast.Object // the judge's own; without what OPA keeps of the bundles
	// Bundles names all that would be active, with the revision in the manifest.
	Bundles map[string]string
	// Complete says that every configured bundle is among them.
	Complete bool
}

// Module is one Rego file of a bundle.
type Module struct {
	Bundle, Path string // as configured, and inside the bundle
	Raw          []byte
}

// Judge is asked about each candidate, one after the other. Its error refuses
// the candidate and is told as the bundle's problem. Otherwise commit, which may
// be nil, is called when the candidate has been committed, and before the next is
// put.
type Judge func(context.Context, *Candidate) (commit func(), err error)

// Options say how to run a Plane.
type Options struct {
	Config    []byte            // OPA's configuration, JSON; Check must have passed it
	Version   string            // of this program, for the services
	Labels    map[string]string // beside those of the configuration, which win
	Log       *slog.Logger
	Judge     Judge
	MaxBundle int64 // bytes; 0 means DefaultMaxBundle
}

// Plane runs OPA's plugins. It is safe for concurrent use.
type Plane struct {
	options Options
	store   *judgedStore
	changed chan struct{}
	manager atomic.Pointer[plugins.Manager]

	mu         sync.Mutex
	configured []string // bundles, sorted
	bundles    map[string]*BundleStatus
	ended      bool
}

// BundleStatus is how one bundle fares.
type BundleStatus struct {
	Name     string
	Revision string    // of what is active, as its manifest says
	Since    time.Time // zero while nothing is active
	Problem  string    // why the newest is not, one line; "" when it is
	FromDisk bool      // what is active was persisted, and the server has not been heard of since
}

// Status is how the bundles fare, sorted by name.
type Status struct {
	Bundles []BundleStatus
	Ready   bool // every configured bundle is active, and there is one
}

// New sets a plane up; nothing is reached before Run. It fails as Check does.
func New(o Options) (*Plane, error) {
	if err := Check(o.Config); err != nil {
		return nil, err
	}
	if o.MaxBundle == 0 {
		o.MaxBundle = DefaultMaxBundle
	}
	p := &Plane{options: o, changed: make(chan struct{}, 1), bundles: map[string]*BundleStatus{}}
	p.store = newStore(p)
	return p, nil
}

// Changed is a hint for one receiver: a value means that Status may have changed.
func (p *Plane) Changed() <-chan struct{} { return p.changed }

// Status is the caller's.
func (p *Plane) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Ready: len(p.configured) > 0}
	for _, name := range p.configured {
		b := p.bundle(name)
		s.Bundles = append(s.Bundles, *b)
		s.Ready = s.Ready && !b.Since.IsZero()
	}
	return s
}

// bundle is called with the lock held.
func (p *Plane) bundle(name string) *BundleStatus {
	if p.bundles[name] == nil {
		p.bundles[name] = &BundleStatus{Name: name}
	}
	return p.bundles[name]
}

func (p *Plane) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run starts the plugins and returns nil when ctx is done and they have stopped,
// which takes no longer than they are given to upload what they hold.
func (p *Plane) Run(ctx context.Context) error {
	registerTransport()
	own := hooks.New(p)
	m, err := plugins.New(p.options.Config, uuid.NewString(), p.store,
		plugins.Logger(logger{log: p.options.Log}),
		plugins.ConsoleLogger(logger{log: p.options.Log}),
		plugins.WithHooks(own),
		plugins.WithParserOptions(ast.ParserOptions{RegoVersion: ast.RegoV1}),
		plugins.WithDistributedTracingOpts(tracing.NewOptions(guarded{limit: p.options.MaxBundle, polls: &polls{last: map[string]poll{}}})),
		plugins.GracefulShutdownPeriod(int(stopping/time.Second)))
	if err != nil {
		return fmt.Errorf("set up OPA's plugins: %w", err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopping)
		defer cancel()
		m.Stop(stop)
	}()
	if err := m.Init(ctx); err != nil {
		return fmt.Errorf("set up OPA's store: %w", err)
	}
	d, err := discovery.New(m, discovery.Hooks(own))
	if err != nil {
		return fmt.Errorf("set up OPA's plugins: %w", err)
	}
	m.Register(discovery.Name, d)
	p.listen(m)
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("start OPA's plugins: %w", err)
	}
	p.manager.Store(m)
	defer p.manager.Store(nil)
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			p.mu.Lock()
			p.ended = true
			p.mu.Unlock()
			return nil
		case <-every.C: // discovery may have brought the plugin along
			p.listen(m)
		}
	}
}

var errNotRunning = errors.New("OPA's decision log is not running")

// Log hands an event to OPA's decision log plugin, as far as the configuration
// has one.
func (p *Plane) Log(ctx context.Context, event *server.Info) error {
	m := p.manager.Load()
	if m == nil {
		return errNotRunning
	}
	if plugin := logs.Lookup(m); plugin != nil {
		return plugin.Log(ctx, event)
	}
	return nil
}

// listen hears of how the bundles fare; registering again changes nothing.
func (p *Plane) listen(m *plugins.Manager) {
	if plugin := bundle.Lookup(m); plugin != nil {
		plugin.RegisterBulkListener(p, p.heard)
	}
}

func (p *Plane) heard(all map[string]*bundle.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return // what stopping cuts off is no problem of the bundles
	}
	for name, s := range all {
		b := p.bundle(name)
		text := problem(s)
		if text != b.Problem {
			p.tell(name, text, b)
		}
		b.Problem = text
		if !s.LastSuccessfulRequest.IsZero() && b.Problem == "" {
			b.FromDisk = false
		}
	}
	p.notify()
}

// tell says once what is wrong with a bundle, and that it is mended. OPA says it
// at each try.
func (p *Plane) tell(name, problem string, b *BundleStatus) {
	if problem == "" {
		p.options.Log.Info("bundle is in order again", "bundle", name, "bundle_revision", b.Revision)
		return
	}
	p.options.Log.Error("bundle refused or not to be had: what is active stays", "bundle", name, "problem", problem, "bundle_revision", b.Revision)
}

// problem is the error of a status in one line.
func problem(s *bundle.Status) string {
	text := s.Message
	for _, err := range s.Errors {
		text += "; " + err.Error()
	}
	return strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD") // it may quote the bundle
}

// committed notes which bundles are active now.
func (p *Plane) committed(active map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, revision := range active {
		b := p.bundle(name)
		if b.Since.IsZero() {
			b.FromDisk = p.manager.Load() == nil
		}
		if b.Since.IsZero() || b.Revision != revision {
			b.Revision, b.Since = revision, time.Now()
		}
	}
	for name, b := range p.bundles {
		if _, ok := active[name]; !ok {
			b.Revision, b.Since = "", time.Time{}
		}
	}
	p.notify()
}

// complete reports whether every configured bundle is among these.
func (p *Plane) complete(active map[string]string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.configured {
		if _, ok := active[name]; !ok {
			return false
		}
	}
	return len(p.configured) > 0
}

// OnConfig implements hooks.ConfigHook.
func (p *Plane) OnConfig(_ context.Context, c *config.Config) (*config.Config, error) {
	return p.adopt(c)
}

// OnConfigDiscovery implements hooks.ConfigDiscoveryHook: what is discovered is
// held to the same rules as the file.
func (p *Plane) OnConfigDiscovery(_ context.Context, c *config.Config) (*config.Config, error) {
	return p.adopt(c)
}

// adopt fills in our defaults and notes which bundles there are to be.
func (p *Plane) adopt(c *config.Config) (*config.Config, error) {
	names, err := strengthen(c, p.options.MaxBundle)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{}
	maps.Copy(labels, p.options.Labels)
	maps.Copy(labels, c.Labels)
	if p.options.Version != "" {
		labels["regogate_version"] = p.options.Version
	}
	c.Labels = labels
	p.mu.Lock()
	p.configured = slices.Sorted(slices.Values(names))
	p.mu.Unlock()
	p.notify()
	return c, nil
}
