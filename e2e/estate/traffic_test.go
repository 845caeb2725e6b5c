package estate_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// traffic is agents that list and call at every replica, whatever is broken.
type traffic struct {
	e       *estate
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	counts map[string]int // by node and kind of answer
	took   []time.Duration
	faults []string
}

// pace is how many requests each replica is sent each second, where the machine
// keeps up.
const pace = 100

func (e *estate) run(t testing.TB) *traffic {
	ctx, stop := context.WithCancel(context.Background())
	x := &traffic{e: e, stop: stop, counts: map[string]int{}}
	const workers = 2
	for at, n := range e.nodes {
		for w := range workers {
			x.running.Go(func() {
				tick := time.NewTicker(time.Second * workers / pace)
				defer tick.Stop()
				for i := w; ; i += workers {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
						x.one(at, n, i)
					}
				}
			})
		}
	}
	t.Cleanup(func() { x.halt(t) })
	return x
}

// The kinds of answers.
const (
	allowed = "allowed"
	unknown = "unknown tool"
	stale   = "registry stale"
	listed  = "listed"
)

// one sends a request and judges what came of it. Whether a call came through
// when it must not is for the backend to say.
func (x *traffic) one(at int, n *node, i int) {
	ctx, cancel := context.WithTimeout(context.Background(), liveness)
	defer cancel()
	begun := time.Now()
	kind, fault := "", ""
	if i%5 == 0 {
		names, err := n.client.List(ctx)
		switch {
		case err == nil:
			kind = listed
			for _, name := range names {
				since, forbidden := x.e.truth.forbidden(strings.TrimPrefix(name, "alpha__"), begun)
				if forbidden && since > staleness+slack {
					fault = fmt.Sprintf("replica %d lists %s %v after its quarantine", at, name, since)
				}
			}
		case strings.Contains(err.Error(), "registry"):
			kind = stale
		default:
			fault = fmt.Sprintf("replica %d: %v", at, err)
		}
	} else {
		out, err := n.client.Call(ctx, fmt.Sprintf("alpha__t%d", i%tools), nil)
		switch {
		case err != nil:
			fault = fmt.Sprintf("replica %d: %v", at, err)
		case out.Result != nil:
			kind = allowed
		case out.Code == -32602 && strings.HasPrefix(out.Text, "Unknown tool"):
			kind = unknown
		case out.Code == 503 && strings.Contains(string(out.Error), "registry_stale"):
			kind = stale
		default:
			fault = fmt.Sprintf("replica %d: a call was answered %d %s", at, out.Status, out.Error)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.took = append(x.took, time.Since(begun))
	x.counts[fmt.Sprint(at, " ", kind)]++
	if fault != "" {
		x.faults = append(x.faults, fault)
	}
}

// count is how many answers of a kind a replica gave so far.
func (x *traffic) count(at int, kind string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.counts[fmt.Sprint(at, " ", kind)]
}

// more waits for answers of a kind from a replica that are still to come.
func (x *traffic) more(t testing.TB, at int, kind string) time.Duration {
	t.Helper()
	from, before := time.Now(), x.count(at, kind)
	for x.count(at, kind) <= before {
		if time.Since(from) > liveness {
			t.Fatalf("replica %d gave no answer %q within %v\n%s", at, kind, liveness, x.e.nodes[at].Log())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(from)
}

// halt ends the traffic and tells what was wrong. It may be called again.
func (x *traffic) halt(t testing.TB) {
	t.Helper()
	x.stop()
	x.running.Wait()
	for i, text := range x.faults {
		if i == 10 {
			t.Errorf("and %d more", len(x.faults)-i)
			break
		}
		t.Error(text)
	}
	x.faults = nil
}

// report logs what callers saw.
func (x *traffic) report(t testing.TB) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[string]int{}
	for key, n := range x.counts {
		_, kind, _ := strings.Cut(key, " ")
		all[kind] += n
	}
	slices.Sort(x.took)
	calls, latest := x.e.audit(t)
	t.Logf("callers saw %v; %d calls reached the backend, the latest %v after a quarantine; answers took %v / %v / %v (median, p99, most)",
		all, calls, latest.Round(time.Millisecond), at(x.took, 0.5), at(x.took, 0.99), at(x.took, 1))
}

// at is a quantile of what is sorted; 0 of nothing.
func at[T cmp.Ordered](sorted []T, quantile float64) (value T) {
	if len(sorted) == 0 {
		return value
	}
	return sorted[min(len(sorted)-1, int(quantile*float64(len(sorted))))]
}
