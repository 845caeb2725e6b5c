package reload_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// listener is a client's open stream.
type listener struct {
	*client
	mu    sync.Mutex
	heard []time.Time // list_changed
}

// hear opens the session's GET stream, or subscribes.
func (c *client) hear(t testing.TB) *listener {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{client: c}
	var resp *http.Response
	var err error
	if c.legacy {
		var r *http.Request
		if r, err = http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil); err == nil {
			c.head(r)
			resp, err = c.http.Do(r)
		}
	} else {
		resp, err = c.post(ctx, "subscriptions/listen", "", object{"notifications": object{"toolsListChanged": true}})
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		stop()
		t.Fatalf("%s: no stream: %v %v", c, resp, err)
	}
	events := mcp.NewEventReader(resp.Body, 1<<20)
	if !c.legacy { // the acknowledgement: from now on nothing is missed
		if _, err := events.Next(); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			m, bad := mcp.Parse(e.Data)
			if bad == nil && m.Method == mcp.NotifyToolsChanged {
				l.mu.Lock()
				l.heard = append(l.heard, time.Now())
				l.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		resp.Body.Close()
		<-done
	})
	return l
}

// times is when the stream was told of a change.
func (l *listener) times() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]time.Time(nil), l.heard...)
}
