package cases

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/regogate/regogate/gateway/mcp"
)

// stream is an open GET stream and the events that have come over it.
type stream struct {
	conn net.Conn
	done chan struct{}
	mu   sync.Mutex
	data []string
}

// openStream sends the request and returns once the answer has begun; where that
// is no stream, the stream is nil.
func openStream(addr, head string) (*stream, *reply) {
	r := &reply{}
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_, err = conn.Write([]byte(head))
	}
	if err != nil {
		r.err = err
		return nil, r
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.err = err
		conn.Close()
		return nil, r
	}
	r.status, r.header = resp.StatusCode, resp.Header
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		resp.Body.Close()
		conn.Close()
		r.err = fmt.Errorf("the answer is no stream but %s", resp.Header.Get("Content-Type"))
		return nil, r
	}
	s := &stream{conn: conn, done: make(chan struct{})}
	go s.read(mcp.NewEventReader(resp.Body, 16<<20))
	return s, r
}

func (s *stream) read(events *mcp.EventReader) {
	defer close(s.done)
	for {
		e, err := events.Next()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.data = append(s.data, string(e.Data))
		s.mu.Unlock()
	}
}

func (s *stream) events() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.data...)
}

func (s *stream) close() {
	s.conn.Close()
	<-s.done
}
