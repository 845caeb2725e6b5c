package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/redisserver"
)

// benchmarkUse uses many sessions of several principals from many goroutines,
// as the front door does.
func benchmarkUse(b *testing.B, s Store) {
	var all []Session
	for i := range 64 {
		opened, err := s.Open(b.Context(), Session{
			Principal: fmt.Sprint("https://issuer.example user ", i%8), Version: "2025-11-25",
			Client:        Implementation{"agent", "1.0.0"},
			Capabilities:  jsontext.Value(`{"elicitation":{},"roots":{"listChanged":true},"sampling":{}}`),
			Subscriptions: []Subscription{{"git", "file:///a"}, {"git", "file:///b"}},
		})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, opened)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			one := all[i%len(all)]
			if _, err := s.Use(b.Context(), one.ID, one.Principal); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchConfig() (c Config) {
	c.Defaults()
	return c
}

func BenchmarkUseMemory(b *testing.B) { benchmarkUse(b, NewMemory(benchConfig(), time.Now, nil)) }

func BenchmarkUseRedis(b *testing.B) {
	f := newFleet(b, redisserver.Start(b, redisserver.Durable()...).Addr, benchConfig())
	s, _, _ := f.replica()
	benchmarkUse(b, s)
}

func BenchmarkSeal(b *testing.B) {
	s, err := newSealer(testKey, "p")
	if err != nil {
		b.Fatal(err)
	}
	value, err := s.seal(make([]byte, 200), "id", "principal")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := s.name("id", "principal")
		if _, err := s.open(value, "id", "principal"); err != nil || n.key == "" {
			b.Fatal(err)
		}
	}
}
