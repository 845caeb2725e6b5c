package upstream

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// line takes one line that the server wrote. It never blocks: the reader
// serves all requests under way.
func (c *conn) line(line []byte, cut bool) {
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return
	}
	if cut {
		c.tooLong(text)
		return
	}
	m, bad := mcp.ParseBackend(text)
	if bad != nil {
		c.unreadable(text, bad)
		return
	}
	switch m.Kind() {
	case mcp.Response:
		c.respond(m)
	case mcp.Request:
		if answer := c.party.take(m, c.turn(), c.deliver); answer != nil {
			c.post(answer)
		}
	case mcp.Notification:
		c.note(m)
	}
}

func (c *conn) respond(m *mcp.Message) {
	c.mu.Lock()
	p := c.pending[m.ID]
	c.mu.Unlock()
	if p == nil {
		c.noise.report("answered a request that is not under way", nil)
		return
	}
	select {
	case p.answer <- m:
	default:
		c.noise.report("answered a request twice", nil)
	}
}

// tooLong: nobody knows whose answer it was, unless only one can be meant.
func (c *conn) tooLong(text []byte) {
	c.noise.report("sent a line that is too long", text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if text[0] != '{' || len(c.pending) != 1 {
		return
	}
	for _, p := range c.pending {
		p.fail(broken("its answer is longer than %d bytes", c.limit))
	}
}

// unreadable: noise is skipped, but an answer that is not valid must not leave
// its request waiting for the deadline.
func (c *conn) unreadable(text []byte, bad *mcp.Error) {
	c.noise.report("sent what is no message", text)
	id, ok := mcp.ReadID(looseID(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pending[id]; ok && p != nil {
		p.fail(broken("its answer is not valid: %s", bad.Message))
	}
}

func (p *pending) fail(err error) {
	select {
	case p.failed <- err:
	default:
	}
}

// looseID finds the id of a message that strict parsing refused, or nil.
func looseID(text []byte) jsontext.Value {
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil
		}
		wanted := name.String() == "id"
		value, err := dec.ReadValue()
		if err != nil {
			return nil
		}
		if wanted {
			return value
		}
	}
	return nil
}

// note hands a notification to the request it belongs to.
func (c *conn) note(m *mcp.Message) {
	if p := c.subscription(m); p != nil {
		if m.Method == cancelled {
			p.fail(broken("it ended the subscription"))
			return
		}
		c.pass(p, m)
		return
	}
	if m.Method == progress {
		c.mu.Lock()
		p := c.pending[progressOf(m)]
		c.mu.Unlock()
		if p == nil {
			return
		}
		if m = restore(m, p.id, p.token); m != nil {
			c.pass(p, m)
		}
		return
	}
	var belongs func(*mcp.Message)
	if p := c.newest(); p != nil {
		belongs = func(m *mcp.Message) { c.pass(p, m) }
	}
	c.party.hear(m, belongs)
}

// pass queues a notification for the request that it belongs to.
func (c *conn) pass(p *pending, m *mcp.Message) {
	select {
	case p.notes <- m:
	default:
		c.noise.report("notifies faster than the client reads; one was left out", nil)
	}
}

// subscription finds the subscriptions/listen of a peer that a notification
// came from, or that it ends.
func (c *conn) subscription(m *mcp.Message) *pending {
	id := subscriptionOf(m)
	if m.Method == cancelled {
		id, _ = cancelledID(m)
	}
	if id.IsZero() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[id]
	if p != nil && (p.feeds || p.listens && m.Method == cancelled) {
		return p
	}
	return nil
}

// newest finds the call that belongs to what names none: the last one that
// began, which is the same peer's unless the process is shared.
func (c *conn) newest() *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest *pending
	for _, p := range c.pending {
		if !c.shared && p.turn != nil && (newest == nil || p.seq > newest.seq) {
			newest = p
		}
	}
	return newest
}

// turn is the call that a request of the server is made during.
func (c *conn) turn() *turn {
	if p := c.newest(); p != nil {
		return p.turn
	}
	return nil
}
