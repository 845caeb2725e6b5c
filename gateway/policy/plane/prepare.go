package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/config"
	"github.com/open-policy-agent/opa/v1/keys"
)

// client is the name under which OPA finds our HTTP client. Every service is
// rewritten to ask it for one: there is no other way to bound what OPA reads
// and where it is redirected to.
const client = "regogate_client"

// source is where one bundle, or discovery, comes from.
type source struct {
	name      string // "" for discovery
	discovery bool
	service   string
	url       string // what OPA asks for, without redirects
	limit     int64
	persist   bool
	disk      string // the persisted copy; "" unless persist
	verify    *bundle.VerificationConfig
}

// settings is a checked configuration, rewritten for OPA.
type settings struct {
	raw      []byte
	sources  map[string]*source // bundles by name
	discover *source            // nil without discovery
	services map[string]*service
}

// prepare rewrites a configuration that check found nothing wrong with. It
// changes doc.
func (p *Plane) prepare(doc map[string]any) (*settings, error) {
	s := &settings{sources: map[string]*source{}, services: map[string]*service{}}
	all := map[string]*keys.Config{}
	if v, ok := doc["keys"]; ok {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if all, err = keys.ParseKeysConfig(raw); err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
	}
	services := section(doc, "services")
	for name := range services {
		if err := s.addService(name, section(services, name), all, p.log); err != nil {
			return nil, err
		}
	}
	// Only what has a public half verifies: OPA would look a private key up too.
	public := maps.Clone(all)
	maps.DeleteFunc(public, func(_ string, k *keys.Config) bool { return k.Key == "" })
	dir := str(doc, "persistence_directory")
	for name := range section(doc, "bundles") {
		b := section(section(doc, "bundles"), name)
		if b["size_limit_bytes"] == nil {
			b["size_limit_bytes"] = json.Number(fmt.Sprint(p.o.MaxBundle))
		}
		s.sources[name] = s.source(b, public, name, resourceOf(name, b), dir)
	}
	if d, ok := doc["discovery"].(map[string]any); ok {
		d["size_limit_bytes"] = json.Number(fmt.Sprint(p.o.MaxBundle))
		s.discover = s.source(d, public, "", strings.Trim(str(d, "resource"), "/"), dir)
		delete(d, "size_limit_bytes")
	}
	for _, name := range []string{"status", "decision_logs"} {
		if m, ok := doc[name].(map[string]any); ok && str(m, "service") == "" && m["console"] != true {
			m["service"] = s.only()
		}
	}
	labels := map[string]any{}
	for k, v := range p.o.Labels {
		labels[k] = v
	}
	if p.o.Version != "" {
		labels["regogate_version"] = p.o.Version
	}
	maps.Copy(labels, section(doc, "labels"))
	doc["labels"] = labels
	var err error
	s.raw, err = json.Marshal(doc)
	return s, err
}

func (s *settings) only() string {
	for name := range s.services {
		return name
	}
	return ""
}

// source fills in what OPA would guess, in m too.
func (s *settings) source(m map[string]any, public map[string]*keys.Config, name, resource, dir string) *source {
	if str(m, "service") == "" {
		m["service"] = s.only()
	}
	src := &source{name: name, discovery: name == "", service: str(m, "service"), persist: m["persist"] == true}
	src.limit, _ = m["size_limit_bytes"].(json.Number).Int64()
	src.url = target(s.services[src.service].url + "/" + resource)
	if len(public) > 0 {
		// Without a signing block OPA takes unsigned bundles although there are keys.
		if m["signing"] == nil {
			m["signing"] = map[string]any{}
		}
		signing := section(m, "signing")
		src.verify = bundle.NewVerificationConfig(public, str(signing, "keyid"), str(signing, "scope"), nil)
	}
	if src.persist {
		file := name
		if src.discovery {
			file = "discovery"
		}
		src.disk = filepath.Join(dir, "bundles", filepath.FromSlash(file), "bundle.tar.gz")
	}
	return src
}

// target is a URL in the form in which requests are compared.
func target(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	return u.String()
}

func (s *settings) addService(name string, m map[string]any, all map[string]*keys.Config, log logger) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if s.services[name], err = newService(name, string(raw), all, log); err != nil {
		return err
	}
	m["credentials"] = map[string]any{"plugin": client}
	return nil
}

// discovered is OPA's hook: it puts what discovery found through the same check
// and rewriting as the configuration at the start, which it may only add to.
type discovered struct{ p *Plane }

// OnConfigDiscovery refuses, and thereby leaves all as it was, what Check would
// refuse and what names no bundle.
func (h *discovered) OnConfigDiscovery(ctx context.Context, found *config.Config) (*config.Config, error) {
	doc, err := document(found)
	if err != nil {
		return nil, err
	}
	boot, err := parse(h.p.o.Config)
	if err != nil {
		return nil, err
	}
	overlay(doc, boot)
	if err := errors.Join(check(doc)...); err != nil {
		return nil, fmt.Errorf("the discovered configuration is refused: %w", err)
	}
	if len(section(doc, "bundles")) == 0 {
		return nil, errors.New("the discovered configuration is refused: bundles: none; what was in force stays in force")
	}
	s, err := h.p.prepare(doc)
	if err != nil {
		return nil, fmt.Errorf("the discovered configuration is refused: %w", err)
	}
	ready, err := config.ParseConfig(s.raw, h.p.id)
	if err != nil {
		return nil, fmt.Errorf("the discovered configuration is refused: %w", err)
	}
	h.p.adopt(ctx, s)
	return ready, nil
}

// document is a parsed configuration without what OPA put into it.
func document(c *config.Config) (map[string]any, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	doc, err := parse(raw)
	if err != nil {
		return nil, err
	}
	for name, v := range c.Extra {
		if doc[name] == nil {
			doc[name] = v
		}
	}
	for name, v := range map[string]string{"default_decision": "/system/main", "default_authorization_decision": "/system/authz/allow"} {
		if doc[name] == v {
			delete(doc, name)
		}
	}
	if labels := section(doc, "labels"); labels != nil {
		delete(labels, "version")
		delete(labels, "id")
	}
	// OPA keeps the discovery it was started with.
	delete(doc, "discovery")
	return doc, nil
}

// overlay puts the members of over into doc; over wins.
func overlay(doc, over map[string]any) {
	for _, name := range slices.Collect(maps.Keys(over)) {
		below, ok := over[name].(map[string]any)
		had, both := doc[name].(map[string]any)
		if ok && both {
			overlay(had, below)
			continue
		}
		doc[name] = over[name]
	}
}
