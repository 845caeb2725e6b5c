package cases

import (
	"io"
	"net"
	"sync"
	"time"
)

// proxy passes connections on and drops those over which nothing has come, in
// either direction, for a while.
type proxy struct {
	l    net.Listener
	idle time.Duration

	mu    sync.Mutex
	to    string // the address that connections go to
	conns map[net.Conn]bool
	over  bool
	work  sync.WaitGroup
}

// newProxy returns a proxy that point has to give an address.
func newProxy(idle time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{l: l, idle: idle, conns: map[net.Conn]bool{}}
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.serve(c) })
		}
	})
	return p, nil
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) point(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target())
	if err != nil {
		return
	}
	defer server.Close()
	if !p.enter(client, server) {
		return
	}
	defer p.leave(client, server)
	drop := time.AfterFunc(p.idle, func() {
		client.Close()
		server.Close()
	})
	defer drop.Stop()
	var both sync.WaitGroup
	both.Go(func() { p.pass(server, client, drop) })
	both.Go(func() { p.pass(client, server, drop) })
	both.Wait()
}

// pass copies one direction until it ends.
func (p *proxy) pass(to, from net.Conn, drop *time.Timer) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			drop.Reset(p.idle)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err == io.EOF {
			_ = to.(*net.TCPConn).CloseWrite()
		}
		if err != nil {
			return
		}
	}
}

// enter keeps the connections to be closed; false means that it is too late.
func (p *proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.over
}

func (p *proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

func (p *proxy) close() {
	p.l.Close()
	p.mu.Lock()
	p.over = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}
