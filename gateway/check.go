package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/limit"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// How long Check waits for the keys of the issuers, and for the servers, which
// may have to download themselves first.
const (
	keysWait    = 10 * time.Second
	bundlesWait = 10 * time.Second
	serversWait = time.Minute
)

// Report is what Check found.
type Report struct {
	Problems []strictyaml.Problem // in the order of the configuration, then of the files it names

	Servers, Issuers int
	Standings        []Standing // of the servers whose tools are known, by name
	Unstarted        []string   // commands that were not run because of problems in the file
}

// Check loads the configuration as Load does and tries everything that a
// gateway would use: the listener, the catalogue, the policy, the keys, the
// servers and the decision log. What has no problem itself is tried even where
// something else has one, so that all problems come back at once; only commands
// are not run where the file itself has a problem.
func Check(ctx context.Context, path string, env func(string) (string, bool), override func(*Config), o Options) *Report {
	c, positions, problems := read(path, env, override)
	r := &Report{Problems: problems, Servers: len(c.Servers), Issuers: len(c.Auth.Issuers)}
	if positions == nil {
		return r
	}
	k := &check{config: c, found: problems, faulty: len(problems) > 0}
	var files []strictyaml.Problem // these say where they are themselves
	var snapshot *registry.Snapshot
	var survey *Survey
	var parts sync.WaitGroup
	parts.Go(k.listener)
	parts.Go(k.admin)
	parts.Go(k.decisionLog)
	parts.Go(func() { k.keys(ctx) })
	parts.Go(func() { k.sessions(ctx) })
	parts.Go(func() { k.limits(ctx) })
	parts.Go(func() { survey = k.servers(ctx, o.Version) })
	parts.Go(func() {
		snapshot, files = k.registry(ctx, o)
		files = append(files, k.policy(ctx, o)...)
	})
	parts.Wait()
	positions.Locate(k.found)
	r.Problems = append(k.found, files...)
	r.Standings, r.Unstarted = standings(c, survey, snapshot), k.unstarted
	return r
}

// check tries the parts of a configuration. Its methods may run concurrently.
type check struct {
	config    *Config
	faulty    bool // the file has problems itself
	unstarted []string
	mu        sync.Mutex
	found     []strictyaml.Problem
}

func (k *check) add(path, format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	message := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	k.found = append(k.found, strictyaml.Problem{Path: path, Message: message})
}

// sound reports whether nothing is wrong so far with the path or below it.
func (k *check) sound(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(k.found, func(p strictyaml.Problem) bool { return below(p.Path, path) })
}

// file reports whether the file or directory of a setting is there.
func (k *check) file(path, name, mend string) bool {
	if name == "" {
		return true
	}
	if _, err := os.Stat(name); err != nil {
		k.add(path, "%s %s: %s", name, unreadable(err), mend)
		return false
	}
	return true
}

func (k *check) listener() {
	if !k.sound("listen") {
		return
	}
	l, err := net.Listen("tcp", k.config.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		k.add("listen", "%v: where that is the gateway that you are about to replace, check with --listen 127.0.0.1:0", err)
		return
	}
	if err != nil {
		k.add("listen", "%v: choose another address, or end what uses this one", err)
		return
	}
	l.Close()
}

// admin leaves the address alone: where it is in use, that is by the gateway
// that is about to be replaced.
func (k *check) admin() {
	if err := k.config.Admin.readable(); err != nil {
		path, message, _ := strings.Cut(err.Error(), ": ")
		k.add(path, "%s", message)
	}
}

// sessions tries the Redis that they are to be in: without it no client up to
// 2025-11-25 could begin.
func (k *check) sessions(ctx context.Context) {
	c := k.config.Sessions
	if c.Redis == nil || !k.sound("sessions") {
		return
	}
	store, err := session.NewRedis(c, time.Now, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		k.add("sessions.redis", "%v", err)
		return
	}
	defer store.Stop()
	if _, err := store.Use(ctx, "check", "check"); err != nil && !errors.Is(err, session.ErrUnknown) {
		k.add("sessions.redis", "%v: start it, or correct how it is reached", err)
	}
}

func (k *check) limits(ctx context.Context) {
	if !k.sound("limits.rate") {
		return
	}
	if err := limit.Check(ctx, k.config.Limits.Rate); err != nil {
		k.add("limits.rate.redis", "%v", err)
	}
}

func (k *check) decisionLog() {
	paths, _, err := k.config.maskPaths()
	if err == nil {
		_, err = k.config.masker(paths)
	}
	if err != nil {
		path, message, _ := strings.Cut(err.Error(), ": ")
		for line := range strings.SplitSeq(message, "\n") {
			k.add(path, "%s", line)
		}
	}
	name := k.config.DecisionLog.File
	if name == "" || name == "-" || !k.file("decision_log.file", filepath.Dir(name), "make the directory, or correct the path") {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0)
	switch {
	case err == nil:
		f.Close()
	case !os.IsNotExist(err):
		k.add("decision_log.file", "%v: correct the path, or who may write there", err)
	}
}

func (k *check) registry(ctx context.Context, o Options) (*registry.Snapshot, []strictyaml.Problem) {
	c := k.config.Registry
	if !k.sound("registry") || !k.file("registry.path", c.Path, "correct the path, or remove it to use the shipped catalogue") {
		return nil, nil
	}
	keeper, err := registry.Open(ctx, c, o.Catalogue, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, lines(err.Error())
	}
	defer keeper.Close()
	for _, p := range keeper.Status().Problems {
		k.add("registry", "%s", p)
	}
	return keeper.Current(), nil
}

func lines(text string) (list []strictyaml.Problem) {
	for line := range strings.SplitSeq(text, "\n") {
		list = append(list, strictyaml.Problem{Message: line})
	}
	return list
}

// policy reads the policy, or waits for its bundles, wherever they come from.
func (k *check) policy(ctx context.Context, o Options) (list []strictyaml.Problem) {
	c := k.config.Policy
	if !k.sound("policy.dir") || !k.sound("policy.insecure_builtins") || !k.sound("policy.opa") || !k.file("policy.dir", c.Dir, "correct the path, or remove it to use the shipped policies") {
		return nil
	}
	c.FS = o.Policies
	ctx, cancel := context.WithTimeout(ctx, bundlesWait)
	defer cancel()
	for _, p := range policy.Try(ctx, c) {
		list = append(list, strictyaml.Problem{Message: p.String()})
	}
	return list
}

// keys waits until every issuer has keys, each on its own so that one that is
// wrong hides no other.
func (k *check) keys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keysWait)
	defer cancel()
	var issuers sync.WaitGroup
	for i, issuer := range k.config.Auth.Issuers {
		if path := strictyaml.Index("auth.issuers", i); k.sound(path) && k.keyFiles(path, issuer) {
			issuers.Go(func() { k.issuer(ctx, path, issuer) })
		}
	}
	issuers.Wait()
}

func (k *check) keyFiles(path string, c auth.Issuer) bool {
	const mend = "put the issuer's keys there, or correct the path"
	return k.file(path+".jwks_file", c.JWKSFile, mend) && k.file(path+".public_key_file", c.PublicKeyFile, mend) &&
		k.file(path+".insecure_hmac_secret_file", c.InsecureHMACSecretFile, mend)
}

func (k *check) issuer(ctx context.Context, path string, c auth.Issuer) {
	v, err := auth.New(auth.Config{Issuers: []auth.Issuer{c}}, slog.New(slog.DiscardHandler))
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			field, message, _ := strings.Cut(strings.TrimPrefix(line, "issuers[0]."), ": ")
			k.add(path+"."+field, "%s", message)
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	status := func() auth.Status { return v.Status()[0] }
	waitFor(ctx, func() bool { return status().Usable || status().Problem != "" })
	if s := status(); !s.Usable {
		k.add(path, "no keys of %s: %s: correct its jwks_url, or make it reachable from here", c.Issuer, cmp.Or(s.Problem, "no answer within "+keysWait.String()))
	}
	cancel()
	<-ended
}

// servers looks at every server that is configured well. It returns nil where
// there is none.
func (k *check) servers(ctx context.Context, version string) *Survey {
	servers := k.config.upstreams()
	for _, name := range sortedKeys(servers) {
		switch {
		case !k.sound(strictyaml.Field("servers", name)):
			delete(servers, name)
		case k.faulty && servers[name].Command != "":
			delete(servers, name)
			k.unstarted = append(k.unstarted, name)
		}
	}
	if len(servers) == 0 {
		return nil
	}
	survey, err := Look(ctx, servers, version, serversWait)
	if err != nil {
		k.add("servers", "%v", err)
		return nil
	}
	for _, s := range survey.State.Servers {
		if text := survey.Trouble(s, servers[s.Name]); text != "" {
			k.add(strictyaml.Field("servers", s.Name), "%s", text)
		}
	}
	return survey
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

// exchanges reports whether any server is to see the user.
func (c *Config) exchanges() bool {
	for _, s := range c.Servers {
		if s.OAuth.Exchanges() {
			return true
		}
	}
	return false
}

// upstreams returns the servers as the backend leg wants them.
func (c *Config) upstreams() map[string]upstream.Config {
	servers := make(map[string]upstream.Config, len(c.Servers))
	for name, s := range c.Servers {
		servers[name] = s.Config
	}
	return servers
}
