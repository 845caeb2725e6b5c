package reload_test

import (
	"os"
	"testing"
	"time"
)

// TestMeasure measures how long a revision takes from its publication to its
// first decision and to list_changed at every open stream, polled and long
// polled, with nothing broken between; and how long requests take meanwhile. Run it
// with REGOGATE_MEASURE=1 and -v, without -race.
func TestMeasure(t *testing.T) {
	if os.Getenv("REGOGATE_MEASURE") == "" {
		t.Skip("set REGOGATE_MEASURE=1")
	}
	for _, long := range []bool{true, false} {
		name, n := "polling", 20
		if long {
			name, n = "long polling", 100
		}
		t.Run(name, func(t *testing.T) { measure(t, long, n) })
	}
	t.Run("pauses", pauses)
}

func measure(t *testing.T, long bool, n int) {
	r := start(t, options{long: long})
	var clients []*client
	var listeners []*listener
	for range 5 {
		for _, g := range groups {
			for _, legacy := range []bool{true, false} {
				c := r.join(t, g, legacy)
				clients, listeners = append(clients, c), append(listeners, c.hear(t))
			}
		}
	}
	x := r.run(t, clients...)
	told := newTold(listeners)
	for revision := 2; revision <= n; revision++ {
		r.good(t, revision)
		r.inForce(t, revision)
		told.expect(t, r, revision-1, revision)
		x.more(t, answersEach)
		time.Sleep(time.Duration(revision*37%200) * time.Millisecond) // at any moment between two polls
	}
	x.halt(t)
	t.Logf("%.0f requests a second, %d open streams", x.rate(), len(listeners))
	told.log(t, r)
}
