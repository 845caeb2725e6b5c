package gateway

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/stream"
)

// answer writes the response of one exchange: one JSON body, or a stream of
// events. Its methods may be called by the handler and by the backend's
// notifications at once. Every write has its own deadline, so that a client
// that does not read ends its own request and no other.
type answer struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration

	prefersStream bool                  // rather than plain JSON
	resumable     func() *stream.Stream // makes the stream that outlives the connection; nil where none does
	primed        bool                  // it begins with an event to resume from (MCP 2025-11-25)

	begin sync.Once
	flow  *stream.Stream // set by begin

	mu        sync.Mutex
	events    *mcp.EventWriter
	streaming bool
	started   bool
	ended     bool // the connection is the server's again
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
	a.begin.Do(func() {
		if !a.open() || a.resumable == nil {
			return
		}
		a.flow = a.resumable()
		a.flow.Attach(a, 0, false)
		if a.primed {
			a.flow.Prime()
		}
	})
}

// open sends the head of an event stream, and reports whether it did.
func (a *answer) open() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started {
		return false
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
	return true
}

// single answers with a stream of one event. There is nothing to resume in it:
// a client that knew its id would have the event.
func (a *answer) single(message []byte) {
	begun := false
	a.begin.Do(func() { begun = a.open() })
	if !begun {
		a.event(message)
		return
	}
	e := mcp.Event{Data: message}
	if a.primed {
		e.Retry = reconnectAfter
	}
	_ = a.write(len(message), func() error { return a.events.Write(e) })
}

// reconnectAfter is when a client comes back whose connection was lost.
const reconnectAfter = time.Second

// event sends one message on the stream, which it begins where necessary. On a
// stream that can be resumed it outlives the connection.
func (a *answer) event(message []byte) {
	a.stream()
	if a.flow != nil {
		a.flow.Send(message)
		return
	}
	_ = a.Event("", message) // a failure shows in failed
}

// end finishes what event began: nothing is written to the connection any more.
func (a *answer) end() {
	a.begin.Do(func() {})
	if a.flow != nil {
		a.flow.Finish()
		a.flow.Detach(a)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
}

// Event and Comment make the answer a stream.Sink.

// Event writes one event.
func (a *answer) Event(id string, data []byte) error {
	return a.write(len(data), func() error { return a.events.Write(mcp.Event{ID: id, Data: data}) })
}

// Comment writes a comment, so that nothing between here and the client takes
// the stream for dead.
func (a *answer) Comment() error {
	return a.write(2, func() error { return a.events.Comment("") })
}

// keepAlive is Comment on whatever carries the answer.
func (a *answer) keepAlive() {
	a.stream()
	if a.flow != nil {
		a.flow.KeepAlive()
		return
	}
	_ = a.Comment()
}

func (a *answer) write(n int, write func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil || !a.streaming || a.ended {
		return a.err
	}
	a.deadline()
	if a.err = write(); a.err == nil {
		a.bytes += int64(n)
	}
	return a.err
}

// isStreaming reports whether the answer has begun as a stream.
func (a *answer) isStreaming() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streaming
}

// sent is the status and how many bytes of messages the client was sent.
func (a *answer) sent() (status int, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status, a.bytes
}

func (a *answer) failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil
}

// flush has a short answer on its way before the handler returns.
func (a *answer) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started && !a.streaming && a.err == nil {
		_ = a.control.Flush()
	}
}

func (a *answer) deadline() {
	// Not every ResponseWriter has deadlines (tests); where there is none the
	// server's own limits apply.
	_ = a.control.SetWriteDeadline(time.Now().Add(a.patience))
}
