package estate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/link"
	"github.com/regogate/regogate/e2e/replica"
	"github.com/regogate/regogate/registry"
)

// fault is something that breaks for a while.
type fault struct {
	name string
	// begin breaks it and returns what mends it.
	begin func(t *testing.T, e *estate) (mend func())
	// changes is what becomes of a change of the registry meanwhile: nil, it takes
	// place; otherwise the error that it fails with, or errAny.
	changes error
	stale   []int // replicas that must come to deny everything meanwhile; no other ever may
	trouble trouble
}

var (
	errAny = errors.New("any")
	every  = []int{0, 1, 2}
)

func faults() []fault {
	all := func(set func(*node, link.State), s link.State) func(t *testing.T, e *estate) func() {
		return func(_ *testing.T, e *estate) func() {
			for _, n := range e.nodes {
				set(n, s)
			}
			return func() {
				for _, n := range e.nodes {
					set(n, link.Open)
				}
			}
		}
	}
	toRedis := func(n *node, s link.State) { n.redis.Set(s) }
	toPostgres := func(n *node, s link.State) { n.pg.Set(s) }
	first := func(set func(*node, link.State), s link.State) func(t *testing.T, e *estate) func() {
		return func(_ *testing.T, e *estate) func() {
			set(e.nodes[0], s)
			return func() { set(e.nodes[0], link.Open) }
		}
	}
	return []fault{
		{name: "Redis killed, and back empty", begin: func(_ *testing.T, e *estate) func() { e.redis.Kill(); return e.redis.Start }, trouble: unusable},
		{name: "Redis stopped", begin: stopRedis, trouble: unusable},
		{name: "Redis takes connections and never answers", begin: all(toRedis, link.Hung), trouble: unusable},
		{name: "Redis cut off", begin: all(toRedis, link.Cut), trouble: unusable},
		{name: "Redis flushed all the time", begin: meddle(func(ctx context.Context, c *redis.Client) { c.FlushAll(ctx) })},
		{name: "Redis evicts everything", begin: configure("maxmemory", "1", "0", "maxmemory-policy", "allkeys-random", "noeviction")},
		{name: "Redis is out of memory", begin: configure("maxmemory", "1", "0"), trouble: full},
		{name: "Redis is 2 s late", begin: late, trouble: unusable},
		{name: "Redis has another password", begin: lockedOut("requirepass", "another", ""), trouble: unusable},
		{name: "Redis has too many clients", begin: lockedOut("maxclients", "1", "10000"), trouble: unusable},
		{name: "Redis has values of another type", begin: meddle(retype)},
		{name: "Redis answers for another key", begin: meddle(shuffle)},
		{name: "Redis says that nothing is in quarantine", begin: meddle(relabel)},
		{name: "PostgreSQL killed", begin: func(_ *testing.T, e *estate) func() { e.pg.Kill(); return e.pg.Start }, changes: errAny, stale: every},
		{name: "PostgreSQL stopped", begin: stopPostgres, changes: errAny, stale: every},
		{name: "PostgreSQL takes connections and never answers", begin: all(toPostgres, link.Hung), stale: every},
		{name: "PostgreSQL cut off from one replica", begin: first(toPostgres, link.Cut), stale: []int{0}},
		{name: "PostgreSQL silent to one replica", begin: first(toPostgres, link.Hung), stale: []int{0}},
		{name: "PostgreSQL slow", begin: slow},
		{name: "PostgreSQL read-only", begin: readOnly, changes: registry.ErrReadOnly},
		{name: "every invalidation is lost", begin: deaf},
		{name: "Redis is loading", begin: loading, trouble: unusable},
	}
}

func stopRedis(t *testing.T, e *estate) func() {
	signal := func(s syscall.Signal) {
		if err := e.redis.Signal(s); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

func stopPostgres(t *testing.T, e *estate) func() {
	signal := func(s syscall.Signal) {
		if err := e.pg.Signal(s); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

func slow(_ *testing.T, e *estate) func() {
	for _, n := range e.nodes {
		n.pg.Delay(20 * time.Millisecond)
	}
	return func() {
		for _, n := range e.nodes {
			n.pg.Delay(0)
		}
	}
}

func readOnly(_ *testing.T, e *estate) func() {
	set := func(value string) {
		e.pg.Exec("template1", "alter database postgres set default_transaction_read_only = "+value,
			"select pg_terminate_backend(pid) from pg_stat_activity where datname = 'postgres'")
	}
	set("on")
	return func() { set("off") }
}

// deaf ends every connection that listens, again and again, and keeps Redis away.
func deaf(t *testing.T, e *estate) func() {
	for _, n := range e.nodes {
		n.redis.Set(link.Cut)
	}
	stop := repeat(func() {
		e.pg.Exec("template1", "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'")
	})
	return func() {
		stop()
		for _, n := range e.nodes {
			n.redis.Set(link.Open)
		}
	}
}

// repeat does something again and again until it is stopped.
func repeat(do func()) (stop func()) {
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
				do()
			}
		}
	})
	return func() { close(over); running.Wait() }
}

// meddle changes what is in Redis again and again.
func meddle(with func(ctx context.Context, c *redis.Client)) func(t *testing.T, e *estate) func() {
	return func(_ *testing.T, e *estate) func() {
		c := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
		stop := repeat(func() { with(context.Background(), c) })
		return func() { stop(); c.Close() }
	}
}

// shuffle gives each key the value of another one.
func shuffle(ctx context.Context, c *redis.Client) {
	keys := c.Keys(ctx, "*").Val()
	if len(keys) < 2 {
		return
	}
	last := c.Get(ctx, keys[len(keys)-1]).Val()
	for _, key := range keys {
		value := c.Get(ctx, key).Val()
		c.Set(ctx, key, last, time.Hour)
		last = value
	}
}

// relabel takes every quarantine out of what is in Redis.
func relabel(ctx context.Context, c *redis.Client) {
	for _, key := range c.Keys(ctx, "*index*").Val() {
		value := c.Get(ctx, key).Val()
		if i := strings.Index(value, `,"quarantine"`); i > 0 {
			c.Set(ctx, key, value[:i]+"}", time.Hour)
		}
	}
}

// configure sets redis-server's settings: name, value, and the value after that.
func configure(settings ...string) func(t *testing.T, e *estate) func() {
	return func(t *testing.T, e *estate) func() {
		set := func(which int) {
			c := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
			defer c.Close()
			for i := 0; i < len(settings); i += 3 {
				if err := c.ConfigSet(context.Background(), settings[i], settings[i+which]).Err(); err != nil {
					t.Error(err)
				}
			}
		}
		set(1)
		return func() { set(2) }
	}
}

// Whatever breaks, no call comes through on what a replica knew too long ago, and
// nobody is denied who need not be. All of B096 is among it: Redis is refused, hangs,
// is late, loads, is full, takes another password or no more clients, or has values
// of another type.
func TestFaults(t *testing.T) {
	e := start(t, options{bad: []string{"panic", "DATA RACE"}})
	for i, f := range faults() {
		if !t.Run(f.name, func(t *testing.T) { e.suffer(t, f, i%tools) }) {
			for _, n := range e.nodes {
				t.Log(n.Log()[max(0, len(n.Log())-3000):])
			}
			return
		}
	}
}

func (e *estate) suffer(t *testing.T, f fault, tool int) {
	e.backend.Forget()
	x := e.run(t)
	for at := range e.nodes {
		x.more(t, at, allowed)
	}
	said := e.hear(t, f.trouble)
	mend := f.begin(t, e)
	mended := false
	defer func() {
		if !mended {
			mend()
		}
	}()
	broken := time.Now()
	if f.changes == nil {
		e.cycle(t, tool, f.stale...)
	} else {
		e.fails(t, tool, f.changes)
	}
	for _, at := range f.stale {
		x.more(t, at, stale)
		t.Logf("replica %d denied everything %v after the fault began (max_staleness is %v)", at, time.Since(broken).Round(time.Millisecond), staleness)
	}
	// Long enough that a replica which cannot know better would have come to deny.
	time.Sleep(time.Until(broken.Add(staleness + slack)))
	for at := range e.nodes {
		x.more(t, at, listedOr(f.stale, at))
	}
	said.begun(t)
	mend()
	mended = true
	healed := time.Now()
	for at, n := range e.nodes {
		x.more(t, at, allowed)
		replica.Within(t, liveness, fmt.Sprintf("replica %d is ready", at), func() bool { return n.Status() == "ready" })
	}
	recovered := time.Since(healed)
	e.cycle(t, tool)
	said.over(t)
	x.halt(t)
	x.report(t)
	for at := range e.nodes {
		if n := x.count(at, stale); n > 0 && !slices.Contains(f.stale, at) {
			t.Errorf("replica %d denied %d requests as stale, and knew better", at, n)
		}
	}
	t.Logf("all as before %v after the end of the fault", recovered.Round(time.Millisecond))
}

func listedOr(stales []int, at int) string {
	if slices.Contains(stales, at) {
		return stale
	}
	return listed
}

// cycle puts a tool into quarantine and takes it out again, and waits for each to
// be in force at all replicas but the given.
func (e *estate) cycle(t testing.TB, tool int, but ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	if err := e.quarantine(ctx, tool); err != nil {
		t.Fatalf("quarantine: %v", err)
	}
	e.inForce(t, tool, true, but)
	if err := e.release(ctx, tool); err != nil {
		t.Fatalf("release: %v", err)
	}
	e.inForce(t, tool, false, but)
}

// inForce waits until the replicas but the given forbid a tool, or allow it.
func (e *estate) inForce(t testing.TB, tool int, forbidden bool, but []int) {
	t.Helper()
	for at, n := range e.nodes {
		if slices.Contains(but, at) {
			continue
		}
		replica.Within(t, liveness, fmt.Sprintf("replica %d: t%d forbidden is %v", at, tool, forbidden), func() bool {
			out, err := n.client.Call(t.Context(), fmt.Sprint("alpha__t", tool), nil)
			return err == nil && (forbidden && out.Code == -32602 || !forbidden && out.Result != nil)
		})
	}
}

// fails has a change fail, and say why in one line.
func (e *estate) fails(t testing.TB, tool int, want error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := e.quarantine(ctx, tool)
	if err == nil || want != errAny && !errors.Is(err, want) {
		t.Errorf("a quarantine meanwhile: %v, want %v", err, want)
	}
	if strings.Contains(fmt.Sprint(err), "\n") {
		t.Errorf("more than a line: %v", err)
	}
}
