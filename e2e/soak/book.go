package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// mostFaults bounds how many faults are kept word for word; all are counted.
const mostFaults = 40

// book is what happened: how requests ended, by kind, and what must not have
// happened. It is safe for concurrent use.
type book struct {
	mu     sync.Mutex
	counts map[string]int
	faults []string
	wrong  int
}

func newBook() *book { return &book{counts: map[string]int{}} }

func (b *book) count(kind string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[kind]++
}

// fault writes down what a gateway must never do.
func (b *book) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong++; len(b.faults) < mostFaults {
		b.faults = append(b.faults, fmt.Sprintf(format, args...))
	}
}

// kinds returns all kinds with their numbers, sorted by kind.
func (b *book) kinds() (names []string, counts map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts = maps.Clone(b.counts)
	return slices.Sorted(maps.Keys(counts)), counts
}

func (b *book) told() (faults []string, all int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.faults), b.wrong
}
