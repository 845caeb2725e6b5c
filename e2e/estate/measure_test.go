package estate_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMeasure measures how long a quarantine takes from its command to the first
// denial at every replica, and a release to the first call that comes through,
// under load. Run it with REGOGATE_MEASURE=1 and -v.
func TestMeasure(t *testing.T) {
	if os.Getenv("REGOGATE_MEASURE") == "" {
		t.Skip("set REGOGATE_MEASURE=1")
	}
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) { measure(t, replicas) })
	}
}

func measure(t *testing.T, replicas int) {
	const rounds = 200
	e := start(t, options{replicas: replicas})
	x := e.run(t)
	took := map[bool][]time.Duration{}
	for round := range rounds {
		for _, forbidden := range []bool{true, false} {
			from := time.Now()
			change := e.release
			if forbidden {
				change = e.quarantine
			}
			if err := change(t.Context(), round%tools); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for at := range e.nodes {
				all.Go(func() { e.seen(t, at, round%tools, forbidden) })
			}
			all.Wait()
			took[forbidden] = append(took[forbidden], time.Since(from))
			time.Sleep(time.Duration(round*37%200) * time.Millisecond) // at any moment between two polls
		}
	}
	x.halt(t)
	x.report(t)
	for forbidden, what := range map[bool]string{true: "quarantine", false: "release"} {
		list := took[forbidden]
		slices.Sort(list)
		t.Logf("%d replicas, %d times %s to in force at all: %v / %v / %v (median, p99, most)", replicas, len(list), what,
			at(list, 0.5).Round(time.Millisecond), at(list, 0.99).Round(time.Millisecond), at(list, 1).Round(time.Millisecond))
	}
}

// seen asks a replica again and again until it forbids a tool, or allows it.
func (e *estate) seen(t *testing.T, at, tool int, forbidden bool) {
	for end := time.Now().Add(liveness); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		out, err := e.nodes[at].client.Call(t.Context(), fmt.Sprint("alpha__t", tool), nil)
		if err == nil && forbidden == strings.HasPrefix(out.Text, "Unknown tool") {
			return
		}
	}
	t.Errorf("replica %d: t%d forbidden is not %v within %v", at, tool, forbidden, liveness)
}
