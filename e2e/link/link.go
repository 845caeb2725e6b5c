// Package link is a connection that a test can break: a proxy before a server on
// loopback.
package link

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// How a link treats connections, those that are open included.
type State uint8

const (
	Open State = iota // passes everything on
	Cut               // closes what is there and what comes
	Hung              // takes connections and bytes, and passes nothing on
)

// Link is safe for concurrent use.
type Link struct {
	Addr string // host:port to connect to

	listener net.Listener
	mu       sync.Mutex
	changed  *sync.Cond
	to       string
	state    State
	delay    time.Duration
	conns    map[net.Conn]bool
	closed   bool
	working  sync.WaitGroup
}

// New returns a link to a server's address, which ends with the test.
func New(t testing.TB, to string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{Addr: listener.Addr().String(), listener: listener, to: to, conns: map[net.Conn]bool{}}
	l.changed = sync.NewCond(&l.mu)
	l.working.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Set changes the state.
func (l *Link) Set(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if s == Cut {
		l.drop()
	}
	l.changed.Broadcast()
}

// Delay holds back what is passed on from then, in each direction.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Point gives the link another server, for connections to come.
func (l *Link) Point(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

func (l *Link) drop() {
	for c := range l.conns {
		c.Close()
	}
}

func (l *Link) close() {
	l.mu.Lock()
	l.closed = true
	l.drop()
	l.changed.Broadcast()
	l.mu.Unlock()
	l.listener.Close()
	l.working.Wait()
}

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.working.Go(func() { l.serve(c) })
		}
	}
}

// hold waits while the link is hung and reports whether it may pass something on,
// and after how long.
func (l *Link) hold() (delay time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.state == Hung && !l.closed {
		l.changed.Wait()
	}
	return l.delay, l.state == Open && !l.closed
}

// own keeps a connection, unless connections are closed.
func (l *Link) own(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.state == Cut {
		c.Close()
		return false
	}
	l.conns[c] = true
	return true
}

func (l *Link) disown(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.Close()
}

func (l *Link) serve(client net.Conn) {
	if !l.own(client) {
		return
	}
	defer l.disown(client)
	if _, ok := l.hold(); !ok {
		return
	}
	l.mu.Lock()
	to := l.to
	l.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil || !l.own(server) {
		return
	}
	defer l.disown(server)
	var both sync.WaitGroup
	both.Go(func() { l.pass(client, server) })
	both.Go(func() { l.pass(server, client) })
	both.Wait()
}

func (l *Link) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			delay, ok := l.hold()
			if !ok {
				return
			}
			if delay > 0 {
				time.Sleep(delay)
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
