package gateway

import (
	"strings"

	"github.com/regogate/regogate/registry/strictyaml"
)

// LoadRegistry loads the configuration as Load does, for work on the registry and
// for a look at the servers, which need nothing else of it: whoever does that may
// lack the variables and files that the gateway has. The problems are those of
// registry and of what stands at the top level; with any, the Config is not to be
// used. faults holds the first problem of each server that has one, by its name;
// such a server is not to be used.
func LoadRegistry(path string, env func(string) (string, bool)) (c *Config, faults map[string]string, problems []strictyaml.Problem) {
	c, _, found := read(path, env, nil)
	faults = map[string]string{}
	for _, p := range found {
		if !strings.ContainsAny(p.Path, ".[") || below(p.Path, "registry") {
			problems = append(problems, p)
		}
		for name := range c.Servers {
			if below(p.Path, strictyaml.Field("servers", name)) && faults[name] == "" {
				faults[name] = p.String()
			}
		}
	}
	return c, faults, problems
}
