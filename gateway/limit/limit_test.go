package limit

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestNeverMoreThanTheLimit lets time pass as it likes: in no window more than
// burst + rate·t goes through, and who waits as told gets through.
func TestNeverMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{
			Rate:  Rate{rapid.IntRange(1, 1000).Draw(t, "count"), rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "per")},
			Burst: rapid.IntRange(0, 20).Draw(t, "burst"),
		}
		time0 := newClock()
		b, err := newBuckets(time0.now)
		if err != nil {
			t.Fatal(err)
		}
		var admitted []time.Time
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			time0.pass(time.Duration(rapid.Float64Range(0, 3).Draw(t, "intervals") * float64(l.interval())))
			wait := b.take(name{}, l)
			if wait > 0 && rapid.Bool().Draw(t, "waits") {
				time0.pass(wait)
				if wait = b.take(name{}, l); wait > time.Millisecond { // what is left is less than that
					t.Fatalf("who waited as told has to wait for another %s", wait)
				}
			}
			if wait == 0 {
				admitted = append(admitted, time0.now())
			}
		}
		perSecond := float64(l.Rate.Count) / l.Rate.Per.Seconds()
		for i, from := range admitted {
			for j, to := range admitted[i:] {
				if most := float64(l.burst()) + perSecond*to.Sub(from).Seconds(); float64(j+1) > most+0.001 {
					t.Fatalf("%d in %s, at most %f", j+1, to.Sub(from), most)
				}
			}
		}
		if len(admitted) == 0 {
			t.Fatal("nothing went through")
		}
	})
}

// TestManyAtOnce has everybody take from one bucket while time passes with every
// look at it: what goes through is what there was, not one more or less.
func TestManyAtOnce(t *testing.T) {
	var ticks atomic.Int64
	start := newClock().now()
	b, err := newBuckets(func() time.Time {
		at := start.Add(time.Duration(ticks.Add(1)) * time.Millisecond)
		runtime.Gosched() // whoever has read the clock is overtaken
		return at
	})
	if err != nil {
		t.Fatal(err)
	}
	l := Limit{Rate: Rate{100, time.Second}, Burst: 5000}
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 2000 {
				if b.take(name{}, l) == 0 {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	want := 5000 + 100*float64(ticks.Load()-1)/1000
	if got := float64(admitted.Load()); math.Abs(got-want) > 1 {
		t.Errorf("%v went through in %d ms, want %v", got, ticks.Load(), want)
	}
}

func TestWhoIsCounted(t *testing.T) {
	one := newClock()
	l, _ := limiter(t, Config{
		PerPrincipal: &Limit{Rate{1, time.Minute}, 2}, PerTool: perHour(2), Tools: map[string]Limit{"s__rare": {Rate{1, time.Hour}, 1}},
	}, one.now)
	principal := func(key string) time.Duration { return l.Principal(t.Context(), key) }
	tool := func(name string) time.Duration { return l.Tool(t.Context(), name) }
	for i, c := range []struct {
		what string
		wait time.Duration
		want time.Duration
	}{
		{"a", principal("a"), 0}, {"a, again", principal("a"), 0}, {"a, once too often", principal("a"), time.Minute},
		{"b", principal("b"), 0}, {"a tool of a's name", tool("a"), 0},
		{"a tool", tool("s__t"), 0}, {"again", tool("s__t"), 0}, {"once too often", tool("s__t"), time.Hour / 2},
		{"one with a limit of its own", tool("s__rare"), 0}, {"again, once too often", tool("s__rare"), time.Hour},
	} {
		if c.wait != c.want {
			t.Errorf("%d, %s: wait %s, want %s", i, c.what, c.wait, c.want)
		}
	}
	one.pass(time.Minute)
	if wait := principal("a"); wait != 0 {
		t.Errorf("a minute later a has to wait for %s", wait)
	}
	if got, want := l.Status(), (Status{Where: Local, Principals: 1, Tools: 2}); got != want {
		t.Errorf("status %+v, want %+v", got, want)
	}
}

func TestNothingIsBoundedUnlessAsked(t *testing.T) {
	l, _ := limiter(t, Config{}, time.Now)
	for range 1000 {
		if l.Principal(t.Context(), "a") > 0 || l.Tool(t.Context(), "s__t") > 0 {
			t.Fatal("there is a limit")
		}
	}
	if l.principals.of.Len()+l.tools.of.Len() > 0 || l.Status() != (Status{Where: Off}) {
		t.Errorf("status %+v", l.Status())
	}
}

// TestHostileNames do not grow memory, however many and long they are.
func TestHostileNames(t *testing.T) {
	l, _ := limiter(t, Config{PerPrincipal: perHour(1)}, newClock().now)
	for i := range mostBuckets + 1000 {
		if l.Principal(t.Context(), fmt.Sprintf("%0100d", i)) > 0 {
			t.Fatalf("%d was never here before", i)
		}
	}
	if n := l.principals.of.Len(); n != mostBuckets {
		t.Errorf("%d buckets, want %d", n, mostBuckets)
	}
	if l.Principal(t.Context(), fmt.Sprintf("%0100d", mostBuckets)) == 0 {
		t.Error("one of the last is forgotten")
	}
}
