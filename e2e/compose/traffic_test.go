package compose_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/replica"
	"github.com/regogate/regogate/e2e/world"
)

const (
	workers = 4
	pace    = 25 * time.Millisecond // between the requests of one worker, where the machine keeps up

	allowed   = "stripe__create_refund" // of an agent of payments, until the policy changes
	forbidden = "github__delete_file"   // never
)

// stage is what is known of the policy in force.
type stage int

const (
	old stage = iota // allowed is allowed
	between
	new // it is not
)

// traffic is agents of payments that call what they may and what they may not.
type traffic struct {
	d       *deployment
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	stage   stage
	answers int // right ones, since begin
	lost    []string
	faults  []string
	results int // of allowed, in all
	gone    int // requests for allowed without an answer, in all
}

func (d *deployment) traffic(t *testing.T) *traffic {
	t.Helper()
	for _, s := range []string{"stripe", "github"} {
		if err := d.ledger(t, s).Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	x := &traffic{d: d, stop: stop}
	client := d.client(t, "payments")
	for w := range workers {
		x.running.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for i := w; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					x.one(client, i%2 == 0)
				}
			}
		})
	}
	t.Cleanup(x.halt)
	return x
}

// one calls, and judges the answer by what was in force from before to after.
func (x *traffic) one(client *world.Client, mayBe bool) {
	tool := forbidden
	if mayBe {
		tool = allowed
	}
	before := x.now()
	ctx, cancel := context.WithTimeout(context.Background(), liveness)
	defer cancel()
	begun := time.Now()
	out, err := client.Call(ctx, tool, nil)
	x.mu.Lock()
	defer x.mu.Unlock()
	came := fmt.Sprintf("%s after %v: status %d, %s %v", tool, time.Since(begun).Round(time.Millisecond), out.Status, out.Text, err)
	switch unknown := out.Code == -32602 && out.Text == "Unknown tool: "+tool; {
	case err != nil:
		x.lost = append(x.lost, came)
		if mayBe {
			x.gone++
		}
	case out.Result != nil && mayBe && before != new:
		x.results++
		x.answers++
	case unknown && (!mayBe || x.stage != old):
		x.answers++
	default:
		x.faults = append(x.faults, came)
	}
}

func (x *traffic) now() stage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stage
}

func (x *traffic) set(s stage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stage = s
}

func (x *traffic) change()  { x.set(between) }
func (x *traffic) changed() { x.set(new) }

// begin counts from here.
func (x *traffic) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answers, x.lost = 0, nil
}

// more waits for so many further answers.
func (x *traffic) more(t testing.TB, n int) {
	t.Helper()
	count := func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.answers
	}
	from := count()
	replica.Within(t, liveness, "callers are answered", func() bool { return count() >= from+n })
}

// judge says what callers saw since begin.
func (x *traffic) judge(t *testing.T, lost int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t.Logf("%d right answers, %d requests without one", x.answers, len(x.lost))
	for _, f := range x.faults {
		t.Error("a wrong answer: " + f)
	}
	if len(x.lost) > lost {
		t.Errorf("%d requests were lost, %d may be:\n%s", len(x.lost), lost, strings.Join(x.lost[:min(len(x.lost), 10)], "\n"))
	}
}

func (x *traffic) halt() {
	x.stop()
	x.running.Wait()
}

// audit holds what arrived at the servers against what callers saw: nothing that
// is forbidden, and nothing twice.
func (x *traffic) audit(t *testing.T) {
	for _, s := range []string{"stripe", "github"} {
		arrived, err := x.d.ledger(t, s).Arrived(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		count := len(arrived)
		arrived = slices.Compact(arrived)
		switch {
		case s == "github" && count > 0:
			t.Errorf("%d calls arrived at github, of %v: nothing there is allowed", count, arrived)
		case s == "stripe" && (!slices.Equal(arrived, []string{allowed}) || count < x.results || count > x.results+x.gone):
			t.Errorf("%d calls arrived at stripe, of %v; callers have %d results, and %d calls got no answer", count, arrived, x.results, x.gone)
		case s == "stripe":
			t.Logf("callers have %d results, %d calls arrived", x.results, count)
		}
	}
}

// ledger is what has arrived at a server, by its own address: this machine has a
// way into the networks of its containers.
func (d *deployment) ledger(t testing.TB, server string) world.RemoteLedger {
	t.Helper()
	at := d.inspect(t, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", d.container(t, server))
	return world.RemoteLedger("http://" + at + ":8080/calls")
}
