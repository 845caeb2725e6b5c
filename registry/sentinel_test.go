package registry

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/link"
	"github.com/regogate/regogate/e2e/redisserver"
)

// overSentinels is a cache on the master that the sentinels know.
func overSentinels(t *testing.T, source Source, addrs ...string) *Cached {
	t.Helper()
	client, err := NewClient(RedisConfig{Addrs: addrs, Sentinel: &SentinelConfig{Master: redisserver.Master}, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	c := NewCached(source, client, "gw", cacheTTL, quiet())
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSentinelFailover kills the master under a replica that knows a sentinel
// which accepts connections and never answers, and brings it back later. Loads go
// on throughout, each in time and with what the source says.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	master := redisserver.Start(t)
	replica := redisserver.StartReplica(t, master)
	sentinels := redisserver.StartSentinels(t, 3, master)
	source := scriptedOf(t)
	c := overSentinels(t, source, hung(t), sentinels[0].Addr, sentinels[1].Addr)
	n := 0
	change := func() {
		n++
		source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, validTool("a", fmt.Sprint("t", n))) })
		start := time.Now()
		if got := load(t, c); got.Head != source.catalogue.Head {
			t.Errorf("loaded %v, want %v", got.Head, source.catalogue.Head)
		}
		if took := time.Since(start); took > loadTimeout/2 {
			t.Errorf("a load took %s", took)
		}
	}
	cachedAt := func(s *redisserver.Server) {
		t.Helper()
		start := time.Now()
		client := clientOf(t, s.Addr)
		defer client.Close()
		eventually(t, 60*time.Second, "changes are cached again", func() bool {
			change()
			key := c.keys.index(source.catalogue.Head.Digest)
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if client.Exists(t.Context(), key).Val() == 1 {
					return true
				}
			}
			return false
		})
		eventually(t, 20*time.Second, "the status is well", func() bool { return len(c.Problems()) == 0 })
		t.Logf("cached again after %s", time.Since(start))
	}
	cachedAt(master)
	master.Kill()
	cachedAt(replica)
	master.Start() // as a master, until the sentinels make it a replica
	cachedAt(replica)
}

// TestSentinelHangs stops the one sentinel that the client asks, and then kills
// the master: the client has to find the others.
func TestSentinelHangs(t *testing.T) {
	t.Parallel()
	master := redisserver.Start(t)
	redisserver.StartReplica(t, master)
	sentinels := redisserver.StartSentinels(t, 3, master)
	source := scriptedOf(t, validTool("a", "t"))
	c := overSentinels(t, source, sentinels[0].Addr)
	eventually(t, 20*time.Second, "it is cached", func() bool { load(t, c); return c.Stats().Hits > 0 })
	if err := sentinels[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	master.Kill()
	start := time.Now()
	eventually(t, 20*time.Second, "the status says so", func() bool { return len(c.Problems()) > 0 })
	eventually(t, 60*time.Second, "the status is well again", func() bool { return len(c.Problems()) == 0 })
	t.Logf("well again after %s", time.Since(start))
	before := c.Stats().Hits
	eventually(t, 20*time.Second, "it is cached", func() bool { load(t, c); return c.Stats().Hits > before })
}

// TestMasterBecomesReplica makes the master a read-only replica without closing
// connections, and the name that clients know lead to the new one. Values reach
// that without an error that anybody would notice.
func TestMasterBecomesReplica(t *testing.T) {
	t.Parallel()
	old := redisserver.Start(t)
	master := redisserver.StartReplica(t, old)
	way := link.New(t, old.Addr)
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, way.Addr)
	eventually(t, 20*time.Second, "it is cached", func() bool { load(t, c); return c.Stats().Hits > 0 })

	master.Do("REPLICAOF", "NO", "ONE")
	old.Do("REPLICAOF", "127.0.0.1", redisserver.Port(master.Addr))
	way.Point(master.Addr)
	source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, validTool("a", "u")) })
	load(t, c)
	client := clientOf(t, master.Addr)
	defer client.Close()
	key := c.keys.index(source.catalogue.Head.Digest)
	eventually(t, 20*time.Second, "the new master has it", func() bool { return client.Exists(t.Context(), key).Val() == 1 })
	if s := c.Stats(); s.Failures != 0 || len(c.Problems()) != 0 {
		t.Errorf("stats %+v, problems %q", s, c.Problems())
	}
}

// TestCluster has the index and its parts in slots of different nodes.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := redisserver.StartCluster(t, 3)
	var tools []Tool
	for i := range 20 {
		tools = append(tools, validTool(fmt.Sprint("server-", i), "t"))
	}
	source := scriptedOf(t, tools...)
	one := cachedWithin(t, source, patience, nodes[0].Addr, nodes[1].Addr)
	two := cachedWithin(t, source, patience, nodes[2].Addr, nodes[1].Addr)
	want := load(t, one)
	total := func() (n int) {
		for _, node := range nodes {
			client := clientOf(t, node.Addr)
			size := int(client.DBSize(t.Context()).Val())
			client.Close()
			if size == 0 {
				return 0
			}
			n += size
		}
		return n
	}
	eventually(t, 20*time.Second, "the nodes share the catalogue", func() bool { return total() == len(keysOf(want)) })
	if got := load(t, two); got.Head != want.Head || two.Stats() != (CacheStats{Hits: 1}) {
		t.Errorf("head %v, want %v, stats %+v", got.Head, want.Head, two.Stats())
	}
	receive(t, one.Changed(), "a hint")
	receive(t, two.Changed(), "a hint")
	nodes[0].Kill()
	source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, tools[1:]...) })
	for _, c := range []*Cached{one, two} {
		start := time.Now()
		if got := load(t, c); len(got.Tools) != 19 {
			t.Errorf("%d tools", len(got.Tools))
		}
		if took := time.Since(start); took > loadTimeout/2 {
			t.Errorf("a load took %s", took)
		}
	}
}
