package upstream

import (
	"context"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// asksMost bounds the requests of a server that are under way on one link.
const asksMost = 16

// party is the client's side of one link: whom it is held for, and what the
// server has asked of that peer. Its methods may be called concurrently.
type party struct {
	server  string
	peer    Peer
	changed func(said string) // as transport hears of changed lists
	life    context.Context
	end     context.CancelFunc

	mu     sync.Mutex
	closed bool
	as     Subject // of the latest call
	asks   map[mcp.ID]*ask
	wg     sync.WaitGroup
}

func newParty(server string, peer Peer, changed func(said string)) *party {
	p := &party{server: server, peer: peer, changed: changed, asks: map[mcp.ID]*ask{}}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// ask is one request of the server under way.
type ask struct {
	cancel    context.CancelFunc
	withdrawn bool // guarded by party.mu
}

// turn is a client's call under way, as its server's requests see it.
type turn struct {
	ctx   context.Context // ends with the call
	clock *clock
	ask   func(context.Context, *mcp.Message) *mcp.Message // nil refuses
}

// speaks returns the subject of a request over the link: of a client's call its
// own, and of anything else the peer's by whatever token lasts longest.
func (p *party) speaks(turn *turn, as Subject) Subject {
	p.mu.Lock()
	if turn != nil {
		p.as = as
	}
	latest := p.as
	p.mu.Unlock()
	if turn != nil {
		return as
	}
	return p.peer.Subject().Newer(latest)
}

// subject is speaks for what belongs to no request.
func (p *party) subject() Subject { return p.speaks(nil, Subject{}) }

// take takes a request of the server, made during the call of, or of none
// (nil). It returns the answer to what needs no asking. Otherwise it returns
// nil, and send is called once with the answer, from another goroutine; or not
// at all, where the server no longer wants it or the link has ended.
func (p *party) take(m *mcp.Message, of *turn, send func(*mcp.Message)) *mcp.Message {
	if !isAsk(m.Method) || of != nil && of.ask == nil {
		return reply(m)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || p.asks[m.ID] != nil: // a resumed stream may repeat itself
		return nil
	case len(p.asks) == asksMost:
		return withID(errorAnswer(mcp.CodeInternal, "too many requests to the client are under way"), m.ID)
	}
	under := p.life
	if of != nil {
		under = of.ctx
	}
	ctx, cancel := context.WithCancel(under)
	a := &ask{cancel: cancel}
	p.asks[m.ID] = a
	p.wg.Go(func() {
		defer cancel()
		defer context.AfterFunc(p.life, cancel)()
		answer := p.put(ctx, m, of)
		if p.settle(m.ID, a) {
			send(answer)
		}
	})
	return nil
}

// put asks, and returns the answer under the server's own id.
func (p *party) put(ctx context.Context, m *mcp.Message, of *turn) *mcp.Message {
	var answer *mcp.Message
	if of != nil {
		of.clock.hold()
		defer of.clock.release()
		answer = of.ask(ctx, m)
	} else {
		answer = p.peer.Ask(ctx, p.server, m)
	}
	if answer == nil || answer.Result == nil && answer.Error == nil {
		answer = errorAnswer(mcp.CodeInternal, "the client gave no answer")
	}
	return withID(answer, m.ID)
}

// settle ends an ask and reports whether its answer is still wanted.
func (p *party) settle(id mcp.ID, a *ask) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asks, id)
	return !a.withdrawn && !p.closed
}

// hear takes a notification that is not about progress. belongs is who hears
// of what belongs to a call; nil is the peer.
func (p *party) hear(m *mcp.Message, belongs func(*mcp.Message)) {
	switch m.Method {
	case toolsChanged, promptsChanged, resourcesChanged:
		if p.peer.Key() != "" {
			p.changed("") // the gateway's own conversation says so, too
			return
		}
		p.changed(m.Method)
	case cancelled:
		p.withdraw(m)
	case acknowledged:
	case updated, elicited, taskStatus:
		p.peer.Notify(p.server, m)
	default:
		if belongs == nil {
			p.peer.Notify(p.server, m)
			return
		}
		belongs(m)
	}
}

// withdraw ends the request of the server that it has cancelled.
func (p *party) withdraw(m *mcp.Message) {
	id, ok := cancelledID(m)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.asks[id]; a != nil {
		a.withdrawn = true
		a.cancel()
	}
}

// close ends all asks and returns when nothing of them is left.
func (p *party) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.wg.Wait()
}

func isAsk(method string) bool {
	switch method {
	case mcp.MethodCreateMessage, mcp.MethodElicit, mcp.MethodRootsList:
		return true
	}
	return false
}

// anybody is what any client could declare. Some servers offer a tool only
// where it could work.
const anybody = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`

// declared returns the capabilities that a server of the era is told of; a
// request without a peer is the gateway's own.
func declared(peer Peer, era mcp.Era) jsontext.Value {
	if _, ours := peer.(onlooker); ours || peer == nil {
		return jsontext.Value(anybody)
	}
	if peer.Era() == era {
		if c := object(peer.Capabilities()); c != nil {
			return c
		}
	}
	return jsontext.Value("{}")
}

// reply answers what needs no asking: a ping, and all that we have no answer
// to.
func reply(m *mcp.Message) *mcp.Message {
	if m.Method == "ping" {
		return mcp.NewResponse(m.ID, jsontext.Value("{}"))
	}
	return withID(errorAnswer(mcp.CodeMethodNotFound, "the client does not support this method"), m.ID)
}

// withID is the message under another id.
func withID(m *mcp.Message, id mcp.ID) *mcp.Message {
	out := *m
	out.ID = id
	return &out
}

// errorAnswer is a response with an error of ours.
func errorAnswer(code int, message string) *mcp.Message {
	out := strconv.AppendInt([]byte(`{"code":`), int64(code), 10)
	return &mcp.Message{Error: append(mcp.AppendString(append(out, `,"message":`...), message), '}')}
}
