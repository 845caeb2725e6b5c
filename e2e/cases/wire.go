package cases

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// outgoing is one request as it goes over the wire.
type outgoing struct {
	head    string // request line, headers and the empty line
	body    string
	filler  int64           // so many bytes of filler follow
	chunked bool            // as chunks
	pace    time.Duration   // between two bytes of the body, or of the head where there is none
	leave   <-chan struct{} // closed when the client closes the connection, whatever came; may be nil
}

// reply is what came back.
type reply struct {
	status  int
	header  http.Header
	body    []byte
	events  [][]byte // the data of the events, where the body is a stream
	closed  bool     // the connection ended without an answer
	refused bool     // there was no connection
	taken   int64    // bytes of the request that could be sent
	took    time.Duration
	err     error
}

// patience is how long an answer is waited for. It only ends what hangs.
const patience = 40 * time.Second

// exchange sends a request over a connection of its own and reads the answer to
// its end. The answer may come before the request has been sent.
func exchange(ctx context.Context, addr string, out outgoing) *reply {
	began := time.Now()
	r := &reply{}
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
	if err != nil {
		r.err, r.refused = err, errors.Is(err, syscall.ECONNREFUSED)
		return r
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-out.leave:
			conn.Close()
		case <-over:
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetDeadline(began.Add(patience))
	var taken atomic.Int64
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		out.send(&counter{conn, &taken})
	}()
	r.read(conn, strings.HasPrefix(out.head, "HEAD "))
	r.took = time.Since(began)
	conn.Close()
	<-sent
	r.taken = taken.Load()
	return r
}

type counter struct {
	w io.Writer
	n *atomic.Int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// send ends early when the other side does not take more; what it answered says
// why.
func (out *outgoing) send(w io.Writer) {
	slow := out.body
	if slow == "" {
		slow = out.head
	} else if _, err := io.WriteString(w, out.head); err != nil {
		return
	}
	if out.pace > 0 {
		trickle(w, slow, out.pace)
		return
	}
	if _, err := io.WriteString(w, slow); err != nil {
		return
	}
	block := bytes.Repeat([]byte(" "), 64<<10)
	for left := out.filler; left > 0; left -= int64(len(block)) {
		part := block[:min(int64(len(block)), left)]
		if out.chunked {
			part = fmt.Appendf(nil, "%x\r\n%s\r\n", len(part), part)
		}
		if _, err := w.Write(part); err != nil {
			return
		}
	}
	if out.chunked {
		_, _ = io.WriteString(w, "0\r\n\r\n")
	}
}

// trickle sends a byte at a time, as long as the other side takes them.
func trickle(w io.Writer, text string, pace time.Duration) {
	for i := range len(text) {
		if _, err := io.WriteString(w, text[i:i+1]); err != nil {
			return
		}
		time.Sleep(pace)
	}
}

// read reads the answer; one to HEAD has no body, whatever its headers say.
func (r *reply) read(conn net.Conn, head bool) {
	buf := bufio.NewReader(conn)
	if _, err := buf.Peek(1); err != nil {
		var timeout net.Error
		r.closed = !errors.As(err, &timeout) || !timeout.Timeout()
		r.err = err
		return
	}
	asked := &http.Request{Method: http.MethodGet}
	if head {
		asked.Method = http.MethodHead
	}
	resp, err := http.ReadResponse(buf, asked)
	if err != nil {
		r.err = err
		return
	}
	defer resp.Body.Close()
	r.status, r.header = resp.StatusCode, resp.Header
	if resp.Close { // net/http takes the header out
		r.header.Set("Connection", "close")
	}
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		r.err = fmt.Errorf("read the body: %w", err)
	}
	if strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		r.events = eventData(r.body)
	}
}

// eventData returns the data of all events of a stream that is over. One
// without data is no message.
func eventData(body []byte) (all [][]byte) {
	events := mcp.NewEventReader(bytes.NewReader(body), len(body)+1)
	for {
		e, err := events.Next()
		if err != nil {
			return all
		}
		if len(e.Data) > 0 {
			all = append(all, e.Data)
		}
	}
}

// message is the JSON-RPC answer, wherever it stands; nil where there is none.
func (r *reply) message() []byte {
	if r.events == nil {
		if len(r.body) == 0 || !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
			return nil
		}
		return r.body
	}
	for _, data := range r.events {
		if m, bad := mcp.ParseBackend(data); bad == nil && m.Kind() == mcp.Response {
			return data
		}
	}
	return nil
}

func contains(body []byte, want string) bool { return bytes.Contains(body, []byte(want)) }
