package plane

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/config"
	"github.com/open-policy-agent/opa/v1/keys"
	"github.com/open-policy-agent/opa/v1/plugins/bundle"
	"github.com/open-policy-agent/opa/v1/plugins/discovery"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	"github.com/open-policy-agent/opa/v1/plugins/rest"
	"github.com/open-policy-agent/opa/v1/plugins/status"
)

// meaningless are sections of OPA's configuration that this program has no use
// for, and what there is instead.
func meaningless() map[string]string {
	return map[string]string{
		"bundle":                         "use bundles, which names them",
		"caching":                        "http.send is off here; remove it",
		"default_authorization_decision": "this is no OPA server; remove it",
		"default_decision":               "the decisions are mcp.authz's; remove it",
		"distributed_tracing":            "it is not OPA that serves requests; remove it",
		"metrics_export":                 "it is not OPA that serves requests; remove it",
		"nd_builtin_cache":               "built-in functions that answer differently each time are off here; remove it",
		"plugins":                        "only OPA's own plugins are built in; remove it",
		"server":                         "this is no OPA server; remove it",
		"storage":                        "policies and data are kept in memory; remove it",
	}
}

// Check returns what is wrong with a configuration itself, one line a problem,
// each beginning with the path of what it is about. It reaches nothing.
func Check(document []byte) error {
	c, err := config.ParseConfig(document, "check")
	if err != nil {
		return fmt.Errorf("%s", oneLine(err))
	}
	k := &checker{}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(document, &raw); err != nil {
		return fmt.Errorf("must be a mapping of OPA's settings: %s", oneLine(err))
	}
	for _, name := range slices.Sorted(maps.Keys(meaningless())) {
		if _, ok := raw[name]; ok {
			k.add(name, meaningless()[name])
		}
	}
	for _, warning := range c.Warnings {
		k.add(unknown(warning))
	}
	services := k.services(c)
	pairs, err := keys.ParseKeysConfig(c.Keys)
	k.problem("keys", err)
	k.bundles(c, services, pairs)
	_, err = discovery.NewConfigBuilder().WithBytes(c.Discovery).WithServices(services).WithKeyConfigs(pairs).Parse()
	k.problem("discovery", err)
	_, err = logs.NewConfigBuilder().WithBytes(c.DecisionLogs).WithServices(services).WithLogger(silent()).Parse()
	k.problem("decision_logs", err)
	_, err = status.NewConfigBuilder().WithBytes(c.Status).WithServices(services).Parse()
	k.problem("status", err)
	return errors.Join(k.found...)
}

type checker struct{ found []error }

func (k *checker) add(path, message string) {
	k.found = append(k.found, fmt.Errorf("%s: %s", path, message))
}

func (k *checker) problem(path string, err error) {
	if err != nil {
		k.add(path, oneLine(err))
	}
}

// unknown turns a warning of OPA's, which names a setting in quotes, into a
// problem.
func unknown(warning string) (path, message string) {
	if parts := strings.Split(warning, `"`); len(parts) == 3 {
		return parts[1], "OPA has no such setting: correct or remove it"
	}
	return "config", warning
}

// services returns the names; OPA takes a list as well as a mapping.
func (k *checker) services(c *config.Config) (names []string) {
	all := map[string]json.RawMessage{}
	var list []json.RawMessage
	switch {
	case c.Services == nil:
	case json.Unmarshal(c.Services, &list) == nil:
		for i, s := range list {
			var named struct{ Name string }
			if json.Unmarshal(s, &named) != nil || named.Name == "" {
				k.add(fmt.Sprintf("services[%d].name", i), "a service needs a name")
				continue
			}
			all[named.Name] = s
		}
	case json.Unmarshal(c.Services, &all) != nil:
		k.add("services", "must be a mapping of names to services")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		client, err := rest.New(all[name], nil)
		switch {
		case err != nil:
			k.problem("services."+name, err)
		case client.Config().URL == "" && client.Config().Type != "oci":
			k.add("services."+name+".url", "a service needs the URL where it is")
		}
		names = append(names, name)
	}
	return names
}

func (k *checker) bundles(c *config.Config, services []string, pairs map[string]*keys.Config) {
	var each map[string]json.RawMessage
	if c.Bundles == nil {
		return
	}
	if json.Unmarshal(c.Bundles, &each) != nil || len(each) == 0 {
		k.add("bundles", "must be a mapping of names to bundles")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(each)) {
		one, err := json.Marshal(map[string]json.RawMessage{name: each[name]})
		if err == nil {
			_, err = bundle.NewConfigBuilder().WithBytes(one).WithServices(services).WithKeyConfigs(pairs).Parse()
		}
		k.problem("bundles."+name, err)
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// strengthen fills in what keeps bundles within bounds, and has every bundle
// verified once there are keys: OPA alone would take one without a signature
// where the bundle's own signing is not set. It returns the names of the bundles.
func strengthen(c *config.Config, limit int64) (names []string, err error) {
	var pairs map[string]any
	if err := section(c.Keys, &pairs); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	var discovered map[string]any
	if err := section(c.Discovery, &discovered); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	if discovered != nil {
		sign(discovered, pairs)
		if c.Discovery, err = json.Marshal(discovered); err != nil {
			return nil, err
		}
	}
	var bundles map[string]map[string]any
	if err := section(c.Bundles, &bundles); err != nil {
		return nil, fmt.Errorf("bundles: %w", err)
	}
	for name, b := range bundles {
		if b == nil {
			continue
		}
		names = append(names, name)
		if _, set := b["size_limit_bytes"]; !set {
			b["size_limit_bytes"] = limit
		}
		sign(b, pairs)
	}
	if bundles != nil {
		c.Bundles, err = json.Marshal(bundles)
	}
	return names, err
}

func section[T any](raw json.RawMessage, into *T) error {
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return errors.New("must be a mapping of names to settings")
	}
	return nil
}

// sign has a bundle verified with any of the keys.
func sign(b map[string]any, pairs map[string]any) {
	if _, set := b["signing"]; !set && len(pairs) > 0 {
		b["signing"] = map[string]any{}
	}
}
