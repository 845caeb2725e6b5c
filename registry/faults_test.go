package registry

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/link"
	"github.com/regogate/regogate/e2e/redisserver"
)

// logged is a log that a test reads while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// patience is what a test gives a Redis that fails, for a command. It is more than
// by default, since one that is well has to keep it on a busy machine.
const patience = time.Second

// Each fault is there from the start and is mended later, where it can be.
func TestCachedFaults(t *testing.T) {
	const unusable, full = "cache in Redis cannot be used", "cache in Redis takes nothing new"
	for name, c := range map[string]struct {
		open func(t *testing.T) (addr string, mend func())
		says string // of the problem
		why  string
	}{
		"refused":        {refused, unusable, "connection refused"},
		"hung":           {func(t *testing.T) (string, func()) { return hung(t), nil }, unusable, ""},
		"wrong password": {wrongPassword, unusable, "NOAUTH"},
		"loading":        {loading, unusable, "LOADING"},
		"max clients":    {maxClients, unusable, ""},
		"no memory":      {noMemory, full, "OOM"},
		"2 s late":       {late(time.Second), unusable, ""},
		// In time for the subscription and not for those who load.
		"0.7 s late": {late(350 * time.Millisecond), unusable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, mend := c.open(t)
			source := scriptedOf(t, validTool("a", "t"))
			var log logged
			cached := NewCached(source, clientWithin(t, patience, addr), "gw", cacheTTL, log.logger())
			t.Cleanup(func() { cached.Close() })
			k := NewKeeper(cached, Config{}, quiet())
			for i := range 3 {
				follows(t, k, source, strings.Repeat("t", i+1))
			}
			eventually(t, 20*time.Second, "the status says so", func() bool {
				p := k.Status().Problems
				return len(p) == 1 && strings.Contains(p[0], c.says) && strings.Contains(p[0], c.why)
			})
			if !k.Status().Ready {
				t.Error("not ready")
			}
			if c.says == unusable {
				before := cached.Stats()
				if load(t, cached); cached.Stats() != before || before.Hits+before.Misses+before.Rejected != 0 {
					t.Errorf("stats %+v, after a load while it is known to be down %+v", before, cached.Stats())
				}
			}
			if mend == nil {
				return
			}
			mend()
			eventually(t, 20*time.Second, "the status is well again", func() bool { return len(k.Status().Problems) == 0 })
			eventually(t, 20*time.Second, "it is cached", func() bool { load(t, cached); return cached.Stats().Hits > 0 })
			if began, ended := log.count("level=WARN"), log.count("level=INFO"); began != 1 || ended != 1 {
				t.Errorf("it was logged %d times that it began and %d times that it ended:\n%s", began, ended, &log.text)
			}
		})
	}
}

// follows changes the source and has the keeper take the change over in time.
func follows(t *testing.T, k *Keeper, source *scripted, tool string) {
	t.Helper()
	source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, validTool("a", tool)) })
	start := time.Now()
	if err := k.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > loadTimeout/2 {
		t.Errorf("a refresh took %s", took)
	}
	if _, found := k.Current().Lookup("a", tool); !found || !k.Fresh(time.Now()) {
		t.Errorf("%s did not arrive", tool)
	}
}

func refused(t *testing.T) (string, func()) {
	s := redisserver.Start(t)
	s.Kill()
	return s.Addr, s.Start
}

func wrongPassword(t *testing.T) (string, func()) {
	s := redisserver.Start(t, "--requirepass", "another")
	return s.Addr, func() {
		s.Kill()
		s.Args = nil
		s.Start()
	}
}

// loading is a server that takes its time over each of the keys that it kept.
func loading(t *testing.T) (string, func()) {
	s := redisserver.Start(t, "--rdbcompression", "no")
	all := []any{"MSET"}
	for i := range 5000 {
		all = append(all, fmt.Sprint("k", i), strings.Repeat("v", 64))
	}
	s.Do(all...)
	s.Do("SAVE")
	s.Kill()
	s.Args = []string{"--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"}
	s.Start()
	return s.Addr, func() { s.Do("CONFIG", "SET", "key-load-delay", "0") }
}

func maxClients(t *testing.T) (string, func()) {
	s := redisserver.Start(t, "--maxclients", "1")
	only := redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 1, PipelinePoolSize: -1})
	t.Cleanup(func() { only.Close() })
	if err := only.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return s.Addr, func() {
		if err := only.ConfigSet(t.Context(), "maxclients", "100").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func noMemory(t *testing.T) (string, func()) {
	s := redisserver.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	return s.Addr, func() { s.Do("CONFIG", "SET", "maxmemory", "0") }
}

// late takes that long each way.
func late(by time.Duration) func(t *testing.T) (string, func()) {
	return func(t *testing.T) (string, func()) {
		l := link.New(t, redisserver.Start(t).Addr)
		l.Delay(by)
		return l.Addr, func() { l.Delay(0) }
	}
}

// Redis is killed and wiped under running replicas, with hints lost; each
// keeps deciding on what the source says and is well again afterwards.
func TestCachedRedisRestarts(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	source := scriptedOf(t, validTool("a", "t"))
	one, two := cachedWithin(t, source, patience, server.Addr), cachedWithin(t, source, patience, server.Addr)
	keepers := []*Keeper{NewKeeper(one, Config{}, quiet()), NewKeeper(two, Config{}, quiet())}
	arrives := func(name string) {
		t.Helper()
		for _, k := range keepers {
			follows(t, k, source, name)
		}
	}
	arrives("before")
	server.Kill()
	arrives("while_down")
	for _, k := range keepers {
		eventually(t, 20*time.Second, "the status says so", func() bool { return len(k.Status().Problems) == 1 })
	}
	server.Start()
	for _, k := range keepers {
		eventually(t, 20*time.Second, "the status is well again", func() bool { return len(k.Status().Problems) == 0 })
	}
	arrives("after")
	server.Do("FLUSHALL")
	arrives("flushed")
	arrives("before")
}

// Redis stops answering on connections that are open, and goes on later.
func TestCachedRedisFreezes(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedWithin(t, source, patience, server.Addr)
	load(t, c)
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	load(t, c)
	if took := time.Since(start); took > loadTimeout/2 {
		t.Errorf("a load took %s", took)
	}
	if len(c.Problems()) != 1 {
		t.Errorf("problems %q", c.Problems())
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the status is well again", func() bool { return len(c.Problems()) == 0 })
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Nobody loads, so only the listener can notice.
	eventually(t, 20*time.Second, "the status says so", func() bool { return len(c.Problems()) == 1 })
}

// A master that becomes a read-only replica refuses to store, and nothing else.
func TestCachedReadOnlyReplica(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	server.Do("REPLICAOF", "127.0.0.1", "1")
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, server.Addr)
	if got := load(t, c); len(got.Tools) != 1 {
		t.Errorf("%+v", got)
	}
	eventually(t, 20*time.Second, "the status says so", func() bool { return len(c.Problems()) == 1 })
	if s := c.Stats(); s != (CacheStats{Misses: 1, Failures: 1}) || !strings.Contains(c.Problems()[0], "takes nothing new") ||
		!strings.Contains(c.Problems()[0], "READONLY") {
		t.Errorf("stats %+v, problems %q", s, c.Problems())
	}
	server.Do("REPLICAOF", "NO", "ONE")
	eventually(t, 20*time.Second, "the status is well again", func() bool { return len(c.Problems()) == 0 })
}

// What is current is in Redis again soon after it was wiped, or a part of it was
// evicted and a replica found that, although nothing changes.
func TestCachedHeals(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	client := clientOf(t, server.Addr)
	defer client.Close()
	source := scriptedOf(t, validTool("a", "t"), validTool("b", "t"))
	c := cachedOver(t, source, server.Addr)
	keys := keysOf(load(t, c))
	whole := func() bool { return client.Exists(t.Context(), keys...).Val() == int64(len(keys)) }
	eventually(t, 20*time.Second, "Redis has the catalogue", whole)
	server.Do("FLUSHALL")
	eventually(t, 30*time.Second, "Redis has the catalogue again", whole)
	server.Do("DEL", keys[2])
	other := cachedOver(t, source, server.Addr)
	if got := load(t, other); !reflect.DeepEqual(got, source.catalogue) || other.Stats() != (CacheStats{Misses: 1}) {
		t.Errorf("got %+v, stats %+v", got, other.Stats())
	}
	eventually(t, 20*time.Second, "Redis has the part again", whole)
}

// What one replica has in memory and Redis has not is set, not just kept alive.
func TestCachedKeepsWholeCatalogues(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	client := clientOf(t, server.Addr)
	defer client.Close()
	source := scriptedOf(t, validTool("a", "t"), validTool("b", "t"))
	c := cachedOver(t, source, server.Addr)
	old := keysOf(load(t, c))
	eventually(t, 20*time.Second, "Redis has the catalogue", func() bool { return client.Exists(t.Context(), old[0]).Val() == 1 })
	server.Do("DEL", old[1]) // of a, which does not change
	server.Do("PEXPIRE", old[2], 600_000)
	source.set(func(s *scripted) {
		s.catalogue = mustCatalogue(t, validTool("a", "t"), validTool("b", "t"), validTool("c", "t"))
	})
	// With the index there, so that the parts are looked for.
	index, _ := encoded(t, source.catalogue)
	keys := keysOf(source.catalogue)
	server.Do("SET", keys[0], index)
	load(t, c)
	eventually(t, 20*time.Second, "Redis has every part", func() bool { return client.Exists(t.Context(), keys...).Val() == 4 })
	eventually(t, 20*time.Second, "all of it lives as long", func() bool {
		for _, key := range keys {
			if client.TTL(t.Context(), key).Val() < cacheTTL-time.Minute {
				return false
			}
		}
		return true
	})
	other := cachedOver(t, source, server.Addr)
	if got := load(t, other); !reflect.DeepEqual(got, source.catalogue) || other.Stats() != (CacheStats{Hits: 1}) {
		t.Errorf("got %+v, stats %+v", got, other.Stats())
	}
}

// A change of one server costs Redis that server's part and the index.
func TestCachedWritesWhatChanged(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	client := clientOf(t, server.Addr)
	defer client.Close()
	source := scriptedOf(t, validTool("a", "t"), validTool("b", "t"), validTool("c", "t"))
	c := cachedOver(t, source, server.Addr)
	for _, want := range []int{4, 6, 8} {
		keys := keysOf(load(t, c))
		eventually(t, 20*time.Second, "Redis has the catalogue", func() bool { return client.Exists(t.Context(), keys...).Val() == 4 })
		stats, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil || !strings.Contains(stats, fmt.Sprintf("cmdstat_set:calls=%d,", want)) {
			t.Errorf("error %v, want %d calls of set in\n%s", err, want, stats)
		}
		source.set(func(s *scripted) {
			s.catalogue = mustCatalogue(t, validTool("a", "t"), validTool("b", fmt.Sprint("t", want)), validTool("c", "t"))
		})
	}
}

// A Redis that is too small evicts parts at will: loads are right all the same.
func TestCachedEvicts(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t, "--maxmemory", "1mb", "--maxmemory-policy", "allkeys-lru")
	source := scriptedOf(t)
	replicas := []*Cached{cachedOver(t, source, server.Addr), cachedOver(t, source, server.Addr)}
	var tools []Tool
	for i := range 2000 {
		tool := validTool(fmt.Sprint("server-", i%20), fmt.Sprint("tool-", i))
		tool.Description = strings.Repeat("x", 400)
		tools = append(tools, tool)
	}
	for n := range 10 {
		source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, append([]Tool(nil), tools[n:]...)...) })
		for _, c := range replicas {
			c.last.Store(nil)
			if got := load(t, c); !reflect.DeepEqual(got, source.catalogue) {
				t.Errorf("round %d: %d tools", n, len(got.Tools))
			}
		}
	}
	for _, c := range replicas {
		if s := c.Stats(); s.Rejected != 0 || s.Hits+s.Misses != 10 {
			t.Errorf("stats %+v", s)
		}
	}
}
