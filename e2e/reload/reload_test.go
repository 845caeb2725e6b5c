package reload_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/depot"
)

// reloads is how many good revisions follow one another.
const reloads = 100

// TestReload goes through 100 good revisions under steady traffic, with
// something broken between any two: the last good revision stays in force, the
// reason is told, and what is mended is picked up at once, even under the ETag of
// what was broken. Nobody's request fails, and no answer is half of one revision
// and half of another.
func TestReload(t *testing.T) {
	r := start(t, options{long: true})
	var clients []*client
	var listeners []*listener
	for _, g := range groups {
		for _, legacy := range []bool{true, false} {
			c := r.join(t, g, legacy)
			clients = append(clients, c)
			listeners = append(listeners, c.hear(t))
		}
	}
	x := r.run(t, clients...)
	all := slices.Concat(sending(), archives(), signatures(), policies())
	if len(all) >= reloads {
		t.Fatalf("%d ways to go wrong do not fit between %d revisions", len(all), reloads)
	}
	told := newTold(listeners)
	tick := map[string]time.Duration{}
	for n := 1; n < reloads; n++ {
		b := all[(n-1)%len(all)]
		if !t.Run(fmt.Sprintf("%03d %s/last good stays in force, the reason is told, the mended bundle is picked up", n, b.name), func(t *testing.T) {
			began := time.Now()
			r.goWrong(t, x, b, n)
			tick[b.name] = time.Since(began)
			r.mend(t, x, b, n+1)
			told.expect(t, r, n, n+1)
		}) {
			break
		}
	}
	x.halt(t)
	told.nothingMore(t)
	forced := r.journal.activations()
	if want := sequence(reloads); !slices.Equal(forced, want) {
		t.Errorf("in force were %v, want each of %d revisions once", forced, reloads)
	}
	r.arrivals(t, x)
	t.Logf("%d requests (%d lists, %d calls, of which %d went through) in %s, %.0f a second; %d answers were of one possible revision",
		x.sent.Load(), x.lists.Load(), x.calls.Load(), x.allowed.Load(), time.Since(x.since).Round(time.Millisecond), x.rate(), x.sole.Load())
	told.log(t, r)
}

func sequence(n int) (out []int) {
	for i := range n {
		out = append(out, i+1)
	}
	return out
}

// answersEach is how many answers have to show that a revision is in force, after
// it came and after something broken was refused.
const answersEach = 20

// goWrong publishes what is broken and waits until the gateway has met it.
func (r *rig) goWrong(t *testing.T, x *traffic, b wrong, n int) {
	t.Helper()
	p := publication(bad(n))
	p.ETag = etag(n + 1) // the next good one has the same
	before := len(r.journal.problems(0))
	asked := len(r.depot.Requests("main"))
	if b.down {
		r.door.down()
	}
	r.put(t, b.make(r, p))
	if b.reason == "" {
		if b.name != depot.Hang && b.name != depot.Drip { // these are given to the request that waits
			eventually(t, "another request for the bundle", func() bool { return len(r.depot.Requests("main")) > asked })
		}
	} else {
		eventually(t, "the reason "+b.reason, func() bool {
			return len(r.journal.problems(before)) > 0 || r.journal.newest() != n
		})
	}
	if got := r.journal.newest(); got != n {
		t.Fatalf("revision %d came into force", got)
	}
	x.more(t, answersEach)
	if s := r.ready(t); b.reason != "" && s != "degraded" {
		t.Errorf("readiness says %s", s)
	}
	r.operators(t, n, b.reason)
	for _, p := range r.journal.problems(before) {
		if !regexp.MustCompile(b.reason).MatchString(p) {
			t.Errorf("the problem is %q, want %s", p, b.reason)
		}
	}
}

// mend publishes the next good revision and waits until it answers.
func (r *rig) mend(t *testing.T, x *traffic, b wrong, n int) {
	t.Helper()
	if b.down {
		r.door.up(t)
	}
	r.good(t, n)
	r.inForce(t, n)
	x.more(t, answersEach)
	eventually(t, "ready again", func() bool { return r.ready(t) == "ready" })
	r.operators(t, n, "")
}
