package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/regogate/regogate/e2e/depot"
)

// Depot is a bundle server, from which the policy comes then.
type Depot struct {
	Bundles map[string]depot.Publication `yaml:"bundles"` // by name
	Missing []string                     `yaml:"missing"` // names that are configured, and not there
	Trust   []string                     `yaml:"trust"`   // keys that sign: then every bundle has to be signed
	Poll    bool                         `yaml:"poll"`    // the server does not let requests wait: the gateway asks each second
	Persist bool                         `yaml:"persist"` // the gateway keeps what it has on disk
	Mode    string                       `yaml:"mode"`    // see Action
}

// depotHost is a depot at an address of its own, with the modes of a host.
type depotHost struct {
	*host
	*depot.Depot
}

func newDepotHost() (*depotHost, error) {
	d := &depotHost{newHost(), depot.New()}
	d.Long = true
	return d, d.open(d)
}

// ServeHTTP misbehaves, or does what the depot does.
func (d *depotHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.misbehave(w, r, "") {
		d.Depot.ServeHTTP(w, r)
	}
}

// stock publishes what there is at the start.
func (w *world) stock() error {
	if w.sink != nil {
		if err := w.sink.turn(w.spec.Sink.Mode, ""); err != nil {
			return err
		}
	}
	spec := w.spec.Depot
	if spec == nil {
		return nil
	}
	w.depot.Long = !spec.Poll
	for name, p := range spec.Bundles {
		if err := w.depot.Publish(name, p); err != nil {
			return err
		}
	}
	return w.depot.turn(spec.Mode, "")
}

// distribution is policy.opa for a world whose policy comes from a depot.
func (w *world) distribution() (map[string]any, error) {
	spec := w.spec.Depot
	polling := map[string]any{"min_delay_seconds": 1, "max_delay_seconds": 1, "long_polling_timeout_seconds": 10}
	if spec.Poll {
		delete(polling, "long_polling_timeout_seconds")
	}
	bundles, keys := map[string]any{}, map[string]any{}
	for _, name := range append(slices.Collect(maps.Keys(spec.Bundles)), spec.Missing...) {
		bundles[name] = map[string]any{
			"service": "depot", "resource": "bundles/" + name, "polling": polling, "persist": spec.Persist,
		}
	}
	for _, name := range spec.Trust {
		pem, err := w.depot.PublicKey(name)
		if err != nil {
			return nil, err
		}
		keys[name] = map[string]any{"key": pem, "algorithm": "RS256"}
	}
	c := map[string]any{
		"services": map[string]any{"depot": map[string]any{"url": w.depot.url(), "response_header_timeout_seconds": 2}},
		"bundles":  bundles, "persistence_directory": w.persisted(),
	}
	if len(keys) > 0 {
		c["keys"] = keys
	}
	// As a file would give it.
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

func (w *world) persisted() string { return filepath.Join(w.dir, "persisted") }

// distribute changes the depot, the sink and what the gateway keeps on disk.
func (p *player) distribute(a *Action) error {
	if a.Bundle != "" || a.Depot != "" {
		if err := p.actDepot(a); err != nil {
			return err
		}
	}
	if a.Persisted != "" {
		if err := p.damage(a.Bundle, a.Persisted); err != nil {
			return err
		}
	}
	switch {
	case a.Sink == "":
		return nil
	case p.sink == nil || !knownMode(a.Sink):
		return fmt.Errorf("sink: there is none, or %q is no mode", a.Sink)
	}
	return p.sink.turn(a.Sink, "")
}

func (p *player) actDepot(a *Action) error {
	if p.spec.Depot == nil {
		return errors.New("the world has no depot")
	}
	if a.Publish != nil {
		if err := p.depot.Publish(a.Bundle, *a.Publish); err != nil {
			return err
		}
	}
	if a.Withdraw {
		p.depot.Withdraw(a.Bundle)
	}
	if a.Depot != "" {
		if !knownMode(a.Depot) {
			return fmt.Errorf("unknown mode %q", a.Depot)
		}
		return p.depot.turn(a.Depot, "")
	}
	return nil
}

// damage spoils what the gateway keeps of a bundle on disk.
func (p *player) damage(bundle, how string) error {
	file := filepath.Join(p.persisted(), "bundles", bundle, "bundle.tar.gz")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	switch how {
	case "truncated":
		data = data[:len(data)/2]
	case "garbage":
		data = []byte("<html>")
	case "gone":
		return os.Remove(file)
	default:
		return fmt.Errorf("persisted: %q is none of truncated, garbage and gone", how)
	}
	return os.WriteFile(file, data, 0o600)
}

// distributed compares what was asked of the depot.
func (p *player) distributed(e *Expect) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(e.Known)) {
		want := slices.Sorted(slices.Values(e.Known[name]))
		if got := p.depot.Known(name); !slices.Equal(got, want) {
			problems = append(problems, fmt.Sprintf("requests for bundle %s said that they know %q, want %q", name, got, want))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Asked)) {
		if got := len(p.depot.Requests(name)); got < e.Asked[name] {
			problems = append(problems, fmt.Sprintf("bundle %s was asked for %d times, want %d", name, got, e.Asked[name]))
		}
	}
	return problems
}
