package cases

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
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
	raw  []byte
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
	go s.read(mcp.NewEventReader(io.TeeReader(resp.Body, (*recorder)(s)), 16<<20))
	return s, r
}

func (s *stream) read(events *mcp.EventReader) {
	defer close(s.done)
	for {
		e, err := events.Next()
		if err != nil {
			return
		}
		if len(e.Data) == 0 {
			continue // no message, but where to resume
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

// recorder keeps the bytes of a stream, for its comments.
type recorder stream

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = append(r.raw, p...)
	return len(p), nil
}

func (s *stream) comments() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return comments(s.raw)
}

// comments counts those of a stream.
func comments(body []byte) (n int) {
	for line := range bytes.Lines(body) {
		if line[0] == ':' {
			n++
		}
	}
	return n
}

// ended reports whether the other side has ended the stream.
func (s *stream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// opens opens the step's GET stream.
func (p *player) opens(ctx context.Context, s *Step) []string {
	s.Method = "GET"
	out, err := p.request(ctx, s)
	if err != nil {
		return []string{err.Error()}
	}
	stream, r := openStream(p.target(s), out.head)
	if stream != nil {
		p.mu.Lock()
		p.streams[s.Opens] = stream
		p.mu.Unlock()
	}
	return (&outcome{step: *s, reply: r}).judge(nil)
}

// read compares what a stream has brought so far.
func (p *player) read(s *Step) []string {
	e := &s.Expect
	stream := p.streams[s.Read]
	if stream == nil {
		return []string{"no stream " + s.Read + " was opened"}
	}
	problems := p.surroundings(e)
	if over := stream.ended(); over && e.Open || !over && e.Ended {
		problems = append(problems, fmt.Sprintf("that the stream has ended is %v", over))
	}
	if e.Events == nil && e.Comments == 0 {
		return problems
	}
	return append(problems, e.stream(stream.events(), stream.comments())...)
}

func (s *stream) close() {
	s.conn.Close()
	<-s.done
}
