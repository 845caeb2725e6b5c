package gateway

import (
	"sync"

	"github.com/regogate/regogate/gateway/mcp"
)

// inbox takes what servers tell a client outside of its requests, and hands it
// on one after the other, so that a client that does not read holds up nobody
// but itself. The zero value is ready once handle is set.
type inbox struct {
	handle func(server string, m *mcp.Message)

	mu      sync.Mutex
	waiting []letter
	busy    bool // somebody hands on
	closed  bool
}

type letter struct {
	server  string
	message *mcp.Message
}

// mostWaiting bounds what waits for one client; what comes on top is lost.
const mostWaiting = 256

// put does not wait.
func (b *inbox) put(server string, m *mcp.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.waiting) == mostWaiting {
		return
	}
	b.waiting = append(b.waiting, letter{server, m})
	if !b.busy {
		b.busy = true
		go b.hand()
	}
}

func (b *inbox) hand() {
	for {
		b.mu.Lock()
		if b.closed || len(b.waiting) == 0 {
			b.busy, b.waiting = false, nil
			b.mu.Unlock()
			return
		}
		next := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.mu.Unlock()
		b.handle(next.server, next.message)
	}
}

// close drops what waits, and all that comes.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
