package main

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// dice are one actor's: what it does next follows from the seed and its name.
// When it comes to it does not, as everybody shares the machine. They are safe
// for concurrent use.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64, actor string) *dice {
	h := fnv.New64a()
	h.Write([]byte(actor)) // never fails
	return &dice{r: rand.New(rand.NewPCG(seed, h.Sum64()))}
}

func (d *dice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// between is a time from least to most.
func (d *dice) between(least, most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return least + time.Duration(d.r.Int64N(int64(most-least)+1))
}

// chance is one thing that may happen, and how often among all.
type chance[T any] struct {
	weight int
	what   T
}

func pick[T any](d *dice, all []chance[T]) T {
	sum := 0
	for _, c := range all {
		sum += c.weight
	}
	n := d.below(sum)
	for _, c := range all {
		if n -= c.weight; n < 0 {
			return c.what
		}
	}
	panic("the weights do not sum up")
}
