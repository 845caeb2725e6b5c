package estate_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/link"
	"github.com/regogate/regogate/e2e/pgserver"
	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/e2e/replica"
	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/auth/mint"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

type object = map[string]any

const (
	tools     = 10
	staleness = 2 * time.Second // max_staleness of every replica, the least there is
	// liveness bounds what has to come in the end. It finds what hangs, not what is
	// slow.
	liveness = 60 * time.Second
)

// policy allows what is registered, which nothing in quarantine is.
const policy = `package mcp.authz

default allow := false

allow if {
	input.claims.sub
	input.tool.registered
}
`

// estate is the replicas, the registry that they share, and a backend that writes
// down what reaches it.
type estate struct {
	dir     string
	pg      *pgserver.Server
	redis   *redisserver.Server
	backend *world.Server
	store   *registry.Postgres
	truth   *truth
	signer  *mint.Signer
	nodes   []*node
}

// node is a replica, with links of its own to what it shares.
type node struct {
	*replica.Replica
	pg, redis *link.Link
	client    *world.Client
	operators string // where it serves them, host:port
	options   replica.Options
}

// options of an estate.
type options struct {
	replicas int      // 3 where 0
	redis    []string // further arguments of redis-server
	bad      []string // what no replica may log; replica.Bad where nil
	policy   string   // of all; policy where ""
	unready  bool     // no replica is waited for
	// config changes the configuration of a replica; nil leaves it.
	config func(n *node, at int, config object)
}

func start(t testing.TB, o options) *estate {
	t.Helper()
	e := &estate{dir: t.TempDir(), pg: pgserver.Start(t), redis: redisserver.Start(t, o.redis...), truth: newTruth()}
	var err error
	if e.signer, err = mint.Generate("ES256"); err != nil {
		t.Fatal(err)
	}
	keys, err := mint.KeySet(e.signer)
	if err != nil {
		t.Fatal(err)
	}
	e.write(t, "keys.json", keys)
	if o.policy == "" {
		o.policy = policy
	}
	e.write(t, "policies/mcp/authz/authz.rego", []byte(o.policy))
	e.backend = &world.Server{Name: "alpha"}
	for i := range tools {
		e.backend.Tools = append(e.backend.Tools, jsontext.Value(fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object"}}`, i)))
	}
	served := httptest.NewServer(e.backend)
	t.Cleanup(func() { served.CloseClientConnections(); served.Close() })
	e.fill(t)
	if o.replicas == 0 {
		o.replicas = 3
	}
	for n := range o.replicas {
		e.nodes = append(e.nodes, e.join(t, n, served.URL, o))
	}
	return e
}

func (e *estate) write(t testing.TB, name string, data []byte) {
	t.Helper()
	path := filepath.Join(e.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// fill makes the registry, with an entry for each tool of the backend.
func (e *estate) fill(t testing.TB) {
	t.Helper()
	config := registry.PostgresConfig{URL: strictyaml.Secret(e.pg.URL("regogate", "postgres"))}
	if _, _, err := registry.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.store, err = registry.NewPostgres(t.Context(), config, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.store.Close() })
	given := registry.Catalogue{Servers: []registry.Server{{Name: "alpha"}}}
	for i := range tools {
		given.Tools = append(given.Tools, entry(i))
	}
	c, err := registry.NewCatalogue("", given)
	if err != nil {
		t.Fatal(err)
	}
	head, err := e.store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.store.Replace(t.Context(), registry.Author{Name: "test"}, head, c, registry.ReplaceOptions{}); err != nil {
		t.Fatal(err)
	}
}

// entry is what the registry says of a tool.
func entry(tool int) registry.Tool {
	return registry.Tool{Server: "alpha", Name: fmt.Sprint("t", tool), Attributes: []string{"developer"}, Effect: "read", Data: "internal", Reach: "closed"}
}

func (e *estate) join(t testing.TB, n int, backend string, o options) *node {
	t.Helper()
	x := &node{pg: link.New(t, e.pg.Addr), redis: link.New(t, e.redis.Addr), operators: free(t)}
	config := object{
		"listen": "127.0.0.1:0", "admin": object{"listen": x.operators}, "servers": object{"alpha": object{"url": backend}},
		"auth": object{"issuers": []object{{
			"issuer": "estate", "audience": []string{"estate"}, "algorithms": []string{"ES256"}, "jwks_file": "keys.json",
		}}},
		"policy":       object{"dir": "policies", "deadline": "10s", "list_deadline": "20s"},
		"decision_log": object{"file": fmt.Sprint("decisions", n, ".jsonl")},
		"registry": object{
			"postgres": object{"url": "postgres://regogate@" + x.pg.Addr + "/postgres", "timeout": "1s"},
			// Longer than by default, which a busy machine would not always keep to.
			"redis":         object{"url": "redis://" + x.redis.Addr, "timeout": "1s"},
			"max_staleness": staleness.String(),
		},
	}
	if o.config != nil {
		o.config(x, n, config)
	}
	x.options = replica.Options{Dir: e.dir, Name: fmt.Sprint("replica", n), Bad: o.bad, Unready: o.unready, Config: config}
	x.client = &world.Client{Token: e.token(t, "agent"), HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	t.Cleanup(x.client.HTTP.CloseIdleConnections)
	x.run(t)
	return x
}

// run starts the replica, again where it ran before.
func (n *node) run(t testing.TB) {
	t.Helper()
	n.Replica = replica.Start(t, n.options)
	n.client.URL = n.URL + "/mcp"
}

// restart ends the replica and starts it again, at another address.
func (n *node) restart(t testing.TB) {
	t.Helper()
	n.Stop(t)
	n.client.HTTP.CloseIdleConnections()
	n.run(t)
}

// token is one of a principal.
func (e *estate) token(t testing.TB, subject string) string {
	t.Helper()
	now := time.Now()
	token, err := e.signer.Sign(object{"iss": "estate", "aud": "estate", "sub": subject, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// quarantine and release change the registry and write the truth down.
func (e *estate) quarantine(ctx context.Context, tool int) error {
	_, err := e.store.Quarantine(ctx, registry.Author{Name: "test"}, registry.Quarantined{Server: "alpha", Tool: fmt.Sprint("t", tool), Reason: "a test"})
	if err == nil {
		e.truth.set(tool, true, time.Now())
	}
	return err
}

func (e *estate) release(ctx context.Context, tool int) error {
	e.truth.set(tool, false, time.Now())
	_, err := e.store.Release(ctx, registry.Author{Name: "test"}, "alpha", fmt.Sprint("t", tool))
	return err
}
