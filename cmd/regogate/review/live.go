// Package review holds what MCP servers offer against what the registry says of
// it, for the people who approve it.
package review

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Live is what servers offer now.
type Live struct {
	Servers []upstream.Server // those whose tools are known, by name
	// Troubles are the servers that could not be looked at, or whose list did not
	// come to its end, by name.
	Troubles []Trouble
}

// Trouble says in one line what is wrong with a server, and how to mend it.
type Trouble struct {
	Server  string `json:"server"`
	Problem string `json:"problem"`
}

func (t Trouble) String() string { return t.Server + ": " + t.Problem }

// Servers are the servers of a configuration, as gateway.LoadRegistry returns it.
type Servers struct {
	Config  *gateway.Config
	Faults  map[string]string
	Version string        // of the program, which servers are told
	Wait    time.Duration // for all of them
}

// Look reaches every server once, or the one that is named, as a gateway of the
// configuration would. The error says that nothing could be looked at.
func (s Servers) Look(ctx context.Context, only string) (*Live, error) {
	names := slices.Sorted(maps.Keys(s.Config.Servers))
	switch {
	case only != "" && slices.Contains(names, only):
		names = []string{only}
	case only != "":
		return nil, fmt.Errorf("server %q: is not in the configuration%s", only, DidYouMean(only, names))
	case len(names) == 0:
		return nil, fmt.Errorf("the configuration has no servers: name them under servers")
	}
	live := &Live{}
	configs := map[string]upstream.Config{}
	for _, name := range names {
		if fault, faulty := s.Faults[name]; faulty {
			live.Troubles = append(live.Troubles, Trouble{name, fault})
			continue
		}
		configs[name] = s.Config.Servers[name].Config
	}
	survey, err := gateway.Look(ctx, configs, s.Version, s.Wait)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("look at the servers: %w", err)
	}
	for _, server := range survey.State.Servers {
		if text := survey.Trouble(server, configs[server.Name]); text != "" {
			live.Troubles = append(live.Troubles, Trouble{server.Name, text})
		}
		if server.Up {
			live.Servers = append(live.Servers, server)
		}
	}
	slices.SortFunc(live.Troubles, func(a, b Trouble) int { return cmp.Compare(a.Server, b.Server) })
	return live, nil
}

// DidYouMean ends an error about a name that is not known, with the likely one
// where there is one.
func DidYouMean(name string, known []string) string {
	if near := strictyaml.Nearest(name, known); near != "" && near != name {
		return ": did you mean " + near + "?"
	}
	return ""
}
