package registry

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/regogate/regogate/e2e/redisserver"
)

// Each fault is there from the start and is mended later, where it can be.
func TestCachedFaults(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (addr string, mend func()){
		"refused": func(t *testing.T) (string, func()) {
			s := redisserver.Start(t)
			s.Kill()
			return s.Addr, s.Start
		},
		"wrong password": func(t *testing.T) (string, func()) {
			s := redisserver.Start(t, "--requirepass", "another")
			return s.Addr, func() {
				s.Kill()
				s.Args = nil
				s.Start()
			}
		},
		"loading": func(t *testing.T) (string, func()) {
			m := miniredis.RunT(t)
			m.SetError("LOADING Redis is loading the dataset in memory")
			return m.Addr(), func() { m.SetError("") }
		},
		"too many clients": func(t *testing.T) (string, func()) {
			m := miniredis.RunT(t)
			m.SetError("ERR max number of clients reached")
			return m.Addr(), func() { m.SetError("") }
		},
		"hung": func(t *testing.T) (string, func()) { return hung(t), nil },
	} {
		t.Run(name, func(t *testing.T) {
			addr, mend := open(t)
			source := scriptedOf(t, validTool("a", "t"))
			c := cachedOver(t, source, addr)
			k := NewKeeper(c, Config{}, quiet())
			for i := range 3 {
				source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, validTool("a", strings.Repeat("t", i+1))) })
				start := time.Now()
				if err := k.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > 500*time.Millisecond {
					t.Errorf("a refresh took %s", took)
				}
				if _, found := k.Current().Lookup("a", strings.Repeat("t", i+1)); !found || !k.Fresh(time.Now()) {
					t.Error("the change did not arrive")
				}
			}
			if st := k.Status(); !st.Ready || len(st.Problems) != 1 || !strings.Contains(st.Problems[0], "cache in Redis cannot be used") {
				t.Errorf("status %+v", st)
			}
			before := c.Stats()
			if load(t, c); c.Stats() != before {
				t.Error("a Redis that is known to be down was asked")
			}
			if mend == nil {
				return
			}
			mend()
			eventually(t, 5*time.Second, "the status is well again", func() bool { return len(k.Status().Problems) == 0 })
			eventually(t, 5*time.Second, "it is cached", func() bool { load(t, c); return c.Stats().Hits > 0 })
		})
	}
}

// Redis is killed and wiped under running replicas, with hints lost; each
// keeps deciding on what the source says and is well again afterwards.
func TestCachedRedisRestarts(t *testing.T) {
	redis := redisserver.Start(t)
	source := scriptedOf(t, validTool("a", "t"))
	one, two := cachedOver(t, source, redis.Addr), cachedOver(t, source, redis.Addr)
	keepers := []*Keeper{NewKeeper(one, Config{}, quiet()), NewKeeper(two, Config{}, quiet())}
	arrives := func(name string) {
		t.Helper()
		source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, validTool("a", name)) })
		for _, k := range keepers {
			if err := k.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, found := k.Current().Lookup("a", name); !found {
				t.Errorf("%s did not arrive", name)
			}
		}
	}
	arrives("before")
	redis.Kill()
	arrives("while_down")
	for _, k := range keepers {
		eventually(t, 5*time.Second, "the status says so", func() bool { return len(k.Status().Problems) == 1 })
	}
	redis.Start()
	for _, k := range keepers {
		eventually(t, 10*time.Second, "the status is well again", func() bool { return len(k.Status().Problems) == 0 })
	}
	arrives("after")
	client := clientOf(t, redis.Addr)
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	arrives("flushed")
	arrives("before")
}

// Redis stops answering on connections that are open, and goes on later.
func TestCachedRedisFreezes(t *testing.T) {
	redis := redisserver.Start(t)
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, redis.Addr)
	load(t, c)
	if err := redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	load(t, c)
	if took := time.Since(start); took > 500*time.Millisecond {
		t.Errorf("a load took %s", took)
	}
	if len(c.Problems()) != 1 {
		t.Errorf("problems %q", c.Problems())
	}
	if err := redis.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the status is well again", func() bool { return len(c.Problems()) == 0 })
	if err := redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Nobody loads, so only the listener can notice.
	eventually(t, 10*time.Second, "the status says so", func() bool { return len(c.Problems()) == 1 })
}

// A writable master that becomes a replica refuses to store, and nothing else.
func TestCachedReadOnlyReplica(t *testing.T) {
	master := redisserver.Start(t)
	client := clientOf(t, master.Addr)
	defer client.Close()
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, master.Addr)
	if got := load(t, c); len(got.Tools) != 1 {
		t.Errorf("%+v", got)
	}
	eventually(t, 5*time.Second, "the status says so", func() bool { return len(c.Problems()) == 1 })
	if s := c.Stats(); s != (CacheStats{Misses: 1, Failures: 1}) || !strings.Contains(c.Problems()[0], "takes nothing new") {
		t.Errorf("stats %+v, problems %q", s, c.Problems())
	}
}
