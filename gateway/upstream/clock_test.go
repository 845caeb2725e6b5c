package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(hold ...time.Duration) time.Duration {
			began := time.Now()
			ctx, c := newClock(t.Context(), time.Minute)
			defer c.stop()
			for _, d := range hold {
				time.Sleep(10 * time.Second)
				c.hold()
				c.hold() // two at once count once
				time.Sleep(d / 2)
				c.release()
				time.Sleep(d / 2)
				c.release()
			}
			<-ctx.Done()
			if !expired(ctx) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return time.Since(began)
		}
		if got := after(); got != time.Minute {
			t.Errorf("a clock that is not held: %s", got)
		}
		if got, want := after(2*time.Minute, time.Minute), 4*time.Minute; got != want {
			t.Errorf("one that is held for 3m: %s, want %s", got, want)
		}
		ctx, c := newClock(t.Context(), time.Minute)
		c.hold()
		began := time.Now()
		<-ctx.Done()
		if got, want := time.Since(began), stretch*time.Minute; got != want {
			t.Errorf("one that is held for ever: %s, want %s", got, want)
		}
		c.release()
		c.stop()
		ctx, c = newClock(t.Context(), time.Minute)
		c.stop()
		if expired(ctx) || ctx.Err() == nil {
			t.Error("a clock that is stopped has expired")
		}
	})
}
