package cases

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// Env is what running cases needs. It may be shared by cases that run at once.
type Env struct {
	Keys   *Keyring
	Dir    func() (string, error) // a new empty directory
	Binary string                 // the regogate program, for checks; "" does without
}

// Run runs the case and returns everything that is not as it expects.
func (c *Case) Run(ctx context.Context, env Env) []string {
	var problems []string
	if len(c.Steps)+len(c.Benign) > 0 {
		problems = append(problems, c.scene(ctx, env, Scene{Steps: c.Steps, Benign: c.Benign})...)
	}
	for _, s := range c.Scenes {
		problems = append(problems, c.scene(ctx, env, s)...)
	}
	return problems
}

func (c *Case) scene(ctx context.Context, env Env, spec Scene) (problems []string) {
	if spec.World == nil {
		spec.World = &c.World
	}
	for i, vars := range choices(nil, spec.Each) {
		label := spec.Name
		if len(spec.Each) > 0 {
			label = fmt.Sprintf("%s[%d]", label, i)
		}
		for _, p := range play(ctx, env, spec, vars) {
			problems = append(problems, label+" "+p)
		}
	}
	return problems
}

// play brings a world up, goes through the steps and takes the world down.
func play(ctx context.Context, env Env, spec Scene, vars map[string]string) (problems []string) {
	dir, err := env.Dir()
	if err != nil {
		return []string{err.Error()}
	}
	w, err := start(ctx, *spec.World, env.Keys, dir, vars)
	if err != nil {
		return []string{"the world does not start: " + err.Error()}
	}
	p := &player{world: w, env: env, named: map[string]*outcome{}, base: used()}
	for i := range spec.Steps {
		p.step(ctx, fmt.Sprintf("steps[%d]", i), spec.Steps[i])
	}
	p.join()
	for i := range spec.Benign {
		p.step(ctx, fmt.Sprintf("benign[%d]", i), spec.Benign[i])
	}
	p.join()
	if err := w.close(); err != nil {
		p.problem("end", "the gateway ended with an error: "+err.Error())
	}
	for _, fault := range w.faults() {
		p.problem("end", fault)
	}
	if len(p.problems) > 0 {
		p.problems = append(p.problems, "the log ends in:\n"+w.journal.tail(6))
	}
	return p.problems
}

// player goes through the steps of one scene.
type player struct {
	*world
	env      Env
	problems []string
	named    map[string]*outcome // the last outcome of each step with a name
	waiting  []*background
	base     usage
}

// outcome is what came of one request.
type outcome struct {
	step    Step
	reply   *reply
	more    []*reply       // the pages after it
	line    map[string]any // its log line, nil where it never got as far as the gateway's handler
	records []*decisionlog.Record
}

// background is a step whose requests are under way.
type background struct {
	label string
	steps []Step
	from  int // arrivals before it
	done  chan []*outcome
}

func (p *player) problem(label, text string) { p.problems = append(p.problems, label+": "+text) }

// step runs one step, once for each of its choices.
func (p *player) step(ctx context.Context, label string, spec Step) {
	if spec.Name != "" {
		label += " " + spec.Name
	}
	base := maps.Clone(p.vars)
	if base == nil {
		base = map[string]string{}
	}
	maps.Copy(base, spec.Vars)
	var all []Step
	for _, vars := range choices(base, spec.Each) {
		one, err := p.fill(spec, vars)
		if err != nil {
			p.problem(label, err.Error())
			return
		}
		all = append(all, slices.Repeat([]Step{one}, max(spec.Times, 1))...)
	}
	switch {
	case spec.Background:
		p.begin(ctx, label, all)
	case spec.Together:
		p.attempt(label, spec.Until, func() []string { return p.requests(ctx, all) })
	default:
		for i, one := range all {
			at := label
			if len(all) > 1 {
				at = fmt.Sprintf("%s(%d)", label, i)
			}
			p.single(ctx, at, one)
		}
	}
}

// fill makes the step of one choice. A variable may use others.
func (p *player) fill(spec Step, vars map[string]string) (Step, error) {
	spec.Each, spec.Vars = nil, nil
	outer := p.look(vars)
	return expand(spec, func(name string) (string, error) {
		value, err := outer(name)
		if _, own := vars[name]; own && err == nil {
			return expand(value, outer)
		}
		return value, err
	})
}

func (p *player) single(ctx context.Context, label string, s Step) {
	switch {
	case s.Do != nil:
		if err := p.act(ctx, s.Do); err != nil {
			p.problem(label, err.Error())
			return
		}
		watch := newHeapWatch(s.Expect.Memory > 0)
		p.attempt(label, s.Until, func() []string { return p.surroundings(&s.Expect) })
		if text := s.Expect.heap(watch.stop()); text != "" {
			p.problem(label, text)
		}
	case s.Check != nil:
		p.attempt(label, 0, func() []string { return p.check(ctx, &s) })
	case s.Read != "":
		p.attempt(label, s.Until, func() []string { return p.read(&s) })
	case s.Opens != "":
		p.attempt(label, 0, func() []string { return p.opens(ctx, &s) })
	default:
		p.attempt(label, s.Until, func() []string { return p.requests(ctx, []Step{s}) })
	}
}

// attempt tries until it finds nothing wrong, or for so long.
func (p *player) attempt(label string, patient time.Duration, try func() []string) {
	deadline := time.Now().Add(patient)
	for {
		found := try()
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, f := range found {
				p.problem(label, f)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// requests sends the requests, all at once, and judges what came of them.
func (p *player) requests(ctx context.Context, steps []Step) []string {
	from, err := p.gather()
	if err != nil {
		return []string{err.Error()}
	}
	watch := newHeapWatch(steps[0].Expect.Memory > 0)
	outcomes, err := p.send(ctx, steps)
	grown := watch.stop()
	if err != nil {
		return []string{err.Error()}
	}
	problems := p.judge(outcomes)
	if text := steps[0].Expect.heap(grown); text != "" {
		problems = append(problems, text)
	}
	wait := lateness
	if len(problems) > 0 {
		wait = 0 // what was not answered well need not have arrived
	}
	return append(problems, p.arrivedSince(from, steps, p.reserved(), wait)...)
}

func (p *player) judge(outcomes []*outcome) (problems []string) {
	for _, o := range outcomes {
		problems = append(problems, o.judge(p.named[o.step.Expect.SameAs])...)
		problems = append(problems, p.surroundings(&o.step.Expect)...)
		if o.step.Name != "" {
			p.named[o.step.Name] = o
		}
	}
	return problems
}

// begin sends the requests and goes on.
func (p *player) begin(ctx context.Context, label string, steps []Step) {
	from, err := p.gather()
	if err != nil {
		p.problem(label, err.Error())
		return
	}
	b := &background{label: label, steps: steps, from: from, done: make(chan []*outcome, 1)}
	p.waiting = append(p.waiting, b)
	go func() {
		outcomes, err := p.send(ctx, steps)
		if err != nil {
			outcomes = nil
		}
		b.done <- outcomes
	}()
	// The next step may be what ends these requests: they have to be there.
	p.arrivedSince(from, onlyCalls(steps), p.reserved().inverse(), lateness)
}

// onlyCalls returns the steps with nothing to arrive but their calls, which
// come before whatever else a request brings about.
func onlyCalls(steps []Step) []Step {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Expect.Arrived = slices.DeleteFunc(slices.Clone(steps[i].Expect.Arrived), func(a Arrival) bool { return a.Call == "" })
	}
	return steps
}

// join waits for what is under way and judges it. What arrived is compared with
// all of it together: which message is whose cannot be told.
func (p *player) join() {
	if len(p.waiting) == 0 {
		return
	}
	var all []Step
	for _, b := range p.waiting {
		outcomes := <-b.done
		if outcomes == nil {
			p.problem(b.label, "the requests could not be sent")
		}
		for _, text := range p.judge(outcomes) {
			p.problem(b.label, text)
		}
		all = append(all, b.steps...)
	}
	for _, text := range p.arrivedSince(p.waiting[0].from, all, p.reserved().inverse(), lateness) {
		p.problem("in the background", text)
	}
	p.waiting = nil
}
