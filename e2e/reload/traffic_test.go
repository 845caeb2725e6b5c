package reload_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// traffic is clients that list and call at a steady pace, and judge each answer.
type traffic struct {
	rig     *rig
	clients []*client

	sent, lists, calls, allowed atomic.Int64
	sole                        atomic.Int64 // answers that fit one revision alone
	mu                          sync.Mutex
	wrong                       []string
	since                       time.Time
	stop                        context.CancelFunc
	running                     sync.WaitGroup
}

// pace is how many requests are sent each second, where the machine keeps up.
const pace = 400

// run starts traffic, which goes on until the test ends or halt is called.
func (r *rig) run(t testing.TB, clients ...*client) *traffic {
	ctx, stop := context.WithCancel(t.Context())
	x := &traffic{rig: r, clients: clients, stop: stop, since: time.Now()}
	const workers = 8
	for w := range workers {
		x.running.Go(func() {
			tick := time.NewTicker(time.Second * workers / pace)
			defer tick.Stop()
			for n := w; ; n += workers {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				x.one(context.WithoutCancel(ctx), n)
			}
		})
	}
	t.Cleanup(func() { x.halt(t) })
	return x
}

// halt ends the traffic and tells what was wrong.
func (x *traffic) halt(t testing.TB) {
	x.stop()
	x.running.Wait()
	for i, text := range x.wrong {
		if i == 10 {
			t.Errorf("and %d more", len(x.wrong)-i)
			break
		}
		t.Error(text)
	}
	x.wrong = nil
}

// rate is how many requests were answered each second.
func (x *traffic) rate() float64 { return float64(x.sent.Load()) / time.Since(x.since).Seconds() }

func (x *traffic) fault(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
}

// one sends the n-th request: a third lists, a third calls of tools that come and
// go, a third calls that are refused with the revision.
func (x *traffic) one(ctx context.Context, n int) {
	ctx, cancel := context.WithTimeout(ctx, liveness)
	defer cancel()
	c := x.clients[n/3%len(x.clients)]
	var fitting []int
	var what string
	var err error
	lo := x.rig.journal.newest()
	switch n % 3 {
	case 0:
		var names []string
		var a answer
		names, a, err = c.list(ctx)
		fitting = fits(c.group, names, lo, x.rig.newest())
		what = fmt.Sprintf("tools/list is %q (%+v)", names, a.Error)
		x.lists.Add(1)
	default:
		tool := probe
		if n%3 == 1 {
			tool = []string{"alpha__", "beta__"}[n/3%2] + fmt.Sprintf("t%d", n/7%bits)
		}
		var a answer
		a, err = c.call(ctx, tool)
		fitting = fitsCall(c.group, tool, a, lo, x.rig.newest())
		what = fmt.Sprintf("tools/call %s is %d %s %+v", tool, a.Status, a.Result, a.Error)
		x.calls.Add(1)
		if a.Result != nil {
			x.allowed.Add(1)
		}
	}
	switch {
	case err != nil:
		x.fault("%s: %v", c, err)
	case len(fitting) == 0:
		x.fault("%s: %s, which is no answer of revision %d to %d", c, what, lo, x.rig.newest())
	case lo == x.rig.newest():
		x.sole.Add(1)
	}
	x.sent.Add(1)
}

// more waits for so many answers that only the revision in force can have given.
func (x *traffic) more(t testing.TB, n int64) {
	t.Helper()
	from := x.sole.Load()
	eventually(t, "answers", func() bool { return x.sole.Load() >= from+n })
}
