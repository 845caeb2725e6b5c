package main

import (
	"context"
	"fmt"
	"slices"
)

// Operations.
const (
	opCall = "tools/call"
	opList = "tools/list"
)

// entrant is one way in which an operation is done.
type entrant struct {
	op   string
	name string
	role role
	*target
}

// role says what an entrant's figures are for.
type role int

const (
	contender role = iota
	baseline       // what all are compared with
	floor          // the least that anything pays which verifies tokens
	subject        // what the targets are about
)

// draft collects entrants until the first error.
type draft struct {
	list []entrant
	err  error
}

func (d *draft) add(op, name string, as role, t *target, err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%s, %s: %w", op, name, err)
	}
	d.list = append(d.list, entrant{op, name, as, t})
}

// entrants returns every entrant, proven to give the right answer. clients is
// how many there are at once at most.
func (f *field) entrants(ctx context.Context, clients int) ([]entrant, error) {
	d := &draft{}
	if err := f.callers(ctx, d, clients); err != nil {
		return nil, err
	}
	if err := f.listers(ctx, d, clients); err != nil {
		return nil, err
	}
	if d.err != nil {
		return nil, d.err
	}
	for _, e := range d.list {
		if err := e.prove(ctx); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", e.op, e.name, err)
		}
	}
	return d.list, nil
}

func (f *field) callers(ctx context.Context, d *draft, clients int) error {
	token, err := f.token(caller)
	if err != nil {
		return err
	}
	call := f.ask.call
	add := func(name string, as role, url, tool string) {
		t, err := call.to(url, token, tool)
		d.add(opCall, name, as, t, err)
	}
	add("direct", baseline, f.backends+"/"+call.server+"/mcp", call.tool)
	add("bare proxy", contender, f.proxies[toOne], call.tool)
	add("proxy with JWT", floor, f.proxies[toOneVerified], call.tool)
	add("regogate", subject, f.gates[0].url+"/mcp", call.exposed)
	add("regogate, decision log", contender, f.gates[1].url+"/mcp", call.exposed)
	t, err := call.to(f.gates[0].url+"/mcp", token, call.exposed)
	if err != nil {
		return err
	}
	d.add(opCall, "regogate, new token each time", subject, t.strange(func() (string, error) { return f.token(caller) }), nil)
	old, err := t.legacy(ctx, clients)
	d.add(opCall, "regogate, legacy sessions", contender, old, err)
	return nil
}

func (f *field) listers(ctx context.Context, d *draft, clients int) error {
	token, err := f.token(allSeeing)
	if err != nil {
		return err
	}
	own, most := f.names(), f.ask.most
	add := func(name string, as role, url, token string, names []string) {
		t, err := listTarget(url, token, names)
		d.add(opList, name, as, t, err)
	}
	add("direct", baseline, f.whole, token, own)
	add("direct, list encoded once", contender, f.ready, token, own)
	add("bare proxy", contender, f.proxies[toWhole], token, own)
	add("proxy with JWT", floor, f.proxies[toWholeVerified], token, own)
	add("regogate", subject, f.gates[0].url+"/mcp", token, most)
	add("regogate, decision log", contender, f.gates[1].url+"/mcp", token, most)
	t, err := listTarget(f.gates[0].url+"/mcp", token, most)
	if err != nil {
		return err
	}
	d.add(opList, "regogate, new token each time", subject, t.strange(func() (string, error) { return f.token(allSeeing) }), nil)
	old, err := t.legacy(ctx, clients)
	d.add(opList, "regogate, legacy sessions", contender, old, err)
	other, err := f.token(caller)
	if err != nil {
		return err
	}
	add("regogate, "+caller, contender, f.gates[0].url+"/mcp", other, f.ask.few)
	return nil
}

// names returns the sorted names of all tools as their servers show them.
func (f *field) names() []string {
	var own []string
	for _, e := range f.tools.entries {
		own = append(own, e.Name)
	}
	slices.Sort(own)
	return own
}
