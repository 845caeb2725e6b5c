package upstream

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// request is what a link is asked to send.
type request struct {
	method string
	params jsontext.Value // as the client leg had them, the names apart
	tool   *Definition    // of a tools/call, where it is known
	level  string         // of the log messages that the client wants; "" leaves it
	peer   Peer           // nil is the gateway itself
	turn   *turn          // nil for what is no client's call
	as     Subject        // of a client's call
	// notify takes the notifications that belong to the request, in order,
	// from one goroutine, before the answer is returned. It may be nil.
	notify func(*mcp.Message)
}

// The bounds of a conn's queues. A full outbound queue holds its callers back;
// a full inbound one loses notifications, never an answer.
const (
	outboundQueue = 64
	inboundQueue  = 256
)

// conn is JSON-RPC over one channel that all requests share, with any number of
// them under way. Ids and progress tokens are its own.
type conn struct {
	noise  *noise
	client jsontext.Value // our clientInfo
	limit  int            // bytes of one line
	// shared: the requests under way belong to different peers, so that
	// a notification that names none of them goes to nobody.
	shared bool
	party  *party

	out  chan outgoing
	eof  chan struct{} // closed once everything that the server wrote is read
	dead chan struct{} // closed once no answer can come any more
	wg   sync.WaitGroup

	mu      sync.Mutex
	cause   error // why dead was closed
	next    int64
	pending map[mcp.ID]*pending
}

// outgoing is one message to be written, of a request or of nobody (nil).
type outgoing struct {
	line []byte
	of   *pending
}

// pending is one request under way.
type pending struct {
	seq     int64
	id      mcp.ID
	listens bool // it is a subscriptions/listen
	feeds   bool // its notify takes what comes from it
	turn    *turn
	as      Subject        // of a client's call
	token   jsontext.Value // the client's progress token, or nil
	notes   chan *mcp.Message
	answer  chan *mcp.Message // holds one
	failed  chan error        // holds one

	sent bool // the server may have seen it; guarded by conn.mu
}

// serve starts both directions. read calls each for every line until nothing
// more can come; its error ends the conn, and nil leaves that to the caller.
// write sends one message and reports whether any of it may have arrived; its
// error ends the conn. The caller calls fail in the end, has whatever the two
// wait for end, and waits for wg.
func (c *conn) serve(read func(each func(line []byte, cut bool)) error, write func(o outgoing) (sent bool, err error)) {
	c.out = make(chan outgoing, outboundQueue)
	c.eof = make(chan struct{})
	c.dead = make(chan struct{})
	c.pending = map[mcp.ID]*pending{}
	c.wg.Go(func() {
		for {
			select {
			case o := <-c.out:
				c.mark(o.of, true)
				if sent, err := write(o); err != nil {
					c.mark(o.of, sent)
					c.fail(err)
					return
				}
			case <-c.dead:
				return
			}
		}
	})
	c.wg.Go(func() {
		defer close(c.eof)
		if err := read(c.line); err != nil {
			c.fail(err)
		}
	})
}

func (c *conn) mark(p *pending, sent bool) {
	if p == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.sent = sent
}

// fail ends the conn; only the first cause counts.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.dead)
		c.party.end() // nobody can be answered any more
	}
}

func (c *conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// ending is the error of a request that the end of the conn left without an
// answer.
func (c *conn) ending(p *pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.sent {
		return errStale
	}
	return broken("it ended while the request was under way: %w", c.cause)
}

// call sends one request and returns its answer. When ctx ends first, the
// server is told, save for how a conversation begins: initialize must not be
// cancelled, and who does not know server/discover knows nothing to cancel.
// When the conn ends before anything was written the error is errStale.
func (c *conn) call(ctx context.Context, h *hello, r request) (*mcp.Message, error) {
	p, line, err := c.begin(h, r)
	if err != nil {
		return nil, err
	}
	defer c.end(p)
	select {
	case c.out <- outgoing{line, p}:
	case <-c.dead:
		return nil, errStale
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	notify := r.notify
	if notify == nil {
		notify = func(*mcp.Message) {}
	}
	return c.await(ctx, r.method, p, notify)
}

func (c *conn) await(ctx context.Context, method string, p *pending, notify func(*mcp.Message)) (*mcp.Message, error) {
	for {
		select {
		case m := <-p.notes:
			notify(m)
		case m := <-p.answer:
			p.drain(notify)
			return m, nil
		case err := <-p.failed:
			return nil, err
		case <-c.dead:
			select {
			case m := <-p.answer:
				p.drain(notify)
				return m, nil
			default:
			}
			return nil, c.ending(p)
		case <-ctx.Done():
			if method != mcp.MethodInitialize && method != discover {
				c.post(mcp.NewRequest(mcp.ID{}, cancelled, cancelParams(p.id, ctx)))
			}
			return nil, ctx.Err()
		}
	}
}

// drain hands over the notifications that came before the answer.
func (p *pending) drain(notify func(*mcp.Message)) {
	for {
		select {
		case m := <-p.notes:
			notify(m)
		default:
			return
		}
	}
}

// cancelParams are the params of our notifications/cancelled.
func cancelParams(id mcp.ID, ctx context.Context) jsontext.Value {
	reason := "the client cancelled the request"
	if expired(ctx) {
		reason = "the request took too long"
	}
	out := append([]byte(`{"requestId":`), id.Raw()...)
	return append(mcp.AppendString(append(out, `,"reason":`...), reason), '}')
}

func (c *conn) begin(h *hello, r request) (*pending, []byte, error) {
	c.mu.Lock()
	c.next++
	seq := c.next
	c.mu.Unlock()
	id := mcp.NumberID(seq)
	params, token, err := outbound(r, h, c.client, id)
	if err != nil {
		return nil, nil, err
	}
	p := &pending{
		seq: seq, id: id, token: token, turn: r.turn, as: r.as, listens: r.method == listen, feeds: r.method == listen && r.notify != nil,
		notes:  make(chan *mcp.Message, inboundQueue),
		answer: make(chan *mcp.Message, 1),
		failed: make(chan error, 1),
	}
	c.mu.Lock()
	c.pending[id] = p
	c.mu.Unlock()
	line, err := oneLine(mcp.NewRequest(id, r.method, params))
	if err != nil {
		c.end(p)
	}
	return p, line, err
}

func (c *conn) end(p *pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, p.id)
}

// deliver sends an answer of the client, which the server waits for.
func (c *conn) deliver(m *mcp.Message) {
	line, err := oneLine(m)
	if err != nil {
		return
	}
	select {
	case c.out <- outgoing{line: line}:
	case <-c.dead:
	}
}

// post sends a message that nobody waits for, unless the server has stopped
// reading.
func (c *conn) post(m *mcp.Message) {
	line, err := oneLine(m)
	if err != nil {
		return
	}
	select {
	case c.out <- outgoing{line: line}:
	default:
		c.noise.report("does not take what it is sent; a message was left out", nil)
	}
}

// oneLine writes a message without line breaks: white space between tokens is
// all that a client's params can bring along, and on this transport it would
// end the message.
func oneLine(m *mcp.Message) ([]byte, error) {
	line := jsontext.Value(m.Append(nil))
	for _, c := range line {
		if c == '\n' || c == '\r' {
			if err := line.Compact(); err != nil {
				return nil, broken("write a request in one line: %w", err)
			}
			break
		}
	}
	return append(line, '\n'), nil
}
