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
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const cacheTTL = time.Hour

func cachedOver(t *testing.T, source Source, addrs ...string) *Cached {
	return cachedWithin(t, source, maxTimeout, addrs...)
}

func cachedWithin(t *testing.T, source Source, timeout time.Duration, addrs ...string) *Cached {
	t.Helper()
	c := NewCached(source, clientWithin(t, timeout, addrs...), "gw", cacheTTL, quiet())
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

// supplied waits until Redis holds the catalogue, and sees to it that it holds
// nothing else.
func supplied(t *testing.T, m *miniredis.Miniredis, c *Catalogue) {
	t.Helper()
	want := keysOf(c)
	eventually(t, 20*time.Second, "Redis has the catalogue", func() bool { return m.Exists(want[0]) })
	if got := m.Keys(); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
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
		supplied(t, redis, want)
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
	c := cachedOver(t, source, redis.Addr())
	if got := load(t, c); len(got.Tools) != 1 {
		t.Errorf("%+v", got)
	}
	eventually(t, 20*time.Second, "the status says so", func() bool { return len(c.Problems()) == 1 })
	want := "the registry's cache in Redis takes nothing new, catalogues may come from the source: " +
		"the catalogue cannot be cached: the source's digest is not that of its catalogue"
	if got := c.Problems()[0]; got != want {
		t.Errorf("problem %q, want %q", got, want)
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
	supplied(t, redis, newer)
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
				eventually(t, 20*time.Second, "the poison is replaced", func() bool {
					first, err := redis.Get(keys[0])
					second, err2 := redis.Get(keys[1])
					return err == nil && err2 == nil && first == index && second == parts[0]
				})
				c.last.Store(nil) // as in a replica that starts
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
		})
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
		c := NewCached(source, clientWithin(t, 0, addr), "gw", cacheTTL, quiet())
		load(t, c)
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) > loadTimeout/2 || !source.closed.Load() {
			t.Errorf("%s: error %v after %s, source closed: %v", name, err, time.Since(start), source.closed.Load())
		}
	}
}
