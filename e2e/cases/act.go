package cases

import (
	"context"
	"fmt"
	"maps"
	"runtime/metrics"
	"slices"
	"syscall"
	"time"
)

// act changes the world.
func (p *player) act(ctx context.Context, a *Action) error {
	if !knownMode(a.Mode) {
		return fmt.Errorf("unknown mode %q", a.Mode)
	}
	if a.Backend != "" {
		if err := p.actBackend(a); err != nil {
			return err
		}
	}
	if a.Issuer != "" {
		if err := p.actIssuer(a); err != nil {
			return err
		}
	}
	switch a.Redis {
	case "":
	case "garbage":
		for _, key := range p.redis.Keys() {
			if err := p.redis.Set(key, `{"effect":[`); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("redis: %q is not garbage", a.Redis)
	}
	time.Sleep(a.Pause)
	switch a.Gateway {
	case "":
		return nil
	case "restart":
		return p.restart(ctx)
	case "stop":
		return p.gate.stop()
	}
	return fmt.Errorf("gateway: %q is neither stop nor restart", a.Gateway)
}

func (p *player) actBackend(a *Action) error {
	if a.Kill {
		b := p.pipes[a.Backend]
		if b == nil {
			return fmt.Errorf("backend %q is not one over stdio", a.Backend)
		}
		pids, err := b.processes()
		if err != nil || len(pids) == 0 {
			return fmt.Errorf("backend %s has no process to kill: %w", a.Backend, err)
		}
		return syscall.Kill(pids[len(pids)-1], syscall.SIGKILL)
	}
	b := p.webs[a.Backend]
	if b == nil {
		return fmt.Errorf("backend %q is not one over http", a.Backend)
	}
	if a.Tools != nil {
		b.offer(a.Tools)
	}
	if a.Mode != "" {
		return b.turn(a.Mode, a.For)
	}
	return nil
}

func (p *player) actIssuer(a *Action) error {
	i := p.issuers[a.Issuer]
	if i == nil {
		return fmt.Errorf("no issuer %q", a.Issuer)
	}
	if a.JWKS != nil {
		document, err := p.keySet(a.JWKS)
		if err != nil {
			return err
		}
		i.publish(document)
	}
	if a.Document != "" {
		i.publish(a.Document)
	}
	if a.Mode != "" {
		return i.turn(a.Mode, "")
	}
	return nil
}

// surroundings checks what an expectation says of the world rather than of an
// answer.
func (p *player) surroundings(e *Expect) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(e.Fetches)) {
		if i := p.issuers[name]; i == nil || i.fetched() > e.Fetches[name] {
			problems = append(problems, fmt.Sprintf("the keys of %s were fetched more than %d times", name, e.Fetches[name]))
		}
	}
	problems = append(problems, p.logged(e)...)
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

func (p *player) living(name string) (pids []int, n int, err error) {
	b := p.pipes[name]
	if b == nil {
		return nil, 0, fmt.Errorf("backend %q is not one over stdio", name)
	}
	if pids, err = b.processes(); err != nil {
		return nil, 0, err
	}
	n, err = alive(pids)
	return pids, n, err
}

// heapWatch measures how far the heap grows.
type heapWatch struct {
	end, ended chan struct{}
	first, top uint64
}

func newHeapWatch(on bool) *heapWatch {
	h := &heapWatch{end: make(chan struct{}), ended: make(chan struct{})}
	if !on {
		close(h.ended)
		return h
	}
	h.first = heapInUse()
	go func() {
		defer close(h.ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			h.top = max(h.top, heapInUse())
			select {
			case <-h.end:
				return
			case <-tick.C:
			}
		}
	}()
	return h
}

// stop returns the growth in bytes.
func (h *heapWatch) stop() int64 {
	close(h.end)
	<-h.ended
	return int64(h.top) - int64(h.first)
}

func heapInUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
