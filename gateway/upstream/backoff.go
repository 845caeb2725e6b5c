package upstream

import (
	"math/rand/v2"
	"sync"
	"time"
)

// backoff doubles from least to most. It is for one goroutine at a time.
type backoff struct {
	least, most time.Duration
	last        time.Duration
}

// next returns how long to wait this time, with jitter, so that many gateways
// do not come back as one.
func (b *backoff) next() time.Duration {
	b.last = min(max(b.last*2, b.least), b.most)
	return jitter(b.last)
}

func (b *backoff) reset() { b.last = 0 }

// jitter spreads d over a fifth of itself around it.
func jitter(d time.Duration) time.Duration {
	if d < 10 {
		return d
	}
	return d - d/10 + rand.N(d/5)
}

// tolerated is how many times in a row a server can fail to be reached before
// its breaker opens.
const tolerated = 3

// breaker answers for a server that cannot be reached, so that nobody waits
// for what has just failed. When it has been open for a while it lets one
// request through to see; success closes it. It is safe for concurrent use.
type breaker struct {
	mu       sync.Mutex
	wait     backoff
	failures int
	until    time.Time // open until then
}

// allow reports whether a request may try the server now.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < tolerated {
		return true
	}
	if now.Before(b.until) {
		return false
	}
	// One is let through; if it never comes back, another one follows.
	b.until = now.Add(max(b.wait.last, b.wait.least))
	return true
}

// open reports whether it answers for the server.
func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= tolerated
}

// failed tells that the server could not be reached.
func (b *breaker) failed(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures++; b.failures >= tolerated {
		b.until = now.Add(b.wait.next())
	}
}

// worked tells that the server answered. It reports whether that ends a time
// of failures.
func (b *breaker) worked() (recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	recovered = b.failures > 0
	b.failures = 0
	b.wait.reset()
	return recovered
}
