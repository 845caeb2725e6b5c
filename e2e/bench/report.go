package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// report is everything that a run found out.
type report struct {
	Machine machine  `json:"machine"`
	Plan    plan     `json:"plan"`
	Tools   string   `json:"tools"`
	Asked   string   `json:"asked"`
	Rows    []row    `json:"rows"`
	Memory  *memory  `json:"memory,omitempty"`
	Absence *absence `json:"absence,omitempty"`
}

type machine struct {
	Date    time.Time `json:"date"`
	Command string    `json:"command"`
	Go      string    `json:"go"`
	OPA     string    `json:"opa"`
	System  string    `json:"system"`
	CPU     string    `json:"cpu"`
	Procs   int       `json:"gomaxprocs"`
}

// row is one contest.
type row struct {
	Op     string `json:"op"`
	AtOnce int    `json:"at_once"`
	Name   string `json:"name"`
	summary
	OverDirect *ratio `json:"over_direct,omitempty"`
	OverFloor  *ratio `json:"over_floor,omitempty"`

	role role
}

func thisMachine(args []string) machine {
	m := machine{
		Date: time.Now().UTC(), Command: strings.Join(append([]string{"go run ./e2e/bench"}, args...), " "),
		Go: runtime.Version(), OPA: "unknown", System: runtime.GOOS + "/" + runtime.GOARCH, Procs: runtime.GOMAXPROCS(0),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/open-policy-agent/opa" {
				m.OPA = d.Version
			}
		}
	}
	m.CPU = "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	return m
}

// rows compares every contest with the baseline and the floor of its own
// operation and concurrency.
func rows(contests []*contest) []row {
	type group struct {
		op     string
		atOnce int
	}
	base, low := map[group]summary{}, map[group]summary{}
	var out []row
	for _, c := range contests {
		r := row{Op: c.op, AtOnce: c.atOnce, Name: c.name, role: c.role, summary: summarise(c.runs)}
		switch c.role {
		case baseline:
			base[group{c.op, c.atOnce}] = r.summary
		case floor:
			low[group{c.op, c.atOnce}] = r.summary
		}
		out = append(out, r)
	}
	for i := range out {
		g := group{out[i].Op, out[i].AtOnce}
		out[i].OverDirect, out[i].OverFloor = out[i].over(base[g]), out[i].over(low[g])
	}
	return out
}

// clean is an error where an answer was wrong.
func (r *report) clean() error {
	for _, row := range r.Rows {
		if row.Wrong > 0 {
			return fmt.Errorf("%s, %s, %s: %d of %d answers were wrong", row.Op, atOnce(row.AtOnce), row.Name, row.Wrong, row.Requests)
		}
	}
	return nil
}

// write writes the report in Markdown.
func (r *report) write(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, %s, OPA %s, %s, %s, GOMAXPROCS %d\n\n", m.Date.Format(time.DateOnly), m.Go, m.OPA, m.System, m.CPU, m.Procs)
	fmt.Fprintf(&b, "`%s`\n\n%s. %s.\n", m.Command, r.Tools, r.Asked)
	for i, row := range r.Rows {
		if i == 0 || row.Op != r.Rows[i-1].Op || row.AtOnce != r.Rows[i-1].AtOnce {
			fmt.Fprintf(&b, "\n%s, %s (%d rounds of %d)\n\n", row.Op, atOnce(row.AtOnce), len(row.Medians), row.Requests/max(1, len(row.Medians)))
			b.WriteString("| | median | p95 | p99 | per second | times direct | times proxy with JWT |\n")
			b.WriteString("|---|--:|--:|--:|--:|--:|--:|\n")
		}
		if row.Wrong > 0 {
			fmt.Fprintf(&b, "| %s | %d of %d answers wrong | | | | | |\n", row.Name, row.Wrong, row.Requests)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.0f | %s | %s |\n", row.Name,
			duration(row.Median), duration(row.P95), duration(row.P99), row.PerSecond, row.OverDirect, row.OverFloor)
	}
	r.targets(&b)
	if r.Absence != nil {
		r.Absence.write(&b)
	}
	if r.Memory != nil {
		r.Memory.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Targets at the median.
const (
	callOverFloor  = 1.5
	listOverDirect = 15
)

func (r *report) targets(b *strings.Builder) {
	var lines []string
	for _, row := range r.Rows {
		if row.role != subject {
			continue
		}
		got, most, than := row.OverFloor, callOverFloor, "proxy with JWT"
		if row.Op == opList {
			got, most, than = row.OverDirect, listOverDirect, "direct"
		}
		if row.Wrong > 0 {
			lines = append(lines, fmt.Sprintf("- %s, %s, %s: missed, for answers were wrong", row.Op, atOnce(row.AtOnce), row.Name))
		}
		if got == nil {
			continue
		}
		verdict := "met"
		if got.Median > most {
			verdict = "missed"
		}
		lines = append(lines, fmt.Sprintf("- %s, %s, %s: %.2f times %s, want at most %g: %s", row.Op, atOnce(row.AtOnce), row.Name, got.Median, than, most, verdict))
	}
	if lines != nil {
		b.WriteString("\nTargets, at the median\n\n" + strings.Join(lines, "\n") + "\n")
	}
}

func atOnce(n int) string {
	if n == 1 {
		return "one at a time"
	}
	return fmt.Sprintf("%d at once", n)
}

func duration(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// String is the median with the lowest and the highest of all rounds.
func (r *ratio) String() string {
	if r == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", r.Median, r.Min, r.Max)
}
