package cases

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// surroundings checks what an expectation says of the world rather than of an
// answer.
func (p *player) surroundings(e *Expect) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(e.Fetches)) {
		if i := p.issuers[name]; i == nil || i.fetched() > e.Fetches[name] {
			problems = append(problems, fmt.Sprintf("the keys of %s were fetched more than %d times", name, e.Fetches[name]))
		}
	}
	problems = append(problems, p.logged(e)...)
	problems = append(problems, p.distributed(e)...)
	problems = append(problems, p.uploaded(e)...)
	for _, name := range slices.Sorted(maps.Keys(e.Processes)) {
		pids, n, err := p.living(name)
		if err != nil || n != e.Processes[name] {
			problems = append(problems, fmt.Sprintf("%s has %d living processes (of groups %v), want %d (%v)", name, n, pids, e.Processes[name], err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Starts)) {
		if pids, _, err := p.living(name); err != nil || len(pids) > e.Starts[name] {
			problems = append(problems, fmt.Sprintf("%s was started %d times, more than %d (%v)", name, len(pids), e.Starts[name], err))
		}
	}
	problems = append(problems, p.traffic(e)...)
	if e.Growth != nil {
		problems = append(problems, p.base.grown(*e.Growth)...)
	}
	return problems
}

// traffic compares the numbers of messages, calls and sessions.
func (p *player) traffic(e *Expect) (problems []string) {
	if _, err := p.gather(); err != nil {
		return []string{err.Error()}
	}
	compare := func(what, name string, got int, want Codes) {
		if !want.has(strconv.Itoa(got)) {
			problems = append(problems, fmt.Sprintf("%d %s of %s so far, want %s", got, what, name, want))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Totals)) {
		compare("messages", name, p.arrived.total(name), e.Totals[name])
	}
	for _, name := range slices.Sorted(maps.Keys(e.Ran)) {
		backend, tool, _ := strings.Cut(name, "/")
		if p.webs[backend] == nil {
			return append(problems, fmt.Sprintf("ran: %s is no backend over http or sse", backend))
		}
		compare("calls", name, p.webs[backend].calls(tool), e.Ran[name])
	}
	for _, name := range slices.Sorted(maps.Keys(e.Sessions)) {
		if p.webs[name] == nil {
			return append(problems, fmt.Sprintf("sessions: %s is no backend over http or sse", name))
		}
		compare("open sessions", name, p.webs[name].sessions.count(), e.Sessions[name])
	}
	return problems
}

// logged waits a little for lines that have to be there.
func (p *player) logged(e *Expect) (problems []string) {
	for _, expression := range e.Logged {
		deadline := time.Now().Add(lateness)
		found, err := p.journal.has(expression)
		for err == nil && !found && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			found, err = p.journal.has(expression)
		}
		if !found {
			problems = append(problems, fmt.Sprintf("no line of the log matches %s (%v)", expression, err))
		}
	}
	for _, expression := range slices.Sorted(maps.Keys(e.Counted)) {
		if n, err := p.journal.matches(expression); n != e.Counted[expression] || err != nil {
			problems = append(problems, fmt.Sprintf("%d lines of the log match %s, want %d (%v)", n, expression, e.Counted[expression], err))
		}
	}
	if n := p.journal.count(); e.LogLines > 0 && n > e.LogLines {
		problems = append(problems, fmt.Sprintf("the log has %d lines, more than %d", n, e.LogLines))
	}
	for _, expression := range e.NotLogged {
		if found, err := p.journal.has(expression); found || err != nil {
			problems = append(problems, fmt.Sprintf("a line of the log matches %s (%v)", expression, err))
		}
	}
	return problems
}

func (w *world) living(name string) (pids []int, n int, err error) {
	b := w.pipes[name]
	if b == nil {
		return nil, 0, fmt.Errorf("backend %q is not one over stdio", name)
	}
	if pids, err = b.processes(); err != nil {
		return nil, 0, err
	}
	n, err = alive(pids)
	return pids, n, err
}

// left is how many processes of a stdio backend live on after the gateway has
// ended. What was killed may take a moment to go.
func (w *world) left(name string) int {
	const most = 3 * time.Second
	for deadline := time.Now().Add(most); ; time.Sleep(20 * time.Millisecond) {
		_, n, err := w.living(name)
		if err != nil || n == 0 || time.Now().After(deadline) {
			return n
		}
	}
}

// usage is what the program uses.
type usage struct{ goroutines, descriptors int }

func used() usage {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return usage{goroutines: runtime.NumGoroutine()} // no Linux: nothing to see there
	}
	return usage{runtime.NumGoroutine(), len(open)}
}

// grown says by how much more than most the program's usage has grown.
func (base usage) grown(most Growth) (problems []string) {
	now := used()
	if n := now.goroutines - base.goroutines; n > most.Goroutines {
		problems = append(problems, fmt.Sprintf("there are %d goroutines more than at first, want at most %d", n, most.Goroutines))
	}
	if n := now.descriptors - base.descriptors; n > most.Descriptors {
		problems = append(problems, fmt.Sprintf("there are %d open descriptors more than at first, want at most %d", n, most.Descriptors))
	}
	return problems
}
