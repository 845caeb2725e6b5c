package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/redisserver"
)

// sizes are the catalogue that is shipped and ten times as much.
func sizes() []int { return []int{507, 5000} }

// catalogues writes a catalogue of n tools over 24 servers, one file each.
func catalogues(b *testing.B, n int, effect string) (dir string) {
	b.Helper()
	dir = b.TempDir()
	for i := range 24 {
		share := n / 24
		if i < n%24 {
			share++
		}
		server := fmt.Sprintf("server-%02d", i)
		write(b, dir, server+".yaml", catalogueYAML(server, share, effect))
	}
	return dir
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := openFile(b, catalogues(b, n, "read"))
			defer f.Close()
			s := NewSnapshot(f.current, time.Now())
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.Lookup("server-13", "tool_00007"); !ok {
					b.Fatal("not found")
				}
			}
		})
	}
}

// BenchmarkRefreshUnchanged is what every half second costs.
func BenchmarkRefreshUnchanged(b *testing.B) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := NewKeeper(openFile(b, catalogues(b, n, "read")), Config{}, quiet())
			defer k.Close()
			b.ReportAllocs()
			for b.Loop() {
				if err := k.Refresh(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefreshChanged reads, checks and publishes a whole changed
// catalogue.
func BenchmarkRefreshChanged(b *testing.B) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := openFile(b, catalogues(b, n, "read"))
			k := NewKeeper(f, Config{}, quiet())
			defer k.Close()
			b.ReportAllocs()
			for b.Loop() {
				f.touched.Store(true)
				k.state.Store(&state{})
				if err := k.Refresh(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoadFromRedis gets, checks and decodes a catalogue from a real
// Redis.
func BenchmarkLoadFromRedis(b *testing.B) {
	redis := redisserver.Start(b)
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := NewCached(openFile(b, catalogues(b, n, "read")), clientOf(b, redis.Addr), "gw", time.Hour, quiet())
			defer c.Close()
			load(b, c)
			h := head(b, c)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Load(b.Context(), h); err != nil {
					b.Fatal(err)
				}
			}
			if c.Stats().Hits < int64(b.N) {
				b.Fatalf("%+v", c.Stats())
			}
		})
	}
}
