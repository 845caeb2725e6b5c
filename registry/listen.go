package registry

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Times of the connection that listens for hints.
const (
	pingEvery  = 2 * time.Second // a connection that is quiet for longer is tried
	retryAfter = time.Second     // between attempts to connect
	answerIn   = time.Second     // how long a Redis may take before it counts as down
)

// listen waits for the other replicas' hints until Close, and by the way knows
// whether Redis is well.
func (c *Cached) listen() {
	for c.ctx.Err() == nil {
		err := c.subscribed()
		if c.ctx.Err() != nil {
			return
		}
		c.setDown(err)
		select {
		case <-c.ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// subscribed listens on one connection until it fails.
func (c *Cached) subscribed() error {
	ps := c.client.Subscribe(c.ctx)
	// A read knows no context; closing the connection ends it.
	stop := context.AfterFunc(c.ctx, func() { ps.Close() })
	defer func() {
		stop()
		ps.Close()
	}()
	if err := ps.Subscribe(c.ctx, c.keys.changed()); err != nil {
		return err
	}
	wait, pinged := answerIn, true
	for {
		message, err := ps.ReceiveTimeout(c.ctx, wait)
		switch {
		case err == nil:
			c.setUp()
			if _, pong := message.(*redis.Pong); !pong {
				// Also on subscribing: hints before that are lost.
				hint(c.changed)
			}
			wait, pinged = pingEvery, false
		case isTimeout(err) && !pinged:
			if err := ps.Ping(c.ctx); err != nil {
				return err
			}
			wait, pinged = answerIn, true
		default:
			return err
		}
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// setDown and setUp log once for each change of state.
func (c *Cached) setDown(err error) {
	why := fmt.Sprintf("the registry's cache cannot be used, catalogues come from the source: %v", err)
	if c.down.Swap(&why) == nil {
		c.log.Warn("the registry's cache in Redis cannot be used, catalogues come from the source", "error", err)
	}
}

func (c *Cached) setUp() {
	if c.down.Swap(nil) != nil {
		c.log.Info("the registry's cache in Redis can be used again")
	}
}
