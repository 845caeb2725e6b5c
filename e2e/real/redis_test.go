package real_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/clients"
	"github.com/regogate/regogate/e2e/redisserver"
)

// keysOf returns all keys in a Redis.
func keysOf(t *testing.T, address string) []string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestRedis has the registry cached in Redis and takes that away: decisions go
// on, changes are seen as soon as before, and readiness tells.
func TestRedis(t *testing.T) {
	clients.Dir(t)
	cache := redisserver.Start(t)
	s := newStand(t, ledger)
	s.config["registry"].(map[string]any)["redis"] = map[string]any{"url": "redis://" + cache.Addr, "prefix": "real"}
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
	within(t, 10*time.Second, "the catalogue in Redis", func() bool {
		keys := keysOf(t, cache.Addr)
		has := func(prefix string) bool {
			return slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, prefix) })
		}
		return has("real:v3:index:") && has("real:v3:server:"+ledger+":")
	})

	cache.Kill()
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

	cache.Start()
	took = within(t, 30*time.Second, "ready", func() bool { return s.status(t) == "ready" })
	t.Logf("ready %v after Redis came back", took.Round(time.Millisecond))
	edit(t, s.catalogue, "get_charge: {data: secret, ", "get_charge: {", save)
	within(t, atOnce, "a change with Redis again", func() bool { return lists("list_charges", "get_charge") })
	within(t, 10*time.Second, "Redis has the catalogue again", func() bool { return len(keysOf(t, cache.Addr)) > 0 })
}
