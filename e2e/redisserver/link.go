package redisserver

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Link is what lies between a client and a server. A test makes it slow, cuts it
// or lays it to another server. Its methods may run concurrently.
type Link struct {
	Addr string // where clients connect, host:port

	mu    sync.Mutex
	whole *sync.Cond // is waited for while cut
	to    string
	delay time.Duration
	cut   bool
	open  map[net.Conn]bool
	done  chan struct{}
}

// NewLink returns a link to the address, which serves until the test ends.
func NewLink(t testing.TB, to string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{Addr: listener.Addr().String(), to: to, open: map[net.Conn]bool{}, done: make(chan struct{})}
	l.whole = sync.NewCond(&l.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.serve(c) })
		}
	})
	t.Cleanup(func() {
		close(l.done)
		listener.Close()
		l.Restore()
		l.Break()
		running.Wait()
	})
	return l
}

// Delay makes every answer come later by that much.
func (l *Link) Delay(by time.Duration) { l.change(func() { l.delay = by }) }

// Cut lets nothing through any more. Connections stay open, new ones are accepted
// and what is sent waits, as for a network that is gone.
func (l *Link) Cut() { l.change(func() { l.cut = true }) }

// Restore ends what Cut and Delay began.
func (l *Link) Restore() { l.change(func() { l.cut, l.delay = false, 0 }) }

// Lead makes new connections go to another server; those that are open stay.
func (l *Link) Lead(to string) { l.change(func() { l.to = to }) }

// Break closes all connections.
func (l *Link) Break() {
	l.change(func() {
		for c := range l.open {
			c.Close()
		}
	})
}

func (l *Link) change(how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how()
	l.whole.Broadcast()
}

func (l *Link) serve(client net.Conn) {
	var to string
	l.change(func() { to = l.to })
	server, err := net.Dial("tcp", to)
	if err != nil {
		client.Close()
		return
	}
	l.change(func() { l.open[client], l.open[server] = true, true })
	select {
	case <-l.done:
		l.Break()
	default:
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, client, false) })
	both.Go(func() { l.pump(client, server, true) })
	both.Wait()
	l.change(func() { delete(l.open, client); delete(l.open, server) })
}

// pump carries bytes until one of the ends closes, and then closes the other.
func (l *Link) pump(to, from net.Conn, answers bool) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.pass(answers)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits as long as bytes take.
func (l *Link) pass(answers bool) {
	l.mu.Lock()
	for l.cut {
		l.whole.Wait()
	}
	delay := l.delay
	l.mu.Unlock()
	if !answers || delay == 0 {
		return
	}
	select {
	case <-time.After(delay):
	case <-l.done:
	}
}
