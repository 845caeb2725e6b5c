package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

func TestRedis(t *testing.T) {
	server := redisserver.Start(t, redisserver.Durable()...)
	testStore(t, func(t *testing.T, c Config) bench {
		f := newFleet(t, server.Addr, c)
		store, ended, _ := f.replica()
		return bench{store, f.pass, ended}
	})
}

// A cluster takes no script whose keys lie in several slots.
func TestRedisCluster(t *testing.T) {
	server := redisserver.Start(t, append(redisserver.Durable(), "--cluster-enabled", "yes")...)
	raw := rawClient(t, server.Addr)
	defer raw.Close()
	if err := raw.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the cluster is whole", func() bool {
		info, err := raw.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	testStore(t, func(t *testing.T, c Config) bench {
		f := newFleet(t, server.Addr, c)
		f.config.Redis.Addrs = []string{server.Addr, server.Addr}
		store, ended, _ := f.replica()
		if _, ok := store.client.(*redis.ClusterClient); !ok {
			t.Fatalf("the client is a %T", store.client)
		}
		return bench{store, f.pass, ended}
	})
}

func TestReplicasShareSessions(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, oneEnded, _ := f.replica()
	two, twoEnded, _ := f.replica()
	opened, err := one.Open(t.Context(), Session{
		Principal: "a", Version: "2025-11-25", Client: Implementation{"agent", "1"}, Capabilities: jsontext.Value(`{"roots":{}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.pass(time.Second)
	got := use(t, two, opened.ID, "a")
	if !got.Created.Equal(opened.Created) || !got.Seen.Equal(opened.Seen.Add(time.Second)) {
		t.Errorf("created %s, seen %s", got.Created, got.Seen)
	}
	want := opened
	want.Created, want.Seen = got.Created, got.Seen
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the other replica has\n%+v, want\n%+v", got, want)
	}
	got.LogLevel, got.Subscriptions = "error", []Subscription{{"git", "file:///a"}}
	if err := two.Save(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if back := use(t, one, opened.ID, "a"); back.LogLevel != "error" || !reflect.DeepEqual(back.Subscriptions, got.Subscriptions) {
		t.Errorf("saved on the other replica: %+v", back)
	}
	gone(t, two, opened.ID, "b")
	unknown(t, "Close by another", two.Close(t.Context(), opened.ID, "b"))
	use(t, one, opened.ID, "a")
	if err := two.Close(t.Context(), opened.ID, "a"); err != nil {
		t.Fatal(err)
	}
	if ids := oneEnded.take(); ids != nil {
		t.Errorf("the replica where nothing happened was told of %q", ids)
	}
	gone(t, one, opened.ID, "a")
	unknown(t, "Save after Close elsewhere", one.Save(t.Context(), opened))
	for name, ended := range map[string]*ends{"one": oneEnded, "two": twoEnded} {
		if ids := ended.take(); !slices.Equal(ids, []string{opened.ID}) {
			t.Errorf("%s ended %q, want %q", name, ids, opened.ID)
		}
	}
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left in Redis: %q", keys)
	}
}

// A session that is used on one replica only ends on the other when it has not
// been used there, and nowhere else.
func TestReplicaForgetsWhatIsUsedElsewhere(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, oneEnded, _ := f.replica()
	two, twoEnded, _ := f.replica()
	moved := open(t, one, "a")
	for range 2 {
		f.pass(50 * time.Second)
		use(t, two, moved.ID, "a")
	}
	open(t, one, "b")
	if ids := oneEnded.take(); !slices.Equal(ids, []string{moved.ID}) {
		t.Errorf("ended %q, want %q", ids, moved.ID)
	}
	use(t, one, moved.ID, "a")
	use(t, two, moved.ID, "a")
	if ids := append(oneEnded.take(), twoEnded.take()...); len(ids) != 0 {
		t.Errorf("ended %q", ids)
	}
}

func TestWhatRedisSees(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, _, log := f.replica()
	ctx := t.Context()
	s, err := one.Open(ctx, Session{Principal: "https://issuer.example alice", Client: Implementation{"agent", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Subscriptions = []Subscription{{"git", "file:///plans"}}
	if err := one.Save(ctx, s); err != nil {
		t.Fatal(err)
	}
	n := one.sealer.name(s.ID, s.Principal)
	if want := sorted(n.key, n.mine, n.all); !slices.Equal(f.keys(), want) {
		t.Errorf("keys %q, want %q", f.keys(), want)
	}
	var seen strings.Builder
	for _, key := range f.keys() {
		dump, err := f.raw.Dump(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&seen, key, dump)
	}
	for _, word := range []string{s.ID, "alice", "issuer", "agent", "plans", "git"} {
		if strings.Contains(seen.String(), word) {
			t.Errorf("Redis sees %q", word)
		}
	}
	if log.String() != "" {
		t.Errorf("logged %s", log)
	}
}

func TestTimeToLive(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, _, _ := f.replica()
	s := open(t, one, "a")
	n := one.sealer.name(s.ID, "a")
	within := func(key string, least, most time.Duration) {
		t.Helper()
		if left := f.raw.PTTL(t.Context(), key).Val(); left < least || left > most {
			t.Errorf("%s lives for %s, want %s to %s", key, left, least, most)
		}
	}
	within(n.key, time.Minute, time.Minute+noteEvery)
	within(n.mine, 4*time.Minute, 5*time.Minute+time.Second)
	within(n.all, 4*time.Minute, 5*time.Minute+time.Second)
	for range 5 {
		f.pass(50 * time.Second)
		use(t, one, s.ID, "a")
	}
	within(n.key, 40*time.Second, 50*time.Second)
	if err := one.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	within(n.key, 40*time.Second, 50*time.Second)
}

// Who can write Redis can keep a session from being idle, not from being old.
func TestLifetimeIsSealed(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, ended, _ := f.replica()
	s := open(t, one, "a")
	if err := f.raw.Persist(t.Context(), one.sealer.name(s.ID, "a").key).Err(); err != nil {
		t.Fatal(err)
	}
	f.at.add(5*time.Minute + time.Second)
	gone(t, one, s.ID, "a")
	if ids := ended.take(); !slices.Equal(ids, []string{s.ID}) {
		t.Errorf("ended %q, want %q", ids, s.ID)
	}
}

// A session may be as large as it may be.
func TestLargestSession(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, _, _ := f.replica()
	s := open(t, one, "a")
	data, err := encode(s)
	if err != nil {
		t.Fatal(err)
	}
	s.LogLevel = strings.Repeat("x", maxFacts-len(data)-len(`,"log_level":""`))
	if err := one.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := use(t, one, s.ID, "a"); got.LogLevel != s.LogLevel {
		t.Errorf("%d bytes came back", len(got.LogLevel))
	}
	s.LogLevel += "x"
	if err := one.Save(t.Context(), s); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
}

// A use reads once; that it happened is written every few seconds.
func TestUseSeldomWrites(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, _, _ := f.replica()
	s := open(t, one, "a")
	if err := f.raw.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		f.at.add(time.Second)
		use(t, one, s.ID, "a")
	}
	stats := f.raw.Info(t.Context(), "commandstats").Val()
	for _, want := range []string{"cmdstat_getrange:calls=9,", "cmdstat_pexpire:calls=9,", "cmdstat_zadd:calls=6,"} {
		if !strings.Contains(stats, want) {
			t.Errorf("no %s in\n%s", want, stats)
		}
	}
}

// What no replica sealed for that very session is no session.
func TestForeignValues(t *testing.T) {
	server := redisserver.Start(t, redisserver.Durable()...)
	for what, spoil := range map[string]func(value, others string, one *Redis, s Session) any{
		"a bit":                  func(v, _ string, _ *Redis, _ Session) any { return v[:20] + string(v[20]^1) + v[21:] },
		"its tag":                func(v, _ string, _ *Redis, _ Session) any { return v[:len(v)-1] },
		"its beginning":          func(v, _ string, _ *Redis, _ Session) any { return v[:5] },
		"one byte":               func(string, string, *Redis, Session) any { return "x" },
		"plain":                  func(string, string, *Redis, Session) any { return `{"created":"2030-01-01T00:00:00Z"}` },
		"too large":              func(v, _ string, _ *Redis, _ Session) any { return v + strings.Repeat("x", maxSealed) },
		"of another session":     func(_, others string, _ *Redis, _ Session) any { return others },
		"of another principal":   func(_, _ string, one *Redis, s Session) any { return sealed(one, `{}`, s.ID, "b") },
		"of another id":          func(_, _ string, one *Redis, s Session) any { return sealed(one, `{}`, "x", "a") },
		"no facts":               func(_, _ string, one *Redis, s Session) any { return sealed(one, `[]`, s.ID, "a") },
		"facts of another form":  func(_, _ string, one *Redis, s Session) any { return sealed(one, `{"principal":"b"}`, s.ID, "a") },
		"sealed with other keys": nil,
		"another type":           nil,
	} {
		t.Run(what, func(t *testing.T) {
			f := newFleet(t, server.Addr, limits)
			one, ended, log := f.replica()
			s, other := open(t, one, "a"), open(t, one, "a")
			key := one.sealer.name(s.ID, "a").key
			var err error
			switch what {
			case "another type":
				err = errors.Join(f.raw.Del(t.Context(), key).Err(), f.raw.RPush(t.Context(), key, "x").Err())
			case "sealed with other keys":
				f.config.Key = strictyaml.Secret(strings.Repeat("00", 32))
				stranger, _, _ := f.replica()
				err = f.raw.Set(t.Context(), key, sealed(stranger, `{"created":"2030-01-01T00:00:00Z"}`, s.ID, "a"), time.Minute).Err()
			default:
				value := f.raw.Get(t.Context(), key).Val()
				others := f.raw.Get(t.Context(), one.sealer.name(other.ID, "a").key).Val()
				err = f.raw.Set(t.Context(), key, spoil(value, others, one, s), time.Minute).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			gone(t, one, s.ID, "a")
			unknown(t, "Save", one.Save(t.Context(), s))
			unknown(t, "Close", one.Close(t.Context(), s.ID, "a"))
			if ids := ended.take(); !slices.Equal(ids, []string{s.ID}) {
				t.Errorf("ended %q, want %q", ids, s.ID)
			}
			use(t, one, other.ID, "a")
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines) != 1 || !strings.Contains(lines[0], "a value in Redis is not a session that a replica sealed") ||
				!strings.Contains(lines[0], key) || strings.Contains(lines[0], s.ID) {
				t.Errorf("logged %q", lines)
			}
		})
	}
}

func sealed(r *Redis, plain, id, principal string) string {
	value, err := r.sealer.seal([]byte(plain), id, principal)
	if err != nil {
		panic(err)
	}
	return string(value)
}

// unavailable is a failure unless err is ErrUnavailable and nothing else.
func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
		t.Errorf("%s: %v, want ErrUnavailable", what, err)
	}
}

func TestRedisRestarts(t *testing.T) {
	server := redisserver.Start(t, redisserver.Durable()...)
	f := newFleet(t, server.Addr, limits)
	f.config.PerPrincipal = 3
	one, ended, log := f.replica()
	two, _, _ := f.replica()
	ctx := t.Context()
	here, there, closed := open(t, one, "a"), open(t, two, "a"), open(t, one, "a")
	if err := two.Close(ctx, closed.ID, "a"); err != nil {
		t.Fatal(err)
	}
	here.LogLevel, here.Subscriptions = "error", []Subscription{{"git", "file:///a"}}
	if err := one.Save(ctx, here); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	f.at.add(grace)
	if got := use(t, one, here.ID, "a"); got.LogLevel != "error" || !reflect.DeepEqual(got.Subscriptions, here.Subscriptions) {
		t.Errorf("without Redis, what was saved is %+v", got)
	}
	use(t, one, closed.ID, "a") // the price that the contract names
	_, err := one.Use(ctx, there.ID, "a")
	unavailable(t, "Use of what was never used here", err)
	_, err = one.Use(ctx, here.ID, "b")
	unavailable(t, "Use by another", err)
	_, err = one.Open(ctx, Session{Principal: "a"})
	unavailable(t, "Open", err)
	unavailable(t, "Save", one.Save(ctx, here))
	unavailable(t, "Close", one.Close(ctx, here.ID, "a"))
	if p := one.Problems(); len(p) != 1 || !strings.HasPrefix(p[0], "sessions in Redis cannot be reached: ") {
		t.Errorf("problems %q", p)
	}
	use(t, one, here.ID, "a")
	f.at.add(time.Second)
	_, err = one.Use(ctx, here.ID, "a")
	unavailable(t, "Use after the grace", err)
	if ids := ended.take(); ids != nil {
		t.Errorf("ended %q", ids)
	}
	server.Start()
	eventually(t, 5*time.Second, "Redis is used again", func() bool {
		_, err := one.Use(ctx, here.ID, "a")
		return err == nil
	})
	use(t, one, there.ID, "a")
	use(t, two, here.ID, "a")
	gone(t, one, closed.ID, "a")
	open(t, one, "b")
	if p := one.Problems(); p != nil {
		t.Errorf("problems %q", p)
	}
	text := log.String()
	if strings.Count(text, "\n") != 2 || strings.Count(text, "cannot be reached") != 1 || strings.Count(text, "can be reached again") != 1 {
		t.Errorf("logged\n%s", text)
	}
}

// Redis may lose everything, its scripts included.
func TestRedisIsWiped(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, ended, _ := f.replica()
	s := open(t, one, "a")
	ctx := t.Context()
	if err := errors.Join(f.raw.FlushAll(ctx).Err(), f.raw.ScriptFlush(ctx).Err()); err != nil {
		t.Fatal(err)
	}
	gone(t, one, s.ID, "a")
	if ids := ended.take(); !slices.Equal(ids, []string{s.ID}) {
		t.Errorf("ended %q, want %q", ids, s.ID)
	}
	again := open(t, one, "a")
	if err := f.raw.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	f.pass(50 * time.Second)
	use(t, one, again.ID, "a")
	f.pass(50 * time.Second)
	use(t, one, again.ID, "a")
}

// Limits hold over all replicas together.
func TestLimitsHoldAcrossReplicas(t *testing.T) {
	server := redisserver.Start(t, redisserver.Durable()...)
	open := func(f *fleet, principal func(i int) string) (opened, refused int64) {
		var ok, full atomic.Int64
		var wg sync.WaitGroup
		for replica := range 4 {
			one, _, _ := f.replica()
			for i := range 4 {
				wg.Go(func() {
					for j := range 10 {
						_, err := one.Open(t.Context(), Session{Principal: principal(replica*100 + i*10 + j)})
						switch {
						case err == nil:
							ok.Add(1)
						case errors.Is(err, ErrFull):
							full.Add(1)
						default:
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		return ok.Load(), full.Load()
	}
	t.Run("per principal", func(t *testing.T) {
		f := newFleet(t, server.Addr, Config{Idle: time.Minute, Lifetime: time.Hour, Max: 7, PerPrincipal: 7})
		if opened, refused := open(f, func(int) string { return "a" }); opened != 160 || refused != 0 {
			t.Errorf("%d opened, %d refused", opened, refused)
		}
		if keys := f.keys(); len(keys) != 7+2 {
			t.Errorf("%d keys: %q", len(keys), keys)
		}
	})
	t.Run("in all", func(t *testing.T) {
		f := newFleet(t, server.Addr, Config{Idle: time.Minute, Lifetime: time.Hour, Max: 23, PerPrincipal: 5})
		if opened, refused := open(f, func(i int) string { return fmt.Sprint(i) }); opened != 23 || refused != 137 {
			t.Errorf("%d opened, %d refused", opened, refused)
		}
		if keys := f.keys(); len(keys) != 23+23+1 {
			t.Errorf("%d keys: %q", len(keys), keys)
		}
	})
}

// around calls a test for every command of a store, which runs it with next.
type around func(cmd redis.Cmder, next func() error) error

func (a around) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (a around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return a(cmd, func() error { return next(ctx, cmd) })
	}
}

// A session that is closed on another replica while this one is at it stays
// closed.
func TestClosedMeanwhile(t *testing.T) {
	server := redisserver.Start(t, redisserver.Durable()...)
	for what, test := range map[string]struct {
		before string // the command that comes too late
		try    func(context.Context, *Redis, Session) error
	}{
		"Save":  {"set", func(ctx context.Context, r *Redis, s Session) error { return r.Save(ctx, s) }},
		"Use":   {"evalsha", func(ctx context.Context, r *Redis, s Session) error { _, err := r.Use(ctx, s.ID, "a"); return err }},
		"Close": {"", func(ctx context.Context, r *Redis, s Session) error { return r.Close(ctx, s.ID, "a") }},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFleet(t, server.Addr, limits)
			one, ended, _ := f.replica()
			two, _, _ := f.replica()
			s := open(t, one, "a")
			f.pass(10 * time.Second)
			one.client.AddHook(around(func(cmd redis.Cmder, next func() error) error {
				if cmd.Name() == test.before {
					if err := two.Close(t.Context(), s.ID, "a"); err != nil {
						t.Error(err)
					}
				}
				err := next()
				if test.before == "" && cmd.Name() == "getrange" {
					err = errors.Join(err, two.Close(t.Context(), s.ID, "a"))
				}
				return err
			}))
			unknown(t, what, test.try(t.Context(), one, s))
			if ids := ended.take(); !slices.Equal(ids, []string{s.ID}) {
				t.Errorf("ended %q, want %q", ids, s.ID)
			}
			if keys := f.keys(); len(keys) != 0 {
				t.Errorf("left in Redis: %q", keys)
			}
		})
	}
}

// A client that does not hear the answer asks again: nothing more may end.
func TestOpeningIsRepeated(t *testing.T) {
	f := newFleet(t, redisserver.Start(t, redisserver.Durable()...).Addr, limits)
	one, ended, _ := f.replica()
	first, second := open(t, one, "a"), open(t, one, "b")
	f.pass(time.Second)
	third, fourth := open(t, one, "a"), open(t, one, "b")
	one.client.AddHook(around(func(cmd redis.Cmder, next func() error) error {
		return errors.Join(next(), next())
	}))
	f.pass(time.Second)
	fifth := open(t, one, "a")
	gone(t, one, first.ID, "a")
	for _, s := range []Session{second, third, fourth, fifth} {
		use(t, one, s.ID, s.Principal)
	}
	if ids := ended.take(); !slices.Equal(ids, []string{first.ID}) {
		t.Errorf("ended %q, want %q", ids, first.ID)
	}
}

// A Redis that accepts connections and never says a word holds nobody up, and
// a caller that gives up learns that it did.
func TestRedisFreezes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newFleet(t, l.Addr().String(), limits)
	one, _, _ := f.replica()
	id := strings.Repeat("A", 26)
	for what, try := range map[string]func(context.Context) error{
		"Open":  func(ctx context.Context) error { _, err := one.Open(ctx, Session{Principal: "a"}); return err },
		"Use":   func(ctx context.Context) error { _, err := one.Use(ctx, id, "a"); return err },
		"Save":  func(ctx context.Context) error { return one.Save(ctx, Session{ID: id, Principal: "a"}) },
		"Close": func(ctx context.Context) error { return one.Close(ctx, id, "a") },
	} {
		began := time.Now()
		unavailable(t, what, try(t.Context()))
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("%s took %s", what, d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := try(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s of a caller that gave up: %v", what, err)
		}
	}
	gone(t, one, "", "a")
	gone(t, one, strings.Repeat("A", maxID+1), "a")
	one.held.add(one.sealer.name(id, "a").key, Session{ID: id, Principal: "a", Created: f.at.now(), Seen: f.at.now()})
	use(t, one, id, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := one.Use(ctx, id, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Use of a caller that gave up: %v", err)
	}
}

func TestNewRedisSaysWhatItCannotUse(t *testing.T) {
	good := Config{Key: testKey, Redis: &registry.RedisConfig{URL: "rediss://r.example"}}
	for want, spoil := range map[string]func(*Config){
		"read the key of sessions: must be base64 or hex of at least 32 bytes: make one with openssl rand -base64 32": func(c *Config) { c.Key = "hunter2" },
		"prepare TLS for Redis: open absent.pem: no such file or directory": func(c *Config) {
			c.Redis = &registry.RedisConfig{URL: "rediss://r.example", TLS: &registry.TLSConfig{CAFile: "absent.pem"}}
		},
	} {
		c := good
		spoil(&c)
		if _, err := NewRedis(c, time.Now, nil, nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	r, err := NewRedis(good, time.Now, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	if got := r.sealer.name("i", "p").key; !strings.HasPrefix(got, "regogate:sessions:v1:") {
		t.Errorf("key %s", got)
	}
}
