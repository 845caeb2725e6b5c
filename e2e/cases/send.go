package cases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// send sends all requests at once and waits for all that they leave behind.
func (p *player) send(ctx context.Context, steps []Step) ([]*outcome, error) {
	outcomes := make([]*outcome, len(steps))
	ready := make([]outgoing, len(steps))
	for i := range steps {
		var err error
		if ready[i], err = p.request(ctx, &steps[i]); err != nil {
			return nil, err
		}
	}
	if err := p.leaving(ctx, steps, ready); err != nil {
		return nil, err
	}
	errs := make([]error, len(steps))
	var sending sync.WaitGroup
	for i := range steps {
		sending.Go(func() {
			o := &outcome{step: steps[i], reply: exchange(ctx, p.target(&steps[i]), ready[i])}
			if steps[i].Walk {
				o.more, errs[i] = p.walk(ctx, steps[i], o.reply)
			}
			if name := steps[i].Keeps; name != "" {
				p.keep(name, o.reply.header.Get("Mcp-Session-Id"))
			}
			if id := o.reply.header.Get("X-Request-Id"); id != "" {
				var err error
				o.line, err = p.journal.request(ctx, id)
				errs[i] = errors.Join(errs[i], err)
				o.records = p.journal.recordsOf(id)
			}
			outcomes[i] = o
		})
	}
	sending.Wait()
	return outcomes, errors.Join(errs...)
}

// target is where a step's request goes.
func (w *world) target(s *Step) string {
	if s.Proxied && w.proxy != nil {
		return w.proxy.addr()
	}
	return w.gate.addr
}

// keep remembers a session that an answer opened.
func (w *world) keep(name, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[name] = id
}

// walk reads the pages of a list after the first one.
func (p *player) walk(ctx context.Context, s Step, first *reply) (more []*reply, err error) {
	const most = 100
	for page := first; len(more) < most; more = append(more, page) {
		cursor := at(page.message(), "/result/nextCursor")
		if cursor == nil {
			return more, nil
		}
		s.Arguments = `{"cursor":` + string(cursor) + `}`
		out, err := p.request(ctx, &s)
		if err != nil {
			return nil, err
		}
		page = exchange(ctx, p.target(&s), out)
	}
	return nil, fmt.Errorf("the list goes on after %d pages", most)
}

// leaving has the clients of those steps that leave do so in time.
func (p *player) leaving(ctx context.Context, steps []Step, ready []outgoing) error {
	expected := map[string]int{}
	leave := map[string]chan struct{}{}
	for i, s := range steps {
		if s.Leaves == "" {
			continue
		}
		if leave[s.Leaves] == nil {
			leave[s.Leaves] = make(chan struct{})
		}
		expected[s.Leaves]++
		ready[i].leave = leave[s.Leaves]
	}
	if _, err := p.gather(); err != nil {
		return err
	}
	for what, n := range expected {
		n += p.arrived.total(what)
		go func() {
			defer close(leave[what])
			for until := time.Now().Add(lateness); p.arrived.total(what) < n && time.Now().Before(until); {
				if _, err := p.gather(); err != nil || ctx.Err() != nil {
					return
				}
				time.Sleep(2 * time.Millisecond)
			}
		}()
	}
	return nil
}
