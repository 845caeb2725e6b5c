package gateway

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// checkWait is how long Check waits for keys and for each backend.
const checkWait = 10 * time.Second

// Check tries everything that a gateway with this configuration would use, and
// returns all that is wrong at once, a line each: catalogue, policy, keys,
// backends and the listener. The configuration must have passed Validate.
func Check(ctx context.Context, c *Config, o Options) []string {
	quiet := slog.New(slog.DiscardHandler)
	problems := checkListener(c)
	keeper, err := registry.Open(ctx, c.Registry, o.Catalogue, quiet)
	if err != nil {
		problems = append(problems, lines("registry", err)...)
	} else {
		for _, p := range keeper.Status().Problems {
			problems = append(problems, "registry: "+p)
		}
		keeper.Close()
	}
	c.Policy.FS = o.Policies
	for _, p := range policy.Check(c.Policy) {
		problems = append(problems, "policy: "+p.String())
	}
	problems = append(problems, checkKeys(ctx, c, quiet)...)
	return append(problems, checkBackends(ctx, c, quiet)...)
}

func lines(part string, err error) []string {
	var out []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		out = append(out, part+": "+line)
	}
	return out
}

func checkListener(c *Config) []string {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return []string{"listen: " + err.Error() + ": choose another address, or end what uses this one"}
	}
	l.Close()
	return nil
}

// checkKeys waits until every issuer has keys, or for checkWait.
func checkKeys(ctx context.Context, c *Config, log *slog.Logger) []string {
	v, err := auth.New(c.Auth, log)
	if err != nil {
		return lines("auth", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	usable := func() bool {
		for _, s := range v.Status() {
			if !s.Usable {
				return false
			}
		}
		return true
	}
	waitFor(ctx, usable)
	var problems []string
	for i, s := range v.Status() {
		if !s.Usable {
			problems = append(problems, strictyaml.Index("auth.issuers", i)+": no keys of "+s.Issuer+": "+s.Problem)
		}
	}
	return problems
}

// checkBackends waits until every backend has been looked at.
func checkBackends(ctx context.Context, c *Config, log *slog.Logger) []string {
	pool, err := upstream.New(c.upstreams(), upstream.Options{Log: log})
	if err != nil {
		return lines("servers", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	select {
	case <-pool.Settled():
	case <-ctx.Done():
	}
	var problems []string
	for _, s := range pool.Current().Servers {
		switch {
		case !s.Up && s.Problem == "":
			problems = append(problems, strictyaml.Field("servers", s.Name)+": no answer within "+checkWait.String())
		case !s.Up || s.Partial:
			problems = append(problems, strictyaml.Field("servers", s.Name)+": "+s.Problem)
		}
	}
	cancel()
	<-ended
	pool.Close()
	return problems
}

func waitFor(ctx context.Context, done func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// upstreams returns the servers as the backend leg wants them.
func (c *Config) upstreams() map[string]upstream.Config {
	servers := make(map[string]upstream.Config, len(c.Servers))
	for name, s := range c.Servers {
		servers[name] = s.Config
	}
	return servers
}
