package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/open-policy-agent/opa/v1/plugins/bundle"
)

// adopt takes a configuration that discovery found.
func (p *Plane) adopt(ctx context.Context, s *settings) {
	p.take(s)
	p.seed(ctx)
	p.hinted()
}

func (p *Plane) take(s *settings) {
	p.wire.adopt(s.services)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sources, p.discover = s.sources, s.discover
	for _, t := range p.tracked {
		t.wanted = false
	}
	for name := range s.sources {
		if p.tracked[name] == nil {
			p.tracked[name] = &tracked{}
		}
		p.tracked[name].wanted = true
	}
}

// sourceOf finds what a service is asked for, nil when nothing is configured so.
func (p *Plane) sourceOf(service, url string) *source {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.discover; d != nil && d.service == service && d.url == url {
		return d
	}
	for _, s := range p.sources {
		if s.service == service && s.url == url {
			return s
		}
	}
	return nil
}

// seed offers the persisted copies of bundles of which nothing is in force, so
// that OPA meets only copies that are known to be harmless. A copy that cannot
// be read is set aside.
func (p *Plane) seed(ctx context.Context) {
	p.mu.Lock()
	var persisted []*source
	for name, s := range p.sources {
		if s.persist && p.tracked[name].active.since.IsZero() {
			persisted = append(persisted, s)
		}
	}
	if d := p.discover; d != nil && d.persist && !p.discovered {
		persisted = append(persisted, d)
	}
	p.mu.Unlock()
	for _, s := range persisted {
		raw, err := s.load()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = p.offer(ctx, s, raw, "", true)
		}
		if err != nil {
			if moved := os.Rename(s.disk, s.disk+".refused"); moved != nil {
				err = fmt.Errorf("%w; and it could not be set aside: %w", err, moved)
			}
		}
		p.seeded(s, err)
	}
}

// seeded notes what became of a persisted copy; err where it was set aside.
func (p *Plane) seeded(s *source, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	if err != nil {
		text = reason(err)
	} else if !s.discovery {
		text = p.of(s.name).own
	}
	if text == "" {
		return
	}
	text = "the persisted copy is refused: " + text
	p.log.Error("bundle %q: %s", s.name, text)
	if s.discovery {
		p.lost = text
		return
	}
	p.of(s.name).problem = text
}

func (s *source) load() ([]byte, error) {
	f, err := os.Open(s.disk)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, s.limit+1))
	if err == nil && int64(len(raw)) > s.limit {
		err = fmt.Errorf("it has more than %d bytes", s.limit)
	}
	return raw, err
}

// failed notes why a download was refused.
func (p *Plane) failed(src *source, err error) {
	if src == nil || src.discovery {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(src.name).own = reason(err)
}

// heard is told by OPA how a bundle's download or activation went.
func (p *Plane) heard(s bundle.Status) {
	defer p.hinted()
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tracked[s.Name]
	if t == nil || p.ended {
		return // what stopping cuts off is no problem of the bundle
	}
	was := t.problem
	defer func() { p.tell(s.Name, was, t) }()
	if s.Code == "" {
		t.problem, t.pending = "", nil
		return
	}
	t.problem = t.own
	if t.problem == "" {
		t.problem = told(s)
	}
	if t.passed && t.refuse == nil {
		// It is in force, but OPA's books are not in order: it has to see it again.
		t.opa = ""
	}
}

// tell logs once what is wrong with a bundle, and that it is mended; OPA says it
// at each try.
func (p *Plane) tell(name, was string, t *tracked) {
	switch {
	case t.problem == was:
	case t.problem == "":
		p.o.Log.Info("bundle is in order again", "bundle", name, "bundle_revision", t.active.revision)
	default:
		p.o.Log.Error("bundle refused or not to be had: what is active stays", "bundle", name, "problem", t.problem, "bundle_revision", t.active.revision)
	}
}

// heardDiscovery is told by OPA how discovery went.
func (p *Plane) heardDiscovery(s bundle.Status) {
	defer p.hinted()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = ""
	if s.Code != "" {
		p.lost = told(s)
		return
	}
	p.discovered = true
}

// told is OPA's reason in one line.
func told(s bundle.Status) string {
	parts := []string{s.Message}
	if len(s.Errors) > 0 {
		parts = parts[:0]
	}
	for _, e := range s.Errors {
		parts = append(parts, e.Error())
	}
	return strings.Join(strings.Fields(strings.Join(parts, "; ")), " ")
}
