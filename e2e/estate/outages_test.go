package estate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/replica"
)

// trouble is how a replica says in its log that Redis is not as it should be, and
// that this is over. The zero value is none.
type trouble struct{ begins, ends string }

var (
	unusable = trouble{"the registry's cache in Redis cannot be used", "the registry's cache in Redis can be used again"}
	full     = trouble{"the registry's cache in Redis takes nothing new", "the registry's cache in Redis takes what is new again"}
)

// heard is what the replicas said of a trouble before it began.
type heard struct {
	e            *estate
	of           trouble
	began, ended []int // lines of each replica
	series       int   // metrics of the registry that each has
}

func (e *estate) hear(t *testing.T, of trouble) *heard {
	t.Helper()
	h := &heard{e: e, of: of, series: len(e.nodes[0].metrics(t))}
	for _, n := range e.nodes {
		h.began, h.ended = append(h.began, strings.Count(n.Log(), of.begins)), append(h.ended, strings.Count(n.Log(), of.ends))
	}
	return h
}

// begun waits until every replica says so in its log and to operators.
func (h *heard) begun(t *testing.T) {
	t.Helper()
	for at, n := range h.e.nodes {
		if h.of == (trouble{}) {
			return
		}
		replica.Within(t, liveness, fmt.Sprintf("replica %d says %q", at, h.of.begins), func() bool { return strings.Count(n.Log(), h.of.begins) > h.began[at] })
		if got := n.metrics(t); got["regogate_registry_problems"] != 1 || got["regogate_registry_serving"] != 1 {
			t.Errorf("replica %d tells operators %v", at, got)
		}
	}
}

// over waits until every replica says that it is over. Each must have said so as
// often as that it began, and there must be no more metrics than before.
func (h *heard) over(t *testing.T) {
	t.Helper()
	for at, n := range h.e.nodes {
		if h.of == (trouble{}) {
			return
		}
		replica.Within(t, liveness, fmt.Sprintf("replica %d says %q", at, h.of.ends), func() bool { return strings.Count(n.Log(), h.of.ends) > h.ended[at] })
		began, ended := strings.Count(n.Log(), h.of.begins)-h.began[at], strings.Count(n.Log(), h.of.ends)-h.ended[at]
		// Twice is a machine so busy that a sound Redis was late, never a line a request.
		if began != ended || began > 2 {
			t.Errorf("replica %d said %d times that it began and %d times that it is over, want once each", at, began, ended)
		}
		replica.Within(t, liveness, fmt.Sprintf("replica %d has no problem", at), func() bool { return n.metrics(t)["regogate_registry_problems"] == 0 })
		if got := n.metrics(t); len(got) != h.series {
			t.Errorf("replica %d tells operators %v, before it were %d", at, got, h.series)
		}
	}
}

// metrics returns those of the registry that are numbers, by name, labels left out.
func (n *node) metrics(t testing.TB) map[string]int {
	t.Helper()
	found := map[string]int{}
	for line := range strings.Lines(n.tells(t, "/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name, _, _ := strings.Cut(name, "{"); strings.HasPrefix(name, "regogate_registry_") {
			var number float64
			if _, err := fmt.Sscan(value, &number); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			found[name] = int(number)
		}
	}
	return found
}

func late(_ *testing.T, e *estate) func() {
	set := func(d time.Duration) {
		for _, n := range e.nodes {
			n.redis.Delay(d)
		}
	}
	set(2 * time.Second)
	return func() { set(0) }
}

// lockedOut changes a setting of Redis after which it takes nobody new, and ends all
// connections but the one that can change it back.
func lockedOut(setting, to, back string) func(t *testing.T, e *estate) func() {
	return func(t *testing.T, e *estate) func() {
		ctx := context.Background()
		client := redis.NewClient(&redis.Options{Addr: e.redis.Addr, Protocol: 2, DisableIdentity: true})
		held := client.Conn()
		do := func(args ...any) {
			if err := held.Do(ctx, args...).Err(); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		}
		do("CONFIG", "SET", setting, to)
		do("CLIENT", "KILL", "TYPE", "pubsub")
		do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		return func() {
			do("CONFIG", "SET", setting, back)
			held.Close()
			client.Close()
		}
	}
}

// retype makes every value a list.
func retype(ctx context.Context, c *redis.Client) {
	for _, key := range c.Keys(ctx, "*").Val() {
		if c.Type(ctx, key).Val() == "string" {
			c.Del(ctx, key)
			c.LPush(ctx, key, "x")
		}
	}
}

// loading restarts Redis with so much to load that it is not done before it is told
// to take less time over it.
func loading(_ *testing.T, e *estate) func() {
	all := []any{"MSET"}
	for i := range 5000 {
		all = append(all, fmt.Sprint("k", i), strings.Repeat("v", 64))
	}
	e.redis.Do(all...)
	e.redis.Do("SAVE")
	e.redis.Kill()
	before := e.redis.Args
	e.redis.Args = append(before[:len(before):len(before)], "--rdbcompression", "no", "--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")
	e.redis.Start()
	e.redis.Args = before
	return func() { e.redis.Do("CONFIG", "SET", "key-load-delay", "0") }
}
