package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is how a soak ended.
type report struct {
	options
	before, after look
	looks         []look
	kinds         []string
	counts        map[string]int
	faults        []string
	wrong         int
	unsteady      []string // what has no plateau, or did not come back
	took          time.Duration
}

// quantity is one thing that is looked at, and by how much it may differ beyond
// a tenth: what is under way at any moment is a matter of chance.
type quantity struct {
	name  string
	of    func(look) float64
	slack float64
}

var quantities = []quantity{
	{"goroutines", func(l look) float64 { return float64(l.Goroutines) }, 60},
	{"heap", func(l look) float64 { return float64(l.Heap) }, 3e6},
	{"files", func(l look) float64 { return float64(l.Files) }, 40},
	{"children", func(l look) float64 { return float64(l.Children) }, 5},
}

// conclude takes everything out of the field when the gateway has ended.
func (r *report) conclude(f *field) {
	r.looks, r.took = f.looks, time.Since(f.begun)
	r.kinds, r.counts = f.kinds()
	r.faults, r.wrong = f.told()
	r.unsteady = plateau(r.looks)
	if r.settled > sweep { // or else it may not be over yet
		r.unsteady = append(r.unsteady, returned(r.before, r.after)...)
	}
}

// plateau compares the second fifth of the looks with the last; the first is
// for warming up. Too few of them say nothing.
func plateau(looks []look) (unsteady []string) {
	fifth := len(looks) / 5
	if fifth < 2 {
		return nil
	}
	for _, q := range quantities {
		early, late := median(looks[fifth:2*fifth], q.of), median(looks[len(looks)-fifth:], q.of)
		if late > early*1.1+q.slack {
			unsteady = append(unsteady, fmt.Sprintf("%s grew from %.0f in the second fifth to %.0f in the last", q.name, early, late))
		}
	}
	return unsteady
}

// returned compares what there is after the clients with what there was before
// them. Of the heap some stays: the gateway remembers tokens and what the policy
// said of their principals, within bounds, and the runtime a piece of every
// goroutine that there was at once.
func returned(before, after look) (left []string) {
	for _, q := range []quantity{
		{"goroutines", quantities[0].of, 10}, {"heap", quantities[1].of, 6e6}, {"files", quantities[2].of, 8}, {"children", quantities[3].of, 0},
	} {
		was, is := q.of(before), q.of(after)
		if is > was*1.1+q.slack {
			left = append(left, fmt.Sprintf("%s: %.0f before the clients, %.0f after them", q.name, was, is))
		}
	}
	return left
}

func median(looks []look, of func(look) float64) float64 {
	var values []float64
	for _, l := range looks {
		values = append(values, of(l))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// clean is nil where the gateway did nothing wrong.
func (r *report) clean() error {
	var all []error
	if r.wrong > 0 {
		all = append(all, fmt.Errorf("%d faults, the first: %s", r.wrong, r.faults[0]))
	}
	for _, u := range r.unsteady {
		all = append(all, errors.New(u))
	}
	return errors.Join(all...)
}

func (r *report) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Soak\n\n%s, %s/%s, GOMAXPROCS %d, seed %d\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), r.seed)
	fmt.Fprintf(&b, "%d sessions of %d principals, half of them of each era, one request each %v in the mean, for %v (%v in all), before 4 servers with faults.\n\n",
		r.sessions, r.principals, r.pace, r.length, r.took.Round(time.Second))
	verdict := "passed"
	if err := r.clean(); err != nil {
		verdict = "FAILED"
	}
	fmt.Fprintf(&b, "Verdict: %s\n", verdict)
	for _, u := range r.unsteady {
		fmt.Fprintf(&b, "- %s\n", u)
	}
	fmt.Fprintf(&b, "\n## What must not be: %d\n\n", r.wrong)
	for _, f := range r.faults {
		fmt.Fprintf(&b, "- `%s`\n", strings.ReplaceAll(f, "`", "'"))
	}
	b.WriteString("\n## How requests ended, and what else there was\n\n| | |\n|---|--:|\n")
	for _, k := range r.kinds {
		fmt.Fprintf(&b, "| %s | %d |\n", k, r.counts[k])
	}
	b.WriteString("\n## The gateway's process\n\nAfter two forced collections. Streams and sessions are the clients'; the last column counts the sessions and listeners at the HTTP servers.\n\n" +
		"| at | goroutines | heap | resident | files | children | streams | legacy sessions | at servers |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	r.rows(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// mostRows bounds the table: of more looks every so manieth is shown.
const mostRows = 60

func (r *report) rows(b *strings.Builder) {
	row := func(at string, l look) {
		fmt.Fprintf(b, "| %s | %d | %.1f MB | %.0f MB | %d | %d | %d | %d | %d |\n",
			at, l.Goroutines, float64(l.Heap)/1e6, float64(l.Resident)/1e6, l.Files, l.Children, l.Streams, l.Legacy, l.Servers)
	}
	step := 1 + len(r.looks)/mostRows
	for i := 0; i < len(r.looks); i += step {
		row(r.looks[i].At.Round(time.Second).String(), r.looks[i])
	}
	row("without clients, "+r.after.At.Round(time.Second).String(), r.after)
	if fifth := len(r.looks) / 5; fifth > 1 {
		b.WriteString("\n| median of | second fifth | last fifth |\n|---|--:|--:|\n")
		for _, q := range quantities {
			fmt.Fprintf(b, "| %s | %.0f | %.0f |\n", q.name, median(r.looks[fifth:2*fifth], q.of), median(r.looks[len(r.looks)-fifth:], q.of))
		}
	}
}
