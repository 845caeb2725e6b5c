package upstream

import (
	"context"
	"errors"
	"sync"
	"time"
)

// stretch is how many times its limit a call may take in all, the time that
// it waited for the client included.
const stretch = 10

// clock is a deadline that can be held. It is safe for concurrent use.
type clock struct {
	cancel context.CancelCauseFunc
	most   *time.Timer

	mu    sync.Mutex
	timer *time.Timer
	left  time.Duration // when it was last held or started
	from  time.Time
	held  int
	over  bool
}

// newClock returns a context that ends after limit, save for the time that the
// clock is held, or when stop is called. Its Err is then Canceled and its
// cause DeadlineExceeded: see expired.
func newClock(ctx context.Context, limit time.Duration) (context.Context, *clock) {
	c := &clock{left: limit, from: time.Now()}
	ctx, c.cancel = context.WithCancelCause(ctx)
	expire := func() { c.cancel(context.DeadlineExceeded) }
	c.timer = time.AfterFunc(limit, expire)
	c.most = time.AfterFunc(stretch*limit, expire)
	return ctx, c
}

// expired reports whether ctx ended because time was up.
func expired(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// hold stops the clock until release is called as often.
func (c *clock) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held++; c.held == 1 && c.timer.Stop() {
		c.left -= time.Since(c.from)
	}
}

func (c *clock) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held--; c.held == 0 && !c.over {
		c.from = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}

func (c *clock) stop() {
	c.mu.Lock()
	c.over = true
	c.timer.Stop()
	c.mu.Unlock()
	c.most.Stop()
	c.cancel(nil)
}
