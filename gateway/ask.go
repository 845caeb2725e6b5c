package gateway

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
)

// asked is the requests that clients of the legacy era have been sent and have
// not answered. They belong to this replica.
type asked struct {
	mu   sync.Mutex
	open map[askKey]*ask
}

type askKey struct {
	session string
	id      mcp.ID // ours: several servers share the client's leg
}

// ask is one such request.
type ask struct {
	answer chan *mcp.Message // holds one
	server string
	token  jsontext.Value // the server's progress token, or nil
}

func (a *asked) begin(session, server string, id mcp.ID, token jsontext.Value) *ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[askKey]*ask{}
	}
	q := &ask{answer: make(chan *mcp.Message, 1), server: server, token: token}
	a.open[askKey{session, id}] = q
	return q
}

func (a *asked) end(session string, id mcp.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, askKey{session, id})
}

// find returns the request that a client of this session was sent under the id,
// nil for anything else.
func (a *asked) find(session string, id mcp.ID) *ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open[askKey{session, id}]
}

// answered takes a response that a client posted. One that answers nothing is
// dropped; of two the first counts.
func (x *exchange) answered() {
	if x.era != mcp.Legacy {
		return
	}
	if q := x.g.asked.find(x.session.ID, x.msg.ID); q != nil {
		select {
		case q.answer <- x.msg:
		default:
		}
	}
}

// progressed hands a client's progress on a server's request to that server,
// under its own token.
func (x *exchange) progressed() {
	params, err := mcp.ReadProgress(x.msg.Params)
	if err != nil {
		return
	}
	id, _ := mcp.ReadID(params.Token)
	if q := x.g.asked.find(x.session.ID, id); q != nil && q.token != nil {
		x.g.pool.Tell(q.server, x.talk.Key(), mcp.NewRequest(mcp.ID{}, mcp.NotifyProgress, params.Params(q.token)))
	}
}

// askWait bounds how long a server's request waits for its client: people may
// have to be found first.
const askWait = 10 * time.Minute

// asks is what a server asks during one call.
type asks struct {
	mu   sync.Mutex
	over bool
	open sync.WaitGroup
}

func (a *asks) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.open.Add(1)
	}
	return !a.over
}

// end waits until the client has been told which of the requests it need not
// answer any more: once it has its own answer, nothing follows on that stream.
func (a *asks) end() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.open.Wait()
}

// asker is how the backend asks the client during the use of a target.
func (x *exchange) asker(t target, during *asks) func(context.Context, *mcp.Message) *mcp.Message {
	if x.era == mcp.Modern {
		return func(_ context.Context, m *mcp.Message) *mcp.Message { return acrossEras(m) }
	}
	judge, talk := x.judge(), x.talk
	_, sse := accepts(x.r.Header)
	return func(ctx context.Context, m *mcp.Message) *mcp.Message {
		if !during.begin() {
			return refusedAsk(m, mcp.CodeInternal, "the call is over")
		}
		defer during.open.Done()
		send := x.answer.event
		if !sse {
			send = talk.send
		}
		return talk.ask(ctx, judge, t, m, send)
	}
}

// acrossEras refuses a server's request where the client's era has none. The
// bridge that parks the call and returns input_required belongs here.
func acrossEras(m *mcp.Message) *mcp.Message {
	return refusedAsk(m, mcp.CodeMethodNotFound, "the client speaks MCP "+mcp.V20260728+
		", in which servers send no requests: "+clip(m.Method)+" cannot reach it")
}

func refusedAsk(m *mcp.Message, code int, message string) *mcp.Message {
	return (&mcp.Error{ID: m.ID, Code: code, Message: message}).Response()
}

// ask carries a server's request to the client by send and brings the answer
// back. It is never nil.
func (c *conversation) ask(ctx context.Context, j *judge, t target, m *mcp.Message, send func([]byte)) *mcp.Message {
	if !c.can(m) {
		return refusedAsk(m, mcp.CodeMethodNotFound, "the client does not support "+clip(m.Method))
	}
	if v := j.asks(ctx, m.Method, t, m.Params); !v.allowed {
		return refusedAsk(m, mcp.CodeForbidden, "the policy does not allow this request to the client")
	}
	params, token, err := c.exposeAsk(j.route, t.server, m)
	if err != nil {
		return refusedAsk(m, mcp.CodeInvalidParams, "the request's params cannot be read")
	}
	id := c.nextAsk()
	q := c.g.asked.begin(c.session, t.server, id, token)
	defer c.g.asked.end(c.session, id)
	if token != nil {
		if params, err = mcp.EditMeta(params, mcp.Set{Name: mcp.MetaProgressToken, Value: id.Raw()}); err != nil {
			return refusedAsk(m, mcp.CodeInvalidParams, "the request's _meta cannot be read")
		}
	}
	send(mcp.NewRequest(id, m.Method, params).Append(nil))
	timer := time.NewTimer(askWait)
	defer timer.Stop()
	select {
	case answer := <-q.answer:
		return c.restoreAnswer(m, answer)
	case <-timer.C:
	case <-ctx.Done():
	case <-c.g.closing.Done():
	}
	send(mcp.NewRequest(mcp.ID{}, mcp.NotifyCancelled, object(
		mcp.Set{Name: "requestId", Value: id.Raw()},
		mcp.Set{Name: "reason", Value: mcp.String("nobody waits for the answer any more")},
	)).Append(nil))
	return refusedAsk(m, mcp.CodeInternal, "the client did not answer in time")
}

// restoreAnswer words a client's answer for the server.
func (c *conversation) restoreAnswer(m, answer *mcp.Message) *mcp.Message {
	result, err := c.restoreRelated(answer.Result)
	if err != nil {
		return refusedAsk(m, mcp.CodeInternal, "the client's answer cannot be read")
	}
	out := *answer
	out.Result = result
	return &out
}

func (c *conversation) nextAsk() mcp.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return mcp.NumberID(c.asked)
}

// exposeAsk returns the params as the client is to see them, and the progress
// token that the server gave.
func (c *conversation) exposeAsk(route, server string, m *mcp.Message) (params, token jsontext.Value, err error) {
	meta, e := mcp.ReadMeta(m.Params)
	if e != nil {
		return nil, nil, e
	}
	if params, err = c.exposeRelated(server, m.Params); err != nil {
		return nil, nil, err
	}
	if m.Method == mcp.MethodElicit && route == "" {
		if params, err = exposeElicitation(params, server); err != nil {
			return nil, nil, err
		}
	}
	return params, meta.ProgressToken, nil
}

// exposeElicitation makes the id of a URL elicitation one among all servers'.
func exposeElicitation(object jsontext.Value, server string) (jsontext.Value, error) {
	l, e := mcp.ReadElicitation(object)
	if e != nil {
		return nil, e
	}
	if !l.HasID {
		return object, nil
	}
	return l.Params(server + ":" + l.ID), nil
}

// can reports whether the client said that it takes such requests.
func (c *conversation) can(m *mcp.Message) bool {
	return mcp.Supports(c.capabilities, m.Method, m.Params)
}

// teller passes notifications on that belong to the use of a target. It is for
// one goroutine.
type teller struct {
	judge  *judge
	target target
	known  map[string]told
}

// told is the answer that one policy gave.
type told struct {
	now pinned
	ok  bool
}

func (t *teller) may(ctx context.Context, method string) bool {
	now, code := t.judge.now()
	if code != "" {
		return false
	}
	if before, ok := t.known[method]; ok && before.now == now {
		return before.ok
	}
	if t.known == nil {
		t.known = map[string]told{}
	}
	t.known[method] = told{now, t.judge.tells(ctx, method, now.catalog.again(t.target))}
	return t.known[method].ok
}

// passOn gives the client what a backend says of a request under way, which
// lives on ctx: a client that lost its connection comes back for it.
func (x *exchange) passOn(ctx context.Context, t target) func(*mcp.Message) {
	if _, sse := accepts(x.r.Header); !sse {
		return nil
	}
	teller := &teller{judge: x.judge(), target: t}
	return func(m *mcp.Message) {
		row, ok := fromServers[m.Method]
		if !ok || !row.during || !teller.may(ctx, m.Method) {
			return
		}
		if m.Method == mcp.NotifyMessage && x.era == mcp.Modern && x.meta.LogLevel == "" {
			return // not asked for, so not to be sent (MCP 2026-07-28, logging)
		}
		if x.talk != nil {
			params, err := x.talk.exposeRelated(t.server, m.Params)
			if err != nil {
				return
			}
			m = mcp.NewRequest(mcp.ID{}, m.Method, params)
		}
		x.answer.event(m.Append(nil))
	}
}

// peer is the client as the backend leg knows it.
func (x *exchange) peer() upstream.Peer {
	if x.era == mcp.Legacy {
		return x.talk
	}
	return passerby{key: strconv.Quote(x.principal.Key()), subject: x.onBehalf()}
}

// passerby is a client of the modern era: nothing is left of it between its
// requests. A principal's share their legacy-era sessions with servers.
type passerby struct {
	key     string
	subject upstream.Subject
}

func (p passerby) Key() string                                                  { return p.key }
func (p passerby) Era() mcp.Era                                                 { return mcp.Modern }
func (p passerby) Capabilities() jsontext.Value                                 { return jsontext.Value("{}") }
func (p passerby) Subject() upstream.Subject                                    { return p.subject }
func (p passerby) Notify(string, *mcp.Message)                                  {}
func (p passerby) Ask(_ context.Context, _ string, m *mcp.Message) *mcp.Message { return acrossEras(m) }

// logLevel is the level of log messages that the client asked for, where the
// policy lets it ask the server.
func (x *exchange) logLevel(now pinned, server string) string {
	level := x.session.LogLevel
	if x.era == mcp.Modern {
		level = x.meta.LogLevel
	}
	s := now.catalog.site(server)
	if level == "" || s == nil || !x.judge().tells(x.ctx, mcp.MethodSetLevel, s.target()) {
		return ""
	}
	return level
}
