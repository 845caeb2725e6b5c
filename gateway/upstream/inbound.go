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
		c.post(reply(m))
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
	switch {
	case listChanged(m.Method):
		c.changed()
		return
	case m.Method == cancelled, m.Method == acknowledged:
		return
	}
	p := c.subject(m)
	if p == nil {
		return
	}
	if m.Method == progress {
		if m = restore(m, p.id, p.token); m == nil {
			return
		}
	}
	select {
	case p.notes <- m:
	default:
		c.noise.report("notifies faster than the client reads; one was left out", nil)
	}
}

// subject finds the request that a notification is about. Only progress names
// one; the rest goes to the newest, which is the same principal's unless the
// process is shared.
func (c *conn) subject(m *mcp.Message) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Method == progress {
		return c.pending[progressOf(m)]
	}
	var newest *pending
	for _, p := range c.pending {
		if !c.shared && !p.watch && (newest == nil || p.seq > newest.seq) {
			newest = p
		}
	}
	return newest
}

// reply answers a request that a server sends to us. We declare no client
// capability, so nothing but ping is ours to answer.
func reply(m *mcp.Message) *mcp.Message {
	if m.Method == "ping" {
		return mcp.NewResponse(m.ID, jsontext.Value("{}"))
	}
	return &mcp.Message{ID: m.ID, Error: jsontext.Value(`{"code":-32601,"message":"the client does not support this method"}`)}
}
