package gateway

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// answer writes the response of one exchange: one JSON body, or a stream of
// events. Its methods may be called by the handler and by the backend's
// notifications at once. Every write has its own deadline, so that a client
// that does not read ends its own request and no other.
type answer struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration

	onlyStream bool // the client takes no plain JSON

	mu        sync.Mutex
	events    *mcp.EventWriter
	streaming bool
	started   bool
	status    int
	bytes     int64
	err       error
}

func (a *answer) json(status int, body []byte) {
	a.body(status, typeJSON, body)
}

func (a *answer) plain(status int, text string) {
	a.body(status, "text/plain; charset=utf-8", []byte(text+"\n"))
}

// empty answers with a status alone.
func (a *answer) empty(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started, a.status = true, status
	a.deadline()
	a.w.WriteHeader(status)
}

func (a *answer) body(status int, kind string, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started {
		return
	}
	h := a.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	a.started, a.status = true, status
	a.deadline()
	a.w.WriteHeader(status)
	n, err := a.w.Write(body)
	a.bytes, a.err = int64(n), err
}

// stream begins an event stream; calling it again does nothing.
func (a *answer) stream() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beginStream()
}

func (a *answer) beginStream() {
	if a.started {
		return
	}
	h := a.w.Header()
	h.Set("Content-Type", typeSSE)
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	a.started, a.streaming, a.status = true, true, http.StatusOK
	a.deadline()
	a.w.WriteHeader(http.StatusOK)
	a.events = mcp.NewEventWriter(a.w, a.control.Flush)
	a.err = a.control.Flush()
}

// event sends one message on the stream, which it begins where necessary.
func (a *answer) event(message []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beginStream()
	a.write(len(message), func() error { return a.events.Write(mcp.Event{Data: message}) })
}

// keepAlive sends a comment, so that nothing between here and the client takes
// the stream for dead.
func (a *answer) keepAlive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streaming {
		a.write(2, func() error { return a.events.Comment("") })
	}
}

func (a *answer) write(n int, write func() error) {
	if a.err != nil || !a.streaming {
		return
	}
	a.deadline()
	if a.err = write(); a.err == nil {
		a.bytes += int64(n)
	}
}

func (a *answer) failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil
}

func (a *answer) deadline() {
	// Not every ResponseWriter has deadlines (tests); where there is none the
	// server's own limits apply.
	_ = a.control.SetWriteDeadline(time.Now().Add(a.patience))
}
