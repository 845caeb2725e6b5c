package estate_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/link"
	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/e2e/replica"
)

// TestSentinels is B097: three sentinels, one of which hangs, fail over when the
// master dies, and again to the one that came back as a read-only replica. Requests
// notice nothing, and each new master has what is current without a restart.
func TestSentinels(t *testing.T) {
	t.Parallel()
	first := redisserver.Start(t)
	second := redisserver.StartReplica(t, first)
	sentinels := redisserver.StartSentinels(t, 3, first)
	hung := link.New(t, sentinels[2].Addr)
	hung.Set(link.Hung)
	e := start(t, options{replicas: 2, config: func(_ *node, _ int, config object) {
		config["registry"].(object)["redis"] = object{
			"addrs":    []string{hung.Addr, sentinels[0].Addr, sentinels[1].Addr},
			"sentinel": object{"master": redisserver.Master}, "timeout": "1s",
		}
	}})
	x := e.run(t)
	current := func(master *redisserver.Server, what string) {
		t.Helper()
		client := redis.NewClient(&redis.Options{Addr: master.Addr})
		defer client.Close()
		head, err := e.store.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		took := replica.Within(t, liveness, what+" is the master and has what is current", func() bool {
			role, err := client.Do(t.Context(), "ROLE").Slice()
			return err == nil && role[0] == "master" && client.Exists(t.Context(), "regogate:v3:index:"+head.Digest).Val() == 1
		})
		t.Logf("%s had what is current after %v", what, took)
		for at, n := range e.nodes {
			replica.Within(t, liveness, fmt.Sprintf("replica %d is ready", at), func() bool { return n.Status() == "ready" })
		}
		e.cycle(t, 1)
	}
	current(first, "the first")
	first.Kill()
	e.cycle(t, 0)
	current(second, "the second")
	first.Start()
	replica.Within(t, liveness, "the sentinels make the first a replica of the second", func() bool {
		client := redis.NewClient(&redis.Options{Addr: first.Addr})
		defer client.Close()
		role, err := client.Do(t.Context(), "ROLE").Slice()
		return err == nil && role[0] == "slave" && role[3] == "connected"
	})
	replica.Within(t, liveness, "a sentinel takes the command to fail over", func() bool {
		client := redis.NewClient(&redis.Options{Addr: sentinels[0].Addr})
		defer client.Close()
		return client.Do(t.Context(), "SENTINEL", "FAILOVER", redisserver.Master).Err() == nil
	})
	e.cycle(t, 2)
	current(first, "the first, back,")
	x.halt(t)
	x.report(t)
	for at := range e.nodes {
		if n := x.count(at, stale); n > 0 {
			t.Errorf("replica %d denied %d requests as stale", at, n)
		}
	}
}
