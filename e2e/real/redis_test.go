package real_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/clients"
)

// store is a redis-server of the test's own.
type store struct {
	address string
	cmd     *exec.Cmd
}

// newStore starts a redis-server on a free port. The test is skipped, or failed
// as clients.Dir says, where there is none on the PATH.
func newStore(t *testing.T) *store {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("REGOGATE_E2E") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &store{address: l.Addr().String()}
	l.Close()
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

func (s *store) start(t *testing.T) {
	t.Helper()
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "Redis answers", func() bool {
		client := redis.NewClient(&redis.Options{Addr: s.address})
		defer client.Close()
		return client.Ping(t.Context()).Err() == nil
	})
}

// kill leaves the server no time to say goodbye.
func (s *store) kill(t *testing.T) {
	t.Helper()
	_ = s.cmd.Process.Kill() // it may be dead already
	_ = s.cmd.Wait()         // it was killed
}

// keys returns all keys in the store.
func (s *store) keys(ctx context.Context, t *testing.T) []string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.address})
	defer client.Close()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestRedis has the registry cached in Redis and takes that away: decisions go
// on, changes are seen as soon as before, and readiness tells.
func TestRedis(t *testing.T) {
	clients.Dir(t)
	cache := newStore(t)
	s := newStand(t, ledger)
	s.config["registry"].(map[string]any)["redis"] = map[string]any{"url": "redis://" + cache.address, "prefix": "real"}
	s.run(t)
	session, err := connect(t, s.URL+"/mcp", s.tokens[clerk], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	lists := func(want ...string) bool {
		names, err := listNames(t, session)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Equal(under(names, ledger), want)
	}
	if !lists("list_charges", "get_charge") {
		t.Fatal("the list is another one at first")
	}
	if keys := cache.keys(t.Context(), t); len(keys) != 1 || !strings.HasPrefix(keys[0], "real:v2:catalogue:") {
		t.Errorf("in Redis are %v, want the catalogue", keys)
	}

	cache.kill(t)
	took := within(t, 10*time.Second, "degraded", func() bool {
		if !lists("list_charges", "get_charge") {
			t.Fatal("the list is another one without Redis")
		}
		return s.ready(t).Parts["registry"] == "degraded"
	})
	if r := s.ready(t); r.code != 200 || r.Status != "degraded" {
		t.Errorf("/readyz says %+v, want 200 and degraded", r)
	}
	t.Logf("degraded after %v", took.Round(time.Millisecond))
	s.onlyArrives(t, session, []string{"list_charges", "create_refund"}, []string{"list_charges"})
	edit(t, s.catalogue, "get_charge: {", "get_charge: {data: secret, ", save)
	took = within(t, atOnce, "a change without Redis", func() bool { return lists("list_charges") })
	t.Logf("without Redis a change was in force after %v", took.Round(time.Millisecond))
	s.onlyArrives(t, session, []string{"list_charges", "get_charge"}, []string{"list_charges"})

	cache.start(t)
	took = within(t, 30*time.Second, "ready", func() bool { return s.status(t) == "ready" })
	t.Logf("ready %v after Redis came back", took.Round(time.Millisecond))
	edit(t, s.catalogue, "get_charge: {data: secret, ", "get_charge: {", save)
	within(t, atOnce, "a change with Redis again", func() bool { return lists("list_charges", "get_charge") })
	within(t, 10*time.Second, "Redis has the catalogue again", func() bool { return len(cache.keys(t.Context(), t)) > 0 })
}
