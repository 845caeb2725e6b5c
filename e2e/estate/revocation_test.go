package estate_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/link"
	"github.com/regogate/regogate/e2e/replica"
	"github.com/regogate/regogate/registry"
)

// strike takes a tool out of the catalogue, or puts it in again, and writes the
// truth down.
func (e *estate) strike(ctx context.Context, tool int, out bool) error {
	head, err := e.store.Head(ctx)
	if err != nil {
		return err
	}
	is, err := e.store.Load(ctx, head)
	if err != nil {
		return err
	}
	given := registry.Catalogue{Servers: is.Servers}
	given.Tools = slices.DeleteFunc(slices.Clone(is.Tools), func(t registry.Tool) bool { return t.Name == fmt.Sprint("t", tool) })
	if !out {
		given.Tools = append(given.Tools, entry(tool))
		e.truth.set(tool, false, time.Now())
	}
	c, err := registry.NewCatalogue("", given)
	if err != nil {
		return err
	}
	_, err = e.store.Replace(ctx, registry.Author{Name: "test"}, is.Head, c, registry.ReplaceOptions{})
	if err == nil && out {
		e.truth.set(tool, true, time.Now())
	}
	return err
}

// revoke forbids a tool, or allows it again, in one of two ways.
func (e *estate) revoke(t *testing.T, tool int, forbidden, quarantined bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	var err error
	switch {
	case !quarantined:
		err = e.strike(ctx, tool, forbidden)
	case forbidden:
		err = e.quarantine(ctx, tool)
	default:
		err = e.release(ctx, tool)
	}
	if err != nil {
		t.Fatalf("t%d forbidden is %v: %v", tool, forbidden, err)
	}
}

// TestRevocation is B099: what says that a tool was revoked is lost, comes too early
// or goes with the values that it is about, while replicas are cut off from Redis.
// What the truth says is in force all the same, before the link is there again and
// after, at both of two replicas; enabling likewise.
func TestRevocation(t *testing.T) {
	t.Parallel()
	e := start(t, options{replicas: 2})
	client := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
	defer client.Close()
	for _, c := range []struct {
		name  string
		links []int // that are not there meanwhile
		state link.State
		least time.Duration                     // that they are not
		about func(t *testing.T, change func()) // the change; nil makes it
	}{
		{name: "one replica is cut off for 5 s", links: []int{0}, state: link.Cut, least: 5 * time.Second},
		{name: "Redis does not answer either", links: []int{0, 1}, state: link.Hung},
		{name: "its keys are deleted", links: []int{0, 1}, state: link.Cut, about: func(t *testing.T, change func()) {
			change()
			client.FlushAll(t.Context())
		}},
		{name: "no replica is told", links: []int{0, 1}, state: link.Cut, about: func(_ *testing.T, change func()) {
			stop := repeat(func() {
				e.pg.Exec("template1", "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'")
			})
			defer stop()
			change()
		}},
		{name: "they are told before it is so", about: func(t *testing.T, change func()) {
			for range 3 {
				client.Publish(t.Context(), "regogate:v3:changed", "soon")
			}
			change()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.backend.Forget()
			x := e.run(t)
			for round, quarantined := range []bool{true, false} {
				for _, forbidden := range []bool{true, false} {
					from := time.Now()
					e.lay(c.links, c.state)
					change := func() { e.revoke(t, round, forbidden, quarantined) }
					if c.about == nil {
						change()
					} else {
						c.about(t, change)
					}
					e.inForce(t, round, forbidden, nil)
					if round == 0 && forbidden {
						time.Sleep(time.Until(from.Add(c.least)))
					}
					e.lay(c.links, link.Open)
					for at, n := range e.nodes {
						replica.Within(t, liveness, fmt.Sprintf("replica %d is ready", at), func() bool { return n.Status() == "ready" })
					}
					e.stays(t, round, forbidden)
				}
			}
			x.halt(t)
			x.report(t)
		})
	}
}

// lay gives the links of these replicas to Redis a state.
func (e *estate) lay(nodes []int, state link.State) {
	for _, at := range nodes {
		e.nodes[at].redis.Set(state)
	}
}

// stays sees to it that all replicas go on forbidding a tool, or allowing it.
func (e *estate) stays(t *testing.T, tool int, forbidden bool) {
	t.Helper()
	for range 20 {
		for at, n := range e.nodes {
			out, err := n.client.Call(t.Context(), fmt.Sprint("alpha__t", tool), nil)
			if err != nil || forbidden != (out.Code == -32602) || forbidden != (out.Result == nil) {
				t.Errorf("replica %d: t%d forbidden was %v, and then a call had %d %s %v", at, tool, forbidden, out.Status, out.Error, err)
			}
		}
	}
}
