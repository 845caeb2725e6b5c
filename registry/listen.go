package registry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
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
		c.down.begin(c.log, err)
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
	if err := errors.Join(ps.Subscribe(c.ctx, c.keys.changed()), ps.Ping(c.ctx)); err != nil {
		return err
	}
	wait, pinged, proven := answerIn, true, false
	for {
		message, err := ps.ReceiveTimeout(c.ctx, wait)
		switch {
		case err == nil:
			if _, pong := message.(*redis.Pong); pong {
				proven = true
			} else {
				// Also on subscribing: hints before that are lost.
				hint(c.changed)
			}
			// One that may not ping would be given up and taken up again for ever.
			if proven {
				c.revive()
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

// revive ends a trouble with Redis when it answers again as those who load would
// have it: on their connections, to their commands and in their time.
func (c *Cached) revive() {
	if !c.down.now() {
		return
	}
	if err := c.client.GetRange(c.ctx, c.keys.latest(), 0, 0).Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		c.down.begin(c.log, err)
		return
	}
	c.down.end(c.log)
}

// trouble is one thing that can be wrong for a while. Its methods may run
// concurrently.
type trouble struct {
	what, over string                 // said when it begins and ends
	why        atomic.Pointer[string] // nil while all is well
}

// now reports whether it is on.
func (t *trouble) now() bool { return t.why.Load() != nil }

// begin and end log once for each change.
func (t *trouble) begin(log *slog.Logger, err error) {
	why := err.Error()
	if t.why.Swap(&why) == nil {
		log.Warn(t.what, "error", err)
	}
}

func (t *trouble) end(log *slog.Logger) {
	if t.why.Swap(nil) != nil {
		log.Info(t.over)
	}
}

// problems returns the line for people, or nothing.
func (t *trouble) problems() []string {
	if why := t.why.Load(); why != nil {
		return []string{t.what + ": " + *why}
	}
	return nil
}
