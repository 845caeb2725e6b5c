package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// memory is what a long run through the gateway left behind.
type memory struct {
	Points []point `json:"points"`
	// Growth is by how many bytes the heap in use grew for one call between
	// the first point after the start and the last.
	Growth float64 `json:"bytes_per_call"`
	Lost   int64   `json:"lost_records"`
}

// point is the state of the whole process, with nothing under way.
type point struct {
	Calls      int    `json:"calls"`
	Lists      int    `json:"lists"`
	Heap       uint64 `json:"heap_bytes"` // in use after a collection
	RSS        uint64 `json:"rss_bytes"`  // after free pages were given back; 0 where unknown
	Goroutines int    `json:"goroutines"`
	Written    int64  `json:"records"` // in the decision log
}

const (
	memoryClients = 16
	memoryStep    = 1000 // calls, each followed by a twentieth as many lists
	listEvery     = 20
)

// soak sends calls and lists through the gateway with the decision log, and
// looks at the memory when the points are reached.
func (f *field) soak(ctx context.Context, points []int, log *slog.Logger) (*memory, error) {
	call, list, err := f.soakTargets(ctx)
	if err != nil {
		return nil, err
	}
	m := &memory{Points: []point{f.look(0)}}
	for calls, left := 0, points; len(left) > 0; {
		step := min(memoryStep, left[0]-calls)
		if err := call.all(ctx, step); err != nil {
			return nil, err
		}
		if err := list.all(ctx, step/listEvery); err != nil {
			return nil, err
		}
		if calls += step; calls == left[0] {
			m.Points = append(m.Points, f.look(calls))
			left = left[1:]
			log.Info("memory looked at", "calls", calls)
		}
	}
	if n := len(m.Points); n > 2 {
		first, last := m.Points[1], m.Points[n-1]
		m.Growth = (float64(last.Heap) - float64(first.Heap)) / float64(last.Calls-first.Calls)
	}
	m.Lost = f.gates[1].stats().Dropped + f.gates[1].stats().Sinks[0].Dropped
	return m, nil
}

func (f *field) soakTargets(ctx context.Context) (call, list *target, err error) {
	d := &draft{}
	if err := f.callers(ctx, d, memoryClients); err != nil {
		return nil, nil, err
	}
	if err := f.listers(ctx, d, memoryClients); err != nil {
		return nil, nil, err
	}
	for _, e := range d.list {
		if e.name != "regogate, decision log" {
			continue
		}
		// Warm, so that the first point has every connection in it.
		if err := e.prove(ctx); err != nil {
			return nil, nil, err
		}
		if err := e.all(ctx, 4*memoryClients); err != nil {
			return nil, nil, err
		}
		if e.op == opCall {
			call = e.target
		} else {
			list = e.target
		}
	}
	return call, list, d.err
}

// all sends n requests; every answer has to be right.
func (t *target) all(ctx context.Context, n int) error {
	r, err := t.measure(ctx, n, memoryClients)
	if err != nil {
		return err
	}
	return r.clean()
}

func (f *field) look(calls int) point {
	// The second collection frees what finalizers and pools held on to.
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return point{
		Calls: calls, Lists: calls / listEvery, Heap: stats.HeapAlloc, RSS: residentBytes(),
		Goroutines: runtime.NumGoroutine(), Written: f.gates[1].stats().Sinks[0].Written,
	}
}

// residentBytes reads the process's resident size; 0 where the system does not
// tell.
func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

func (m *memory) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nMemory of the whole process (gateway, backends and %d clients), decision log on, nothing under way\n\n", memoryClients)
	b.WriteString("| calls | lists | heap in use | resident | goroutines | records written |\n|--:|--:|--:|--:|--:|--:|\n")
	for _, p := range m.Points {
		fmt.Fprintf(b, "| %d | %d | %.2f MB | %.1f MB | %d | %d |\n",
			p.Calls, p.Lists, float64(p.Heap)/1e6, float64(p.RSS)/1e6, p.Goroutines, p.Written)
	}
	fmt.Fprintf(b, "\nGrowth of the heap after the first %d calls: %.1f bytes for each call. Lost decision records: %d.\n",
		m.Points[min(1, len(m.Points)-1)].Calls, m.Growth, m.Lost)
}
