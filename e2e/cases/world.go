package cases

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

const defaultPolicy = `package mcp.authz

default allow := false

allow if {
	input.tool.server == "alpha"
	input.tool.name == "read"
}
`

// world is one running world.
type world struct {
	spec World
	keys *Keyring
	dir  string
	vars map[string]string

	webs    map[string]*web
	pipes   map[string]*pipe
	issuers map[string]*issuer
	trap    *trap
	proxy   *proxy
	redis   *miniredis.Miniredis
	depot   *depotHost
	sink    *depotHost
	arrived *arrivals
	journal *journal
	config  gateway.Config
	gate    *gate

	mu       sync.Mutex
	secrets  []string
	tokens   map[string]string
	sessions map[string]string
	streams  map[string]*stream
	saved    int // how often a file was saved anew
}

// start brings up the world that spec describes, with its files under dir. Where
// the error is not nil, what had been started has ended.
func start(ctx context.Context, spec World, keys *Keyring, dir string, vars map[string]string) (*world, error) {
	w := &world{
		keys: keys, dir: dir, vars: vars, spec: spec.withDefaults(),
		webs: map[string]*web{}, pipes: map[string]*pipe{}, issuers: map[string]*issuer{},
		arrived: &arrivals{}, journal: newJournal(),
		tokens: map[string]string{}, sessions: map[string]string{}, streams: map[string]*stream{},
	}
	err := w.open()
	if err == nil {
		err = w.configure()
	}
	if err == nil {
		err = w.startGateway(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.close(), errors.New("the log ends in:\n"+w.journal.tail(6)))
	}
	return w, nil
}

func (spec World) withDefaults() World {
	if spec.Backends == nil {
		spec.Backends = map[string]Backend{"alpha": {Tools: []Tool{{Name: "read"}, {Name: "delete"}}}}
	}
	if spec.Policy == "" {
		spec.Policy = defaultPolicy
	}
	issuers := maps.Clone(spec.Issuers)
	if issuers == nil {
		issuers = map[string]Issuer{"main": {}}
	}
	for name, i := range issuers {
		if i.JWKS == nil && i.Document == "" {
			i.JWKS = []JWK{{Key: "k1", KID: "k1", Alg: "RS256", Use: "sig"}}
			issuers[name] = i
		}
	}
	spec.Issuers = issuers
	return spec
}

// open brings up all servers, so that the world's texts can name their
// addresses.
func (w *world) open() error {
	var err error
	if w.trap, err = newTrap(); err != nil {
		return err
	}
	for name := range w.spec.Issuers {
		if w.issuers[name], err = newIssuer(); err != nil {
			return err
		}
	}
	for name, b := range w.spec.Backends {
		if b.overHTTP() {
			if w.webs[name], err = newWeb(name, w.arrived); err != nil {
				return err
			}
		}
	}
	if w.spec.Proxy > 0 {
		if w.proxy, err = newProxy(w.spec.Proxy); err != nil {
			return err
		}
	}
	if w.spec.Redis {
		if w.redis, err = miniredis.Run(); err != nil {
			return err
		}
	}
	if w.spec.Depot != nil {
		if w.depot, err = newDepotHost(); err != nil {
			return err
		}
	}
	if w.spec.Sink != nil {
		if w.sink, err = newDepotHost(); err != nil {
			return err
		}
	}
	if w.vars, err = expand(w.vars, w.look(nil)); err != nil {
		return err
	}
	if w.spec, err = expand(w.spec, w.look(w.vars)); err != nil {
		return err
	}
	for name, b := range w.webs {
		spec := w.spec.Backends[name]
		b.become(spec)
		if err := b.turn(spec.Mode, spec.For); err != nil {
			return err
		}
	}
	return errors.Join(w.publish(), w.stock())
}

func (w *world) publish() error {
	for name, i := range w.issuers {
		spec := w.spec.Issuers[name]
		document := spec.Document
		if document == "" {
			var err error
			if document, err = w.keySet(spec.JWKS); err != nil {
				return err
			}
		}
		i.publish(document)
		if err := i.turn(spec.Mode, ""); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the world's files and makes the gateway's configuration.
func (w *world) configure() error {
	c := &w.config
	c.Listen, c.Servers = "127.0.0.1:0", map[string]gateway.Server{}
	for _, name := range slices.Sorted(maps.Keys(w.spec.Issuers)) {
		c.Auth.Issuers = append(c.Auth.Issuers, w.issuers[name].config(name, w.spec.Issuers[name]))
	}
	slices.SortStableFunc(c.Auth.Issuers, func(a, b auth.Issuer) int { return strings.Compare(a.Issuer, b.Issuer) })
	for name, b := range w.spec.Backends {
		server, err := w.server(name, b)
		if err != nil {
			return err
		}
		c.Servers[name] = server
	}
	if err := w.writePolicy(); err != nil {
		return err
	}
	if err := w.writeCatalogue(); err != nil {
		return err
	}
	if w.redis != nil {
		c.Registry.Redis = &registry.RedisConfig{Addrs: []string{w.redis.Addr()}}
	}
	if w.spec.Config != "" {
		if _, problems := strictyaml.Decode([]byte(w.spec.Config), c, strictyaml.Options{File: "world.config"}); len(problems) > 0 {
			return strictyaml.Err(problems)
		}
	}
	return nil
}

func (w *world) server(name string, b Backend) (gateway.Server, error) {
	s := b.Config
	if s.URL != "" || s.Command != "" {
		return s, nil
	}
	if b.Transport != "stdio" {
		s.URL = w.webs[name].url() + path
		return s, nil
	}
	p, c, err := newPipe(name, b, w.dir, w.arrived)
	if err != nil {
		return s, err
	}
	w.pipes[name] = p
	s.Command, s.Args, s.Env = c.Command, c.Args, c.Env
	return s, nil
}

// writePolicy leaves the shipped policies to the gateway's own choice.
func (w *world) writePolicy() error {
	if w.spec.Policy == "shipped" {
		return nil
	}
	if w.spec.Depot != nil {
		opa, err := w.distribution()
		w.config.Policy.OPA = w.collect(opa)
		return err
	}
	w.config.Policy.OPA = w.collect(nil)
	w.config.Policy.Dir = filepath.Join(w.dir, "policy")
	if err := os.MkdirAll(w.config.Policy.Dir, 0o700); err != nil {
		return err
	}
	if w.spec.Library {
		if err := copyLibrary(w.config.Policy.Dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(w.config.Policy.Dir, "authz.rego"), []byte(w.spec.Policy), 0o600)
}

// copyLibrary writes the shipped mcp.lib into dir.
func copyLibrary(dir string) error {
	return fs.WalkDir(policies.FS, "mcp/lib", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(policies.FS, name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, data, 0o600))
	})
}

func (w *world) writeCatalogue() error {
	if w.spec.Catalogue == "shipped" {
		return nil
	}
	if w.spec.Catalogue == "" {
		w.spec.Catalogue = w.everyTool()
	}
	w.config.Registry.Path = filepath.Join(w.dir, "catalogue.yaml")
	return os.WriteFile(w.config.Registry.Path, []byte(w.spec.Catalogue), 0o600)
}

// everyTool is a catalogue in which every tool of the world is a harmless one.
func (w *world) everyTool() string {
	var servers []string
	for name, b := range w.spec.Backends {
		tools := map[string]string{} // a backend may offer one name twice
		for _, t := range b.Tools {
			if registry.ValidTool(t.Name) {
				tools[t.Name] = fmt.Sprintf("%q: {attributes: [developer], effect: read, data: internal, reach: closed}", t.Name)
			}
		}
		if registry.ValidServer(name) {
			servers = append(servers, fmt.Sprintf("%q: {tools: {%s}}", name, strings.Join(slices.Sorted(maps.Values(tools)), ", ")))
		}
	}
	return "version: 1\nservers: {" + strings.Join(servers, ", ") + "}\n"
}

// secret remembers a text that must show up nowhere.
func (w *world) secret(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = append(w.secrets, text)
}

// gather takes up what stdio backends wrote down, and returns how many messages
// have arrived so far.
func (w *world) gather() (int, error) {
	for _, p := range w.pipes {
		if err := p.gather(); err != nil {
			return 0, err
		}
	}
	return w.arrived.count(), nil
}

// close ends the world.
func (w *world) close() error {
	w.mu.Lock()
	for _, s := range w.streams {
		s.close()
	}
	w.mu.Unlock()
	var err error
	if w.proxy != nil {
		w.proxy.close()
	}
	if w.gate != nil {
		err = w.gate.stop()
	}
	for _, b := range w.webs {
		b.down()
		b.forget()
	}
	for _, i := range w.issuers {
		i.down()
	}
	if w.trap != nil {
		w.trap.down()
	}
	if w.depot != nil {
		w.depot.down()
	}
	if w.sink != nil {
		w.sink.down()
	}
	if w.redis != nil {
		w.redis.Close()
	}
	return errors.Join(err, w.journal.close())
}

// faults returns what no run may leave behind. It is called after close.
func (w *world) faults() []string {
	out := w.journal.faults(w.secrets)
	for _, r := range w.trap.requests() {
		out = append(out, "somebody asked the trap: "+r)
	}
	if _, err := w.gather(); err != nil {
		out = append(out, err.Error())
	}
	for name := range w.pipes {
		if n := w.left(name); n > 0 {
			out = append(out, fmt.Sprintf("%d processes of %s live on", n, name))
		}
	}
	for _, a := range w.arrived.since(0) {
		if holdsAny(fmt.Sprint(a.header)+string(a.body), w.secrets) {
			out = append(out, fmt.Sprintf("a token reached %s in a %s", a.backend, a.method))
		}
	}
	return out
}

// startTimeout is how long a gateway has to come up.
const startTimeout = 30 * time.Second
