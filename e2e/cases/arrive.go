package cases

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// kinds is a set of kinds of messages at backends. As a filter it leaves out its
// own; inverted it leaves out all others.
type kinds struct {
	set      map[string]bool
	inverted bool
}

func (k kinds) inverse() kinds { return kinds{k.set, !k.inverted} }

func (k kinds) leavesOut(kind string) bool { return k.set[kind] != k.inverted }

// kind names what a message is, as Arrival does.
func (a *arrived) kind() string {
	if a.method == "tools/call" {
		return "call " + a.backend + "/" + a.tool
	}
	return "message " + a.backend + "/" + a.method
}

func (a *Arrival) kind() string {
	if a.Call != "" {
		return "call " + a.Call
	}
	return "message " + a.Message
}

// reserved is the kinds of messages that steps in the background wait for.
func (p *player) reserved() kinds {
	k := kinds{set: map[string]bool{}}
	for _, b := range p.waiting {
		for _, s := range b.steps {
			for i := range s.Expect.Arrived {
				k.set[s.Expect.Arrived[i].kind()] = true
			}
		}
	}
	return k
}

// lateness is how long a message may take that nobody's answer waits for.
const lateness = 10 * time.Second

// arrivedSince compares what came to the backends after the first n messages
// with what the steps expect, in any order, and waits a while for what is
// missing.
func (p *player) arrivedSince(n int, steps []Step, but kinds, wait time.Duration) []string {
	deadline := time.Now().Add(wait)
	for {
		if _, err := p.gather(); err != nil {
			return []string{err.Error()}
		}
		problems, missing := compareArrivals(p.arrived.since(n), steps, but)
		if len(problems) == 0 || !missing || time.Now().After(deadline) {
			return problems
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func compareArrivals(got []arrived, steps []Step, but kinds) (problems []string, missing bool) {
	var want []Arrival
	silent := false
	for _, s := range steps {
		want = append(want, s.Expect.Arrived...)
		silent = silent || s.Expect.Silent
	}
	for _, a := range got {
		if but.leavesOut(a.kind()) || a.house() && !silent {
			continue
		}
		i := slices.IndexFunc(want, func(w Arrival) bool { return w.kind() == a.kind() })
		if i < 0 {
			problems = append(problems, fmt.Sprintf("arrived and should not have: %s %s", a.kind(), clip(string(a.body))))
			continue
		}
		for _, text := range want[i].check(&a) {
			problems = append(problems, "arrived as "+a.kind()+": "+text)
		}
		if !want[i].Any {
			want = slices.Delete(slices.Clone(want), i, i+1)
		}
	}
	for _, w := range want {
		if w.Any {
			continue
		}
		problems, missing = append(problems, "did not arrive: "+w.kind()), true
	}
	return problems, missing
}

func (w *Arrival) check(a *arrived) []string {
	problems := w.Probe.check(a.body)
	if w.Of != "" && a.of != w.Of {
		problems = append(problems, fmt.Sprintf("it names a call of %q, want one of %s", a.of, w.Of))
	}
	for name, expression := range w.Headers {
		if text := like(strings.Join(a.header.Values(name), "\n"), expression); text != "" {
			problems = append(problems, "header "+name+": "+text)
		}
	}
	for _, name := range w.Absent {
		if got := a.header.Values(name); got != nil {
			problems = append(problems, fmt.Sprintf("header %s is there: %q", name, got))
		}
	}
	return problems
}
