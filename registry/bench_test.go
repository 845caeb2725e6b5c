package registry

import (
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/registry/catalogue"
)

// sizes are the catalogue that is shipped and ten times as much.
func sizes() []int { return []int{507, 5000} }

// shipped returns n tools of the catalogue that is shipped, whose servers are there
// under several names where it has not as many.
func shipped(b *testing.B, n int) ([]Server, []Tool) {
	b.Helper()
	names, err := fs.Glob(catalogue.FS, "*.yaml")
	if err != nil {
		b.Fatal(err)
	}
	found, err := readCatalogue(catalogue.FS, "", names)
	if err != nil || len(found.problems) > 0 {
		b.Fatal(err, found.problems)
	}
	var servers []Server
	var tools []Tool
	for copy := 0; len(tools) < n; copy++ {
		for _, s := range found.servers {
			s.Name, s.Attributes = fmt.Sprintf("%s-%d", s.Name, copy), slices.Clone(s.Attributes)
			servers = append(servers, s)
		}
		for _, t := range found.tools {
			t.Server, t.Attributes = fmt.Sprintf("%s-%d", t.Server, copy), slices.Clone(t.Attributes)
			tools = append(tools, t)
		}
	}
	return servers, tools[:n]
}

// shippedCatalogue is of n tools; with a change the first says something else.
func shippedCatalogue(b *testing.B, n int, change string) *Catalogue {
	b.Helper()
	servers, tools := shipped(b, n)
	tools[0].Owner += change
	return both(b, servers, tools...)
}

func eachSize(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n)
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		c := shippedCatalogue(b, n, "")
		s, t := NewSnapshot(c, time.Now()), c.Tools[n/2]
		for b.Loop() {
			if _, ok := s.Lookup(t.Server, t.Name); !ok {
				b.Fatal("not found")
			}
		}
	})
}

// BenchmarkRefresh is what a keeper does for one round. Where something changed it
// reads, checks and publishes all of it; a source that is not the file has it in
// memory, so that the rest is what the cache costs.
func BenchmarkRefresh(b *testing.B) {
	server := redisserver.Start(b)
	for _, c := range []struct {
		name string
		run  func(b *testing.B, n int)
	}{
		{"file unchanged", func(b *testing.B, n int) { refreshFile(b, n, func(*File, *Keeper) {}) }},
		{"file changed", func(b *testing.B, n int) {
			refreshFile(b, n, func(f *File, k *Keeper) { f.touched.Store(true); k.state.Store(&state{}) })
		}},
		{"without redis", func(b *testing.B, n int) {
			k := NewKeeper(&scripted{catalogue: shippedCatalogue(b, n, "")}, Config{}, quiet())
			for b.Loop() {
				k.state.Store(&state{})
				refresh(b, k)
			}
		}},
		{"redis cold", func(b *testing.B, n int) {
			refreshCached(b, server, n, false, func(_ *scripted, c *Cached, k *Keeper) {
				if k.Current() != nil {
					inRedis(b, c) // in the background, which must not come after the end
				}
				server.Do("FLUSHALL")
				c.last.Store(nil)
				k.state.Store(&state{})
			})
		}},
		{"redis warm", func(b *testing.B, n int) {
			refreshCached(b, server, n, true, func(_ *scripted, c *Cached, k *Keeper) {
				c.last.Store(nil)
				k.state.Store(&state{})
			})
		}},
		{"redis one server changed", func(b *testing.B, n int) {
			states := []*Catalogue{shippedCatalogue(b, n, ""), shippedCatalogue(b, n, "x")}
			turn := 0
			refreshCached(b, server, n, true, func(s *scripted, _ *Cached, _ *Keeper) {
				turn++
				s.catalogue = states[turn%2]
			})
		}},
	} {
		b.Run(c.name, func(b *testing.B) { eachSize(b, c.run) })
	}
}

func refresh(b *testing.B, k *Keeper) {
	if err := k.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// refreshFile is over 24 files.
func refreshFile(b *testing.B, n int, before func(*File, *Keeper)) {
	dir := b.TempDir()
	for i := range 24 {
		server := fmt.Sprintf("server-%02d", i)
		write(b, dir, server+".yaml", catalogueYAML(server, n*(i+1)/24-n*i/24, "read"))
	}
	f := openFile(b, dir)
	k := NewKeeper(f, Config{}, quiet())
	defer k.Close()
	for b.Loop() {
		before(f, k)
		refresh(b, k)
	}
}

// refreshCached prepares each round out of the benchmark's time. hits says whether
// the rounds find all of it in Redis.
func refreshCached(b *testing.B, server *redisserver.Server, n int, hits bool, before func(*scripted, *Cached, *Keeper)) {
	source := &scripted{catalogue: shippedCatalogue(b, n, "")}
	c := NewCached(source, clientOf(b, server.Addr), "gw", time.Hour, quiet())
	defer c.Close()
	k := NewKeeper(c, Config{}, quiet())
	for range 2 { // of both states, where there are two
		before(source, c, k)
		refresh(b, k)
		inRedis(b, c)
	}
	start := c.Stats()
	for b.Loop() {
		b.StopTimer()
		before(source, c, k)
		b.StartTimer()
		refresh(b, k)
	}
	s := c.Stats()
	if (s.Hits > start.Hits) != hits || (s.Misses > start.Misses) == hits || s.Failures+s.Rejected > 0 {
		b.Fatalf("stats %+v, before %+v", s, start)
	}
}

// inRedis waits until Redis has what the cache loaded last.
func inRedis(b *testing.B, c *Cached) {
	b.Helper()
	key := c.keys.index(c.last.Load().Head.Digest)
	eventually(b, time.Minute, "Redis has the catalogue", func() bool { return c.client.Exists(b.Context(), key).Val() == 1 })
}

// BenchmarkMemory is of what a replica keeps: the snapshot, and the catalogue that
// the next is compared with.
func BenchmarkMemory(b *testing.B) {
	const n = 10000
	for b.Loop() {
		before := heap()
		c := shippedCatalogue(b, n, "")
		s := NewSnapshot(c, time.Now())
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB/10000-tools")
		size := 0
		for _, ref := range c.parts {
			size += ref.Size
		}
		b.ReportMetric(float64(size)/(1<<20), "MiB/in-redis")
		runtime.KeepAlive(s)
		runtime.KeepAlive(c)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
