package registry

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/link"
	"github.com/regogate/regogate/e2e/redisserver"
)

// fleet is two replicas that follow one truth and share a Redis, each over a link
// of its own. The truth gives no hints.
type fleet struct {
	truth  *scripted
	server *redisserver.Server
	client redis.UniversalClient // of the test
	links  []*link.Link
	caches []*Cached
	logs   []*logged
	reps   []*Keeper
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{truth: scriptedOf(t), server: redisserver.Start(t)}
	f.client = clientOf(t, f.server.Addr)
	t.Cleanup(func() { f.client.Close() })
	f.set(t, "read")
	for range 2 {
		way, log := link.New(t, f.server.Addr), &logged{}
		cache := NewCached(f.truth, clientWithin(t, patience, way.Addr), "gw", cacheTTL, log.logger())
		k := NewKeeper(cache, Config{}, quiet())
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = k.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			running.Wait()
			k.Close()
		})
		f.links, f.caches, f.logs, f.reps = append(f.links, way), append(f.caches, cache), append(f.logs, log), append(f.reps, k)
	}
	f.follow(t, "read")
	return f
}

// set makes the truth say that the one tool has the effect.
func (f *fleet) set(t *testing.T, effect string) *Catalogue {
	t.Helper()
	tool := validTool("a", "t")
	tool.Effect = effect
	c := mustCatalogue(t, tool)
	f.truth.set(func(s *scripted) { s.catalogue = c })
	return c
}

// follow waits until both replicas say the same as the truth, which takes a second
// at most. It gets longer, since the machine may be busy.
func (f *fleet) follow(t *testing.T, effect string) {
	t.Helper()
	start := time.Now()
	eventually(t, 20*time.Second, "both replicas say "+effect, func() bool {
		for _, k := range f.reps {
			s := k.Current()
			if s == nil || !k.Fresh(time.Now()) {
				return false
			}
			if tool, ok := s.Lookup("a", "t"); !ok || tool.Effect != effect {
				return false
			}
		}
		return true
	})
	t.Logf("%s was followed after %s", effect, time.Since(start))
}

// stay sees to it that both replicas go on saying so over several rounds.
func (f *fleet) stay(t *testing.T, effect string) {
	t.Helper()
	before := f.truth.heads.Load()
	eventually(t, 20*time.Second, "the replicas asked the truth again", func() bool { return f.truth.heads.Load() >= before+6 })
	for _, k := range f.reps {
		if tool, ok := k.Current().Lookup("a", "t"); !ok || tool.Effect != effect {
			t.Errorf("a replica says %+v, want %s", tool, effect)
		}
	}
}

// TestTruthIsFollowed loses, forges and reorders whatever goes through Redis: what
// was revoked is revoked within a second of the truth, and comes back likewise.
func TestTruthIsFollowed(t *testing.T) {
	for name, around := range map[string]func(t *testing.T, f *fleet, change func() *Catalogue){
		"without a hint": func(t *testing.T, f *fleet, change func() *Catalogue) {
			f.server.Do("ACL", "SETUSER", "default", "-publish")
			change()
		},
		"keys deleted before": func(t *testing.T, f *fleet, change func() *Catalogue) {
			f.server.Do("FLUSHALL")
			change()
		},
		"keys deleted after": func(t *testing.T, f *fleet, change func() *Catalogue) {
			change()
			f.server.Do("FLUSHALL")
		},
		"hint before the change": func(t *testing.T, f *fleet, change func() *Catalogue) {
			for range 3 {
				f.server.Do("PUBLISH", "gw:v3:changed", "something")
			}
			f.stay(t, f.reps[0].Current().Tools()[0].Effect)
			change()
		},
		"old value under the new name": func(t *testing.T, f *fleet, change func() *Catalogue) {
			before := keysOf(load(t, f.truth))
			c := change()
			for n, key := range keysOf(c) {
				f.client.Set(t.Context(), key, f.client.Get(t.Context(), before[n]).Val(), time.Hour)
			}
		},
		"subscriptions killed": func(t *testing.T, f *fleet, change func() *Catalogue) {
			f.server.Do("CLIENT", "KILL", "TYPE", "pubsub")
			change()
		},
		"connections killed": func(t *testing.T, f *fleet, change func() *Catalogue) {
			for _, l := range f.links {
				l.Set(link.Cut)
				l.Set(link.Open)
			}
			change()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for _, effect := range []string{"admin", "read", "destructive"} {
				around(t, f, func() *Catalogue { return f.set(t, effect) })
				f.follow(t, effect)
				f.stay(t, effect)
			}
		})
	}
}

// TestTruthOverCutLinks cuts the links to Redis for a while in which the truth
// changes, of one replica and of both.
func TestTruthOverCutLinks(t *testing.T) {
	for cut := 1; cut <= 2; cut++ {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for _, l := range f.links[:cut] {
				l.Set(link.Hung)
			}
			f.set(t, "admin")
			f.follow(t, "admin")
			f.set(t, "write")
			f.follow(t, "write")
			for n := range cut {
				eventually(t, 20*time.Second, "the status says so", func() bool { return len(f.reps[n].Status().Problems) == 1 })
			}
			f.stay(t, "write")
			for _, l := range f.links[:cut] {
				l.Set(link.Open)
			}
			for _, k := range f.reps {
				eventually(t, 20*time.Second, "the status is well again", func() bool { return len(k.Status().Problems) == 0 })
			}
			f.stay(t, "write")
			f.set(t, "read")
			f.follow(t, "read")
			for n, log := range f.logs {
				want := 0
				if n < cut {
					want = 1
				}
				if began, ended := log.count("level=WARN"), log.count("level=INFO"); began != want || ended != want {
					t.Errorf("replica %d logged %d times that it began and %d times that it ended:\n%s", n, began, ended, &log.text)
				}
			}
		})
	}
}
