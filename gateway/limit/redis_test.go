package limit

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/redisserver"
)

const (
	away = "the Redis of limits cannot be used: this replica counts by itself"
	back = "the Redis of limits answers again: replicas count together"
)

// TestReplicasHoldOneLimit has three replicas take as fast as they can until so
// many went through that it must have taken a while.
func TestReplicasHoldOneLimit(t *testing.T) {
	server := redisserver.Start(t)
	l := Limit{Rate{100, time.Second}, 20}
	var replicas []*Limiter
	for range 3 {
		r, _ := limiter(t, Config{PerPrincipal: &l, Redis: at(server.Addr)}, time.Now)
		replicas = append(replicas, r)
	}
	const want = 120
	var mu sync.Mutex
	var admitted []time.Time // before each was asked for
	var all sync.WaitGroup
	from, end := time.Now(), time.Now().Add(30*time.Second)
	for i := range 6 {
		all.Go(func() {
			for time.Now().Before(end) {
				wait := replicas[i%3].Principal(t.Context(), "somebody")
				mu.Lock()
				if wait == 0 {
					admitted = append(admitted, time.Now())
				}
				enough := len(admitted) >= want
				mu.Unlock()
				if enough {
					return
				}
				if wait > 0 {
					time.Sleep(wait)
				}
			}
		})
	}
	all.Wait()
	took := admitted[len(admitted)-1].Sub(from)
	if most := 20 + 100*took.Seconds(); len(admitted) < want || float64(len(admitted)) > most+1 {
		t.Errorf("%d went through in %s, want %d and at most %.1f", len(admitted), took, want, most)
	}
	for i, r := range replicas {
		if s := r.Status(); s.Where != Redis || s.Problem != "" {
			t.Errorf("replica %d: %+v", i, s)
		}
	}
}

// TestReplicasShareABurst counts exactly: nothing becomes free meanwhile.
func TestReplicasShareABurst(t *testing.T) {
	server := redisserver.Start(t)
	c := Config{PerPrincipal: perHour(30), PerTool: perHour(20), Redis: at(server.Addr)}
	principals, tools := 0, 0
	for range 3 {
		r, log := limiter(t, c, time.Now)
		var waits []time.Duration
		for range 15 {
			if wait := r.Principal(t.Context(), "p"); wait == 0 {
				principals++
			} else {
				waits = append(waits, wait)
			}
			if r.Tool(t.Context(), "s__t") == 0 {
				tools++
			}
		}
		for _, wait := range waits {
			if wait < time.Minute || wait > 2*time.Minute {
				t.Errorf("wait %s, want nearly two minutes", wait)
			}
		}
		if lines := log.lines(); len(lines) > 0 {
			t.Errorf("log %q", lines)
		}
	}
	if principals != 30 || tools != 20 {
		t.Errorf("%d requests and %d calls went through, want 30 and 20", principals, tools)
	}
}

// TestWhatRedisSees is short, hidden, ours, and ends by itself.
func TestWhatRedisSees(t *testing.T) {
	server := redisserver.Start(t)
	c := Config{PerPrincipal: perHour(10), PerTool: perHour(10), Redis: at(server.Addr)}
	c.Redis.Prefix = "ours"
	r, _ := limiter(t, c, time.Now)
	other, _ := limiter(t, c, time.Now)
	other.key = []byte("another key")
	who := strings.Repeat("ann@example.com", 1000)
	r.Principal(t.Context(), who)
	r.Tool(t.Context(), who)
	other.Principal(t.Context(), who)
	client := raw(t, server.Addr)
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^ours:limits:v1:(principal|tool):[0-9a-f]{32}$`)
	for _, key := range keys {
		ttl, err := client.TTL(t.Context(), key).Result()
		if err != nil || ttl <= 0 || ttl > time.Hour/10 || !form.MatchString(key) {
			t.Errorf("%s ends after %s: %v", key, ttl, err)
		}
	}
	if len(keys) != 3 {
		t.Errorf("keys %q, want 3", keys)
	}
}

// TestRedisAway kills Redis, and has it come back without what it knew. The
// replica says so once each time, and never lets through more than the limit.
func TestRedisAway(t *testing.T) {
	server := redisserver.Start(t)
	time0 := newClock()
	r, log := limiter(t, Config{PerPrincipal: perHour(60), Redis: at(server.Addr)}, time0.now)
	admitted := 0
	take := func(n int) {
		for range n {
			if r.Principal(t.Context(), "p") == 0 {
				admitted++
			}
		}
	}
	take(20)
	server.Kill()
	take(20)
	if s := r.Status(); s.Where != Local || !strings.HasPrefix(s.Problem, "the Redis of limits cannot be used: ") {
		t.Errorf("without Redis: %+v", s)
	}
	if got := log.lines(); !slices.Equal(got, []string{away}) {
		t.Errorf("log %q", got)
	}
	server.Start()
	take(5)
	if s := r.Status(); s.Where != Local {
		t.Errorf("within the pause: %+v", s)
	}
	time0.pass(pause)
	take(5)
	if s := r.Status(); s.Where != Redis || s.Problem != "" {
		t.Errorf("with Redis again: %+v", s)
	}
	if got := log.lines(); !slices.Equal(got, []string{away, back}) {
		t.Errorf("log %q", got)
	}
	take(50)
	if admitted != 60 {
		t.Errorf("%d went through, want 60", admitted)
	}
	// The other replicas count on, from an empty Redis.
	other, _ := limiter(t, Config{PerPrincipal: perHour(60), Redis: at(server.Addr)}, time.Now)
	for admitted = 0; other.Principal(t.Context(), "p") == 0; admitted++ {
	}
	if admitted != 60-5-10 {
		t.Errorf("another replica let %d through, want 45", admitted)
	}
}

// TestRedisForgets flushes Redis all the time: a replica does not.
func TestRedisForgets(t *testing.T) {
	server := redisserver.Start(t)
	r, _ := limiter(t, Config{PerPrincipal: perHour(10), Redis: at(server.Addr)}, newClock().now)
	client := raw(t, server.Addr)
	admitted := 0
	for range 30 {
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if r.Principal(t.Context(), "p") == 0 {
			admitted++
		}
	}
	if s := r.Status(); admitted != 10 || s.Where != Redis {
		t.Errorf("%d went through, want 10; status %+v", admitted, s)
	}
}

// TestRedisHangs holds up one request for its timeout, and no other until the
// pause is over.
func TestRedisHangs(t *testing.T) {
	server := redisserver.Start(t)
	time0 := newClock()
	const timeout = time.Second
	c := Config{PerPrincipal: perHour(1000), Redis: at(server.Addr)}
	c.Redis.Timeout = timeout
	r, log := limiter(t, c, time0.now)
	r.Principal(t.Context(), "p")
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	for range 500 {
		if wait := r.Principal(t.Context(), "p"); wait > 0 {
			t.Fatalf("wait %s", wait)
		}
	}
	if took := time.Since(from); took > 100*timeout {
		t.Errorf("500 requests took %s, want one timeout of %s", took, timeout)
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Redis is back", func() bool {
		time0.pass(pause)
		r.Principal(t.Context(), "q")
		return r.Status().Where == Redis
	})
	if got := log.lines(); !slices.Equal(got, []string{away, back}) {
		t.Errorf("log %q", got)
	}
}

// TestAClientThatLeaves is no reason to give Redis up.
func TestAClientThatLeaves(t *testing.T) {
	server := redisserver.Start(t)
	r, log := limiter(t, Config{PerPrincipal: perHour(1), Redis: at(server.Addr)}, time.Now)
	other, _ := limiter(t, Config{PerPrincipal: perHour(1), Redis: at(server.Addr)}, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if wait := r.Principal(ctx, "p"); wait != 0 {
		t.Errorf("wait %s", wait)
	}
	if other.Principal(t.Context(), "p") == 0 {
		t.Error("its request was not counted")
	}
	if lines := log.lines(); len(lines) > 0 {
		t.Errorf("log %q", lines)
	}
}

// TestPoisonedRedis holds what nobody of us wrote: the replica counts by itself.
func TestPoisonedRedis(t *testing.T) {
	server := redisserver.Start(t)
	client := raw(t, server.Addr)
	for what, poison := range map[string]func(key string) error{
		"text":   func(key string) error { return client.Set(t.Context(), key, "none", 0).Err() },
		"a list": func(key string) error { return client.RPush(t.Context(), key, "1").Err() },
	} {
		t.Run(what, func(t *testing.T) {
			r, log := limiter(t, Config{PerPrincipal: perHour(3), Redis: at(server.Addr)}, newClock().now)
			n := r.name(kindPrincipal, what)
			if err := poison(fmt.Sprintf("regogate:limits:v1:principal:%x", n[:])); err != nil {
				t.Fatal(err)
			}
			admitted := 0
			for range 10 {
				if r.Principal(t.Context(), what) == 0 {
					admitted++
				}
			}
			if s := r.Status(); admitted != 3 || s.Where != Local || !slices.Equal(log.lines(), []string{away}) {
				t.Errorf("%d went through, want 3; status %+v, log %q", admitted, s, log.lines())
			}
		})
	}
	// A time in the far future refuses; how long to wait is believed only so far.
	r, _ := limiter(t, Config{PerPrincipal: perHour(3), Redis: at(server.Addr)}, newClock().now)
	n := r.name(kindPrincipal, "future")
	if err := client.Set(t.Context(), fmt.Sprintf("regogate:limits:v1:principal:%x", n[:]), "99999999999", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if wait := r.Principal(t.Context(), "future"); wait != 20*time.Minute {
		t.Errorf("wait %s, want 20m", wait)
	}
	for _, answer := range []any{nil, "OK", int64(1), []any{}, []any{"1", int64(0), "0", "0"}, []any{int64(1), int64(0), nil, "0"}, []any{int64(1), int64(0), "0", int64(0)}} {
		if expected(redis.NewCmdResult(answer, nil)).Err() == nil {
			t.Errorf("%v is taken for an answer", answer)
		}
	}
}

// TestCluster has names on all of its nodes.
func TestCluster(t *testing.T) {
	nodes := redisserver.StartCluster(t, 3)
	c := Config{PerPrincipal: perHour(2), Redis: at(nodes[0].Addr, nodes[1].Addr)}
	for range 2 {
		r, log := limiter(t, c, time.Now)
		for i := range 20 {
			r.Principal(t.Context(), fmt.Sprint("p", i))
		}
		if s := r.Status(); s.Where != Redis || len(log.lines()) > 0 {
			t.Errorf("status %+v, log %q", s, log.lines())
		}
	}
	r, _ := limiter(t, c, time.Now)
	for i := range 20 {
		if r.Principal(t.Context(), fmt.Sprint("p", i)) == 0 {
			t.Errorf("p%d was here twice", i)
		}
	}
	for i, n := range nodes {
		size, err := raw(t, n.Addr).DBSize(t.Context()).Result()
		if err != nil || size == 0 {
			t.Errorf("node %d holds %d names: %v", i, size, err)
		}
	}
}

// TestCheck tries the Redis of a configuration.
func TestCheck(t *testing.T) {
	server := redisserver.Start(t)
	c := Config{PerPrincipal: perHour(1), Redis: at(server.Addr)}
	for range 2 {
		if err := Check(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	server.Kill()
	if err := Check(t.Context(), c); err == nil || !strings.HasSuffix(err.Error(), ": start it, or correct how it is reached") {
		t.Errorf("without Redis: %v", err)
	}
	if err := Check(t.Context(), Config{}); err != nil {
		t.Error(err)
	}
}
