package registry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/regogate/regogate/e2e/redisserver"
)

const cacheTTL = time.Hour

func cachedOver(t *testing.T, source Source, addr string) *Cached {
	return cachedWithin(t, source, addr, maxTimeout)
}

func cachedWithin(t *testing.T, source Source, addr string, timeout time.Duration) *Cached {
	t.Helper()
	c := NewCached(source, clientWithin(t, addr, timeout), "gw", cacheTTL, quiet())
	t.Cleanup(func() { c.Close() })
	return c
}

func scriptedOf(t *testing.T, tools ...Tool) *scripted {
	return &scripted{catalogue: mustCatalogue(t, tools...)}
}

// keysOf are the keys that hold the catalogue, sorted.
func keysOf(c *Catalogue) []string {
	all := []string{"gw:v3:index:" + c.Head.Digest}
	for _, ref := range c.parts {
		all = append(all, "gw:v3:server:"+ref.Name+":"+ref.Digest)
	}
	return all
}

func TestCachedFillsOnceForAllReplicas(t *testing.T) {
	redis := miniredis.RunT(t)
	source := scriptedOf(t, validTool("a", "t"))
	first := cachedOver(t, source, redis.Addr())
	second := cachedOver(t, source, redis.Addr())
	want := source.catalogue
	for _, c := range []*Cached{first, second, first, second} {
		if got := load(t, c); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if n := source.loads.Load(); n != 1 {
		t.Errorf("the source was loaded %d times", n)
	}
	if s := first.Stats(); s != (CacheStats{Hits: 1, Misses: 1}) {
		t.Errorf("first: %+v", s)
	}
	if s := second.Stats(); s != (CacheStats{Hits: 2}) {
		t.Errorf("second: %+v", s)
	}
	if got, want := redis.Keys(), keysOf(want); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	for _, key := range redis.Keys() {
		if ttl := redis.TTL(key); ttl < cacheTTL || ttl > cacheTTL*11/10+time.Second {
			t.Errorf("%s: time to live %s", key, ttl)
		}
	}
}

func TestCachedSharesOneFill(t *testing.T) {
	redis := miniredis.RunT(t)
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, redis.Addr())
	h := head(t, c)
	source.mu.Lock() // the fill waits in Load
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := c.Load(t.Context(), h); err != nil || got.Head != h {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	eventually(t, 20*time.Second, "the source is asked", func() bool { return source.loads.Load() == 1 })
	impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Load(impatient, h); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that gives up: %v", err)
	}
	source.mu.Unlock()
	wg.Wait()
	if n := source.loads.Load(); n != 1 {
		t.Errorf("the source was loaded %d times", n)
	}
}

func TestCachedKeepsNoErrors(t *testing.T) {
	redis := miniredis.RunT(t)
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, redis.Addr())
	h := head(t, c)
	source.set(func(s *scripted) { s.loadErr = errors.New("warming up") })
	if _, err := c.Load(t.Context(), h); !errors.Is(err, source.loadErr) {
		t.Errorf("error %v", err)
	}
	if keys := redis.Keys(); len(keys) != 0 {
		t.Errorf("an error left %q", keys)
	}
	source.set(func(s *scripted) { s.loadErr = nil })
	if got := load(t, c); len(got.Tools) != 1 {
		t.Errorf("%+v", got)
	}
}

// A source whose catalogue does not have its digest is used and not cached.
func TestCachedStoresOnlyWhatItCouldRead(t *testing.T) {
	redis := miniredis.RunT(t)
	source := scriptedOf(t, validTool("a", "t"))
	source.catalogue.Head.Digest = strings.Repeat("0", 64)
	if got := load(t, cachedOver(t, source, redis.Addr())); len(got.Tools) != 1 {
		t.Errorf("%+v", got)
	}
	if keys := redis.Keys(); len(keys) != 0 {
		t.Errorf("stored %q", keys)
	}
}

// The source moves on between Head and Load.
func TestCachedSourceMovesOn(t *testing.T) {
	redis := miniredis.RunT(t)
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, redis.Addr())
	old := head(t, c)
	newer := mustCatalogue(t, validTool("a", "u"))
	source.set(func(s *scripted) { s.catalogue = newer })
	got, err := c.Load(t.Context(), old)
	if err != nil || got.Head != newer.Head {
		t.Fatalf("%v, %v", got, err)
	}
	if got, want := redis.Keys(), keysOf(newer); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
}

// What somebody else put into Redis never becomes an attribute: it is a miss,
// an alarm, and replaced.
func TestCachedPoison(t *testing.T) {
	good := mustCatalogue(t, validTool("a", "t"))
	index, parts := encoded(t, good)
	other := validTool("a", "t")
	other.Effect, other.Suggested = "admin", true
	otherIndex, otherParts := encoded(t, mustCatalogue(t, other))
	without, withoutParts := encoded(t, both(t, nil, good.Tools...))
	keys := keysOf(good)
	fill := func(m *miniredis.Miniredis, values ...string) {
		for n, v := range values {
			m.Set(keys[n], v)
		}
	}
	for name, poison := range map[string]func(m *miniredis.Miniredis){
		"another catalogue": func(m *miniredis.Miniredis) { fill(m, otherIndex, otherParts[0]) },
		"truncated":         func(m *miniredis.Miniredis) { fill(m, index[:len(index)/2], parts[0]) },
		"longer":            func(m *miniredis.Miniredis) { fill(m, index+" ", parts[0]) },
		"one bit":           func(m *miniredis.Miniredis) { fill(m, strings.Replace(index, `"size":`, `"size":1`, 1), parts[0]) },
		"no server":         func(m *miniredis.Miniredis) { fill(m, without, withoutParts[0]) },
		"not JSON":          func(m *miniredis.Miniredis) { fill(m, "\x00\xff", parts[0]) },
		"the part's bytes":  func(m *miniredis.Miniredis) { fill(m, parts[0], index) },
		"another type":      func(m *miniredis.Miniredis) { m.Lpush(keys[0], index); m.Set(keys[1], parts[0]) },

		"another part":          func(m *miniredis.Miniredis) { fill(m, index, otherParts[0]) },
		"part truncated":        func(m *miniredis.Miniredis) { fill(m, index, parts[0][:len(parts[0])-1]) },
		"part longer":           func(m *miniredis.Miniredis) { fill(m, index, parts[0]+strings.Repeat(" ", 1<<20)) },
		"part with one bit":     func(m *miniredis.Miniredis) { fill(m, index, strings.Replace(parts[0], "read", "reaD", 1)) },
		"part of another data":  func(m *miniredis.Miniredis) { fill(m, index, strings.Replace(parts[0], "public", "secret", 1)) },
		"part without a server": func(m *miniredis.Miniredis) { fill(m, index, withoutParts[0]) },
		"part not JSON":         func(m *miniredis.Miniredis) { fill(m, index, "\x00\xff") },
		"part of another type":  func(m *miniredis.Miniredis) { m.Set(keys[0], index); m.Lpush(keys[1], parts[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			redis := miniredis.RunT(t)
			poison(redis)
			var log bytes.Buffer
			source := &scripted{catalogue: good}
			c := NewCached(source, clientOf(t, redis.Addr()), "gw", cacheTTL, slog.New(slog.NewTextHandler(&log, nil)))
			for range 2 {
				if got := load(t, c); !reflect.DeepEqual(got, good) {
					t.Errorf("got %+v", got)
				}
			}
			if s := c.Stats(); s != (CacheStats{Hits: 1, Rejected: 1}) || source.loads.Load() != 1 {
				t.Errorf("stats %+v, %d loads of the source", s, source.loads.Load())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
				t.Errorf("%d alarms in:\n%s", n, &log)
			}
			for n, want := range []string{index, parts[0]} {
				if v, err := redis.Get(keys[n]); err != nil || v != want {
					t.Errorf("the poison was not replaced: %q, %v", v, err)
				}
			}
		})
	}
}

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
			c := cachedWithin(t, source, addr, 0)
			k := NewKeeper(c, Config{}, quiet())
			for i := range 3 {
				source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, validTool("a", strings.Repeat("t", i+1))) })
				start := time.Now()
				if err := k.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > loadTimeout/2 {
					t.Errorf("a refresh took %s", took)
				}
				if _, found := k.Current().Lookup("a", strings.Repeat("t", i+1)); !found || !k.Fresh(time.Now()) {
					t.Error("the change did not arrive")
				}
			}
			if st := k.Status(); !st.Ready || len(st.Problems) != 1 || !strings.Contains(st.Problems[0], "cache cannot be used") {
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
			eventually(t, 20*time.Second, "the status is well again", func() bool { return len(k.Status().Problems) == 0 })
			load(t, c)
			if load(t, c); c.Stats().Hits == 0 {
				t.Errorf("not cached after the recovery: %+v", c.Stats())
			}
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
		eventually(t, 20*time.Second, "the status says so", func() bool { return len(k.Status().Problems) == 1 })
	}
	redis.Start()
	for _, k := range keepers {
		eventually(t, 20*time.Second, "the status is well again", func() bool { return len(k.Status().Problems) == 0 })
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
	c := cachedWithin(t, source, redis.Addr, 0)
	load(t, c)
	if err := redis.Signal(syscall.SIGSTOP); err != nil {
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
	if err := redis.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the status is well again", func() bool { return len(c.Problems()) == 0 })
	if err := redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Nobody loads, so only the listener can notice.
	eventually(t, 20*time.Second, "the status says so", func() bool { return len(c.Problems()) == 1 })
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
	if s := c.Stats(); s.Misses != 1 || s.Failures != 1 {
		t.Errorf("stats %+v", s)
	}
}

// One replica's fill hurries the others along.
func TestCachedHints(t *testing.T) {
	redis := miniredis.RunT(t)
	source := scriptedOf(t, validTool("a", "t"))
	source.changed = make(chan struct{}, 1)
	one, two := cachedOver(t, source, redis.Addr()), cachedOver(t, source, redis.Addr())
	for _, c := range []*Cached{one, two} {
		receive(t, c.Changed(), "the subscription's own hint")
	}
	load(t, one)
	receive(t, two.Changed(), "the other replica's hint")
	hint(source.changed) // one of the two gets it
	select {
	case <-one.Changed():
	case <-two.Changed():
	case <-time.After(20 * time.Second):
		t.Error("the source's hint was lost")
	}
}

func receive(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not come", what)
	}
}

func TestCachedClosesQuickly(t *testing.T) {
	for name, addr := range map[string]string{"well": miniredis.RunT(t).Addr(), "hung": hung(t), "refused": "127.0.0.1:1"} {
		source := scriptedOf(t, validTool("a", "t"))
		c := NewCached(source, clientWithin(t, addr, 0), "gw", cacheTTL, quiet())
		load(t, c)
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) > loadTimeout/2 || !source.closed.Load() {
			t.Errorf("%s: error %v after %s, source closed: %v", name, err, time.Since(start), source.closed.Load())
		}
	}
}
