// Package plane runs OPA's own distribution of policy: bundles, discovery,
// signatures, persistence, status and the decision-log service. What may come
// into force is not OPA's to say: every candidate is put to Options.Judge first.
package plane

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/hooks"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/bundle"
	"github.com/open-policy-agent/opa/v1/plugins/discovery"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	"github.com/open-policy-agent/opa/v1/server"
)

// Module is one Rego file of a candidate.
type Module struct {
	Bundle string // the bundle's configured name
	Path   string // inside the bundle, without a leading slash
	Raw    []byte
}

// Candidate is everything that would be active after one activation. It is a
// private copy: the judge may keep and change it.
type Candidate struct {
	Modules []Module // sorted by bundle and path
	// Data is every document of every bundle, without what OPA itself keeps
	// below data.system.
	Data ast.Object
	// Bundles has the revision of each bundle that would be active.
	Bundles map[string]string
	// Complete says that every configured bundle is among them.
	Complete bool
}

// Options are a Plane's settings.
type Options struct {
	Config       []byte            // OPA's configuration, JSON
	Version      string            // ours, as the label regogate_version; version is OPA's
	Labels       map[string]string // added to the configuration's; those win
	Log          *slog.Logger
	Capabilities *ast.Capabilities // what a discovery bundle may call; nil: no network, no environment
	MaxBundle    int64             // bytes of a bundle and of each file in it, where it has no size_limit_bytes; all files may have four times that; 0: DefaultMaxBundle
	Download     time.Duration     // from a bundle's headers to its last byte; 0: one minute
	// Judge is asked about each candidate before it is committed, one at a time.
	// An error refuses it: its text is the reason in the bundle's status, and all
	// stays as it was. After the commit the returned function, which may be nil,
	// is called before anything else is judged. A panic refuses.
	Judge func(context.Context, *Candidate) (commit func(), err error)
}

// BundleStatus is the state of one configured bundle.
type BundleStatus struct {
	Name     string
	Revision string    // of what is active
	Since    time.Time // of the activation; zero while none is active
	Problem  string    // what went wrong last, "" when nothing did since the last success
	FromDisk bool      // the persisted copy is active and the server has not confirmed it yet
}

// Status is the state of a Plane.
type Status struct {
	Bundles []BundleStatus // sorted by name
	Problem string         // of discovery, "" when there is none
	// Ready says that every configured bundle is active and that discovery, where
	// it is configured, has succeeded once. Without bundles there is nothing to
	// wait for.
	Ready bool
}

// Plane is the embedded plugin manager. Its methods may be called concurrently.
type Plane struct {
	pace    pace
	o       Options
	id      string
	log     logger
	store   *store
	wire    *wire
	manager *plugins.Manager
	bundles *bundle.Plugin // nil without bundles and discovery
	hint    chan struct{}

	mu         sync.Mutex
	sources    map[string]*source
	discover   *source
	tracked    map[string]*tracked
	turn       uint64 // counts what came into force
	left       string // why a deactivation was refused
	discovered bool   // discovery has succeeded once
	lost       string // what is wrong with discovery
	ended      bool   // Run is stopping the plugins
}

// New prepares a plane. Nothing is reached before Run, which has to be called to
// let go of what New made. An error says what is wrong with the configuration.
func New(o Options) (*Plane, error) {
	doc, err := parse(o.Config)
	if err == nil {
		err = errors.Join(check(doc)...)
	}
	if err != nil {
		return nil, err
	}
	o.MaxBundle = cmp.Or(o.MaxBundle, DefaultMaxBundle)
	o.Download = cmp.Or(o.Download, time.Minute)
	if o.Capabilities == nil {
		o.Capabilities = offline()
	}
	p := &Plane{
		o: o, id: cmp.Or(str(section(doc, "labels"), "id"), uuid.NewString()), log: logger{out: o.Log}, store: newStore(),
		hint: make(chan struct{}, 1), sources: map[string]*source{}, tracked: map[string]*tracked{},
	}
	p.store.before = p.before
	p.wire = &wire{p: p, services: map[string]*service{}}
	s, err := p.prepare(doc)
	if err != nil {
		return nil, err
	}
	p.take(s)
	p.manager, err = plugins.New(s.raw, p.id, p.store,
		plugins.Logger(p.log), plugins.ConsoleLogger(logger{out: o.Log, whole: true}),
		plugins.WithParserOptions(ast.ParserOptions{RegoVersion: ast.RegoV1}),
		plugins.WithHooks(hooks.New(p.store)), plugins.WithEnableVersionCheck(false))
	if err != nil {
		return nil, err
	}
	if err := p.register(); err != nil {
		p.manager.Stop(context.Background())
		return nil, err
	}
	return p, nil
}

// register hands the manager its plugins. The bundle plugin is ours to make:
// it has to be there, and be listened to, before discovery finds bundles.
func (p *Plane) register() error {
	p.manager.Register(client, p.wire)
	conf := p.manager.GetConfig()
	raw := []byte(conf.Bundles)
	if raw == nil {
		raw = []byte("{}")
	}
	parsed, err := bundle.NewConfigBuilder().WithBytes(raw).WithServices(p.manager.Services()).WithKeyConfigs(p.manager.PublicKeys()).Parse()
	if err != nil {
		return err
	}
	if len(parsed.Bundles) > 0 || p.discover != nil {
		p.bundles = bundle.New(parsed, p.manager)
		p.manager.Register(bundle.Name, p.bundles)
		p.bundles.Register(client, p.heard)
	}
	d, err := discovery.New(p.manager, discovery.Hooks(hooks.New(&discovered{p})))
	if err != nil {
		return err
	}
	d.RegisterListener(client, p.heardDiscovery)
	p.manager.Register(discovery.Name, d)
	return nil
}

// offline are OPA's capabilities without the network and the environment.
func offline() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		return b.Name == ast.HTTPSend.Name || b.Name == ast.NetLookupIPAddr.Name || b.Name == ast.OPARuntime.Name
	})
	c.AllowNet = []string{}
	return c
}

// Run starts the plugins and returns when ctx is done and they have stopped,
// which they are given ten seconds for. It must be called once. The error says
// which plugin did not start.
func (p *Plane) Run(ctx context.Context) error {
	err := p.manager.Init(ctx)
	if err == nil {
		p.seed(ctx)
		err = p.manager.Start(ctx)
	}
	if err == nil {
		<-ctx.Done()
	}
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	const bound = 10 * time.Second
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.manager.Stop(stopping)
	}()
	select {
	case <-stopped:
	case <-time.After(bound + time.Second):
		p.log.Error("OPA's plugins did not stop within %s", bound)
	}
	p.wire.close()
	return err
}

// Status returns the state as of now.
func (p *Plane) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Ready: p.discover == nil || p.discovered, Problem: p.lost}
	if s.Problem == "" {
		s.Problem = p.left
	}
	for _, name := range slices.Sorted(maps.Keys(p.tracked)) {
		t := p.tracked[name]
		if !t.wanted {
			continue
		}
		s.Bundles = append(s.Bundles, BundleStatus{Name: name, Revision: t.active.revision, Since: t.active.since, Problem: t.problem, FromDisk: t.active.disk})
		s.Ready = s.Ready && !t.active.since.IsZero()
	}
	return s
}

// Changed is sent to when Status may have changed; hints are merged.
func (p *Plane) Changed() <-chan struct{} { return p.hint }

func (p *Plane) hinted() {
	select {
	case p.hint <- struct{}{}:
	default:
	}
}

// Decisions is OPA's decision-log plugin, nil where the configuration has none.
// With discovery it is there only once Run has started it.
func (p *Plane) Decisions() *logs.Plugin { return logs.Lookup(p.manager) }

// Log hands an event to OPA's decision-log plugin, where there is one.
func (p *Plane) Log(ctx context.Context, event *server.Info) error {
	if plugin := p.Decisions(); plugin != nil {
		return plugin.Log(ctx, event)
	}
	return nil
}
