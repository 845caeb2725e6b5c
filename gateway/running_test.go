package gateway

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		stop := every(time.Second, func() {
			calls.Add(1)
			time.Sleep(time.Second / 2)
		})
		for _, c := range []struct {
			after time.Duration
			calls int64
		}{{900 * time.Millisecond, 0}, {200 * time.Millisecond, 1}, {1300 * time.Millisecond, 1}, {200 * time.Millisecond, 2}} {
			time.Sleep(c.after)
			if got := calls.Load(); got != c.calls {
				t.Errorf("%d calls, want %d", got, c.calls)
			}
		}
		time.Sleep(time.Second) // the second call has ended
		stop()
		time.Sleep(time.Minute)
		if got := calls.Load(); got != 2 {
			t.Errorf("%d calls a minute after stop, want the 2 before it", got)
		}
	})
}

func TestEveryStopWaits(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var over atomic.Bool
	stop := every(time.Nanosecond, func() {
		if over.Load() {
			return
		}
		close(began)
		<-goOn
		time.Sleep(10 * time.Millisecond) // time for a stop that does not wait
		over.Store(true)
	})
	<-began
	close(goOn)
	stop()
	if !over.Load() {
		t.Error("stop returned while a call was under way")
	}
}
