package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// run is what one entrant did in one go.
type run struct {
	latencies []time.Duration // of each right answer, from the sending of its request to its last byte
	took      time.Duration   // of all of them
	wrong     int             // answers that were not the proven one
	problem   error           // the first of them
}

// measure sends n requests, that many at once, and checks every answer.
// Checking is no part of a latency. The error is only that of ctx.
func (t *target) measure(ctx context.Context, n, atOnce int) (run, error) {
	each := make([]run, atOnce)
	began := time.Now()
	var workers sync.WaitGroup
	for number := range atOnce {
		share := n / atOnce
		if number < n%atOnce {
			share++
		}
		workers.Go(func() { each[number] = t.work(ctx, share, number) })
	}
	workers.Wait()
	whole := run{took: time.Since(began), latencies: make([]time.Duration, 0, n)}
	for _, r := range each {
		whole.add(r)
	}
	return whole, ctx.Err()
}

// work is one client's share of requests, one after the other.
func (t *target) work(ctx context.Context, share, number int) run {
	var buf bytes.Buffer
	buf.Grow(len(t.want) + bytes.MinRead)
	r := run{latencies: make([]time.Duration, 0, share)}
	for range share {
		if ctx.Err() != nil {
			break
		}
		took, err := t.once(ctx, number, &buf)
		if err != nil {
			r.add(run{wrong: 1, problem: err})
			continue
		}
		r.latencies = append(r.latencies, took)
	}
	return r
}

// once sends one request. Only the way there and back is timed.
func (t *target) once(ctx context.Context, number int, buf *bytes.Buffer) (time.Duration, error) {
	header, err := t.header(number)
	if err != nil {
		return 0, err
	}
	from := time.Now()
	if err := t.send(ctx, header, buf); err != nil {
		return 0, err
	}
	took := time.Since(from)
	return took, t.check(buf.Bytes())
}

// add takes over the latencies and the wrong answers of another run.
func (r *run) add(other run) {
	r.latencies = append(r.latencies, other.latencies...)
	r.wrong += other.wrong
	if r.problem == nil {
		r.problem = other.problem
	}
}

// clean is an error where an answer was wrong.
func (r *run) clean() error {
	if r.wrong == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d answers were wrong, first: %w", r.wrong, r.wrong+len(r.latencies), r.problem)
}
