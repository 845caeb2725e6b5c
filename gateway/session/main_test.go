package session

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/regogate/regogate/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually waits for what another process brings about.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %s: %s", within, what)
}

func rawClient(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := registry.NewClient(registry.RedisConfig{Addrs: []string{addr}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fleet is a Redis, the replicas that share it and the time that they go by.
type fleet struct {
	t      testing.TB
	addr   string
	config Config
	raw    redis.UniversalClient
	at     *clock
}

const testKey = "c2Vzc2lvbnMgb2YgdGVzdHMsIG5vdCBzZWNyZXQgYXQgYWxsLi4u"

// newFleet has a prefix of its own, so that several can share a Redis.
func newFleet(t testing.TB, addr string, c Config) *fleet {
	t.Helper()
	c.Key = testKey
	c.Redis = &registry.RedisConfig{Addrs: []string{addr}, Prefix: fmt.Sprint("t", time.Now().UnixNano())}
	f := &fleet{t: t, addr: addr, config: c, raw: rawClient(t, addr), at: newClock()}
	t.Cleanup(func() { f.raw.Close() })
	return f
}

// replica is one more store on the Redis, with what it said and logged.
func (f *fleet) replica() (*Redis, *ends, *text) {
	f.t.Helper()
	ended, log := &ends{}, &text{}
	s, err := NewRedis(f.config, f.at.now, ended.add, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Stop() })
	return s, ended, log
}

// keys returns everything that the replicas have in Redis.
func (f *fleet) keys() []string {
	f.t.Helper()
	keys, err := f.raw.Keys(f.t.Context(), f.config.Redis.Prefix+":*").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	return sorted(keys...)
}

// pass lets time pass, for Redis too: everything in it has that much less time
// to live.
func (f *fleet) pass(d time.Duration) {
	f.t.Helper()
	ctx := f.t.Context()
	f.at.add(d)
	for _, key := range f.keys() {
		left, err := f.raw.PTTL(ctx, key).Result()
		if err != nil {
			f.t.Fatal(err)
		}
		if left < 0 {
			f.t.Errorf("%s stays for ever", key)
			continue
		}
		if left -= d; left > 0 {
			err = f.raw.PExpire(ctx, key, left).Err()
		} else {
			err = f.raw.Del(ctx, key).Err()
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// text is a log that a test reads.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
