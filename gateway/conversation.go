package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/stream"
	"github.com/regogate/regogate/gateway/upstream"
)

// conversation is the live side of one legacy-era session at this replica: it
// is the client of the session's own sessions with the servers. Another
// replica that takes the session up makes its own.
type conversation struct {
	g            *Gateway
	session      string
	principal    string
	owner        string // as the store of sessions knows the principal
	capabilities jsontext.Value

	saving sync.Mutex // one change of the session's facts after the other

	told inbox // by servers, outside of its requests

	mu         sync.Mutex
	subscribed []session.Subscription // here
	refused    map[refusal]pinned     // what a server itself may not tell, and by which policy
	refusedBy  *judge                 // who said so: on other claims the answer may be another
	over       bool                   // the session has ended, or is used elsewhere
	used       time.Time
	judge      *judge             // of the latest request
	opener     *judge             // of the request that opened the session's own stream, while there is one
	seen       prints             // what the client knows of its lists, as far as a stream told it
	asked      int64              // how many requests of servers it was sent
	tasks      map[taskKey]target // tools by the tasks that they started
	started    []taskKey          // those tasks, the oldest first
}

// mostTasks bounds how many running tasks of a session are told of by
// themselves; asking for one works for all.
const mostTasks = 256

// conversation returns the session's, and has it judge by the exchange's claims
// from now on.
func (x *exchange) conversation() *conversation {
	x.g.mu.Lock()
	c := x.g.talks[x.session.ID]
	if c == nil {
		// Tasks of servers at the client are not supported.
		capabilities, err := mcp.Strip(x.session.Capabilities, "tasks")
		if err != nil {
			capabilities = jsontext.Value("{}")
		}
		c = &conversation{g: x.g, session: x.session.ID, principal: x.principal.Key(), owner: x.owner(), capabilities: capabilities, judge: x.judge()}
		c.told.handle = c.pass
		x.g.talks[c.session] = c
		if len(x.session.Subscriptions) > 0 { // another replica's
			go c.resubscribe(x.session.Subscriptions)
		}
	}
	x.g.mu.Unlock()
	c.mu.Lock()
	c.judge, c.used = x.judge(), time.Now()
	c.mu.Unlock()
	return c
}

// use keeps the conversation from being taken for idle.
func (c *conversation) use() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
}

// sweep ends the conversations of sessions that nobody uses here any more.
func (g *Gateway) sweep(idle time.Duration) {
	g.mu.Lock()
	var over []string
	for id, c := range g.talks {
		c.mu.Lock()
		if time.Since(c.used) > idle {
			over = append(over, id)
		}
		c.mu.Unlock()
	}
	g.mu.Unlock()
	for _, id := range over {
		g.endConversation(id)
	}
}

// knows is what the session's stream has told the client of its lists.
func (c *conversation) knows() prints {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

func (c *conversation) know(p prints) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = p
}

// endConversation forgets a session's live side and ends what hangs on it.
func (g *Gateway) endConversation(session string) {
	g.mu.Lock()
	c := g.talks[session]
	delete(g.talks, session)
	g.mu.Unlock()
	if c != nil {
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		c.told.close()
	}
	g.hub.End(session)
	if c != nil {
		g.pool.Release(c.Key())
	}
}

func (c *conversation) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

func (c *conversation) Key() string                  { return "session " + c.session }
func (c *conversation) Era() mcp.Era                 { return mcp.Legacy }
func (c *conversation) Capabilities() jsontext.Value { return c.capabilities }

// Subject is by the token of the latest request.
func (c *conversation) Subject() upstream.Subject {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.judge.onBehalf
}

// latest judges what goes onto the session's own stream: by the claims that
// opened it, or while there is none, by those of the latest request.
func (c *conversation) latest() *judge {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opener != nil {
		return c.opener
	}
	return c.judge
}

// opened says whose request keeps the session's own stream open.
func (c *conversation) opened(by *judge) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opener = by
}

// closed takes that back, unless another request has taken over.
func (c *conversation) closed(by *judge) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opener == by {
		c.opener = nil
	}
}

// stream is the session's own, nil once the session is over.
func (c *conversation) stream() *stream.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	return c.g.hub.Standing(c.session)
}

// send puts a message on the session's own stream.
func (c *conversation) send(message []byte) {
	if s := c.stream(); s != nil {
		s.Send(message)
	}
}

// Ask takes a request of a server that belongs to none of the client's.
func (c *conversation) Ask(ctx context.Context, server string, m *mcp.Message) *mcp.Message {
	j := c.latest()
	now, _ := j.now()
	if now.catalog == nil || now.catalog.site(server) == nil {
		return refusedAsk(m, mcp.CodeForbidden, "the policy does not allow this request to the client")
	}
	return c.ask(ctx, j, now.catalog.site(server).target(), m, c.send)
}

// Notify takes a notification that belongs to none of the client's requests.
func (c *conversation) Notify(server string, m *mcp.Message) { c.told.put(server, m) }

// pass hands such a notification on.
func (c *conversation) pass(server string, m *mcp.Message) {
	j := c.latest()
	row, ok := fromServers[m.Method]
	now, code := j.now()
	if !ok || !row.alone || code != "" || now.catalog.site(server) == nil || c.refuses(j, now, server, m.Method) {
		return
	}
	if m.Method == mcp.NotifyResourceUpdated && !c.wants(server, m) {
		return
	}
	t, m := c.about(now, j.route, server, m)
	if m == nil {
		return
	}
	if !j.tells(context.Background(), m.Method, t) {
		c.refuse(j, now, server, m.Method, t)
		return
	}
	c.send(m.Append(nil))
}

// refusal is what the policy has said no to: the messages of one method about
// one server.
type refusal struct{ server, method string }

// refuses reports whether the policy has said no to the very same: a server may
// tell the same thing thousands of times.
func (c *conversation) refuses(j *judge, now pinned, server, method string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusedBy == j && c.refused[refusal{server, method}] == now
}

func (c *conversation) refuse(j *judge, now pinned, server, method string, t target) {
	if t.name.Kind != policy.KindServer {
		return // another one of the same method may be about something else
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusedBy != j {
		c.refused, c.refusedBy = map[refusal]pinned{}, j
	}
	c.refused[refusal{server, method}] = now
}

// wants reports whether the session has subscribed to the resource, or one that
// it is part of.
func (c *conversation) wants(server string, m *mcp.Message) bool {
	uri, _ := mcp.Text(mcp.Find(m.Params, "uri"))
	c.mu.Lock()
	defer c.mu.Unlock()
	return covered(c.subscribed, server, uri)
}

// subscribes notes a subscription that is held here.
func (c *conversation) subscribes(s session.Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribed = append(dropSubscription(c.subscribed, s.URI), s)
}

func (c *conversation) unsubscribes(uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribed = dropSubscription(c.subscribed, uri)
}

// about finds what a notification is about and words it for the client; nil is
// nothing that it could be told.
func (c *conversation) about(now pinned, route, server string, m *mcp.Message) (target, *mcp.Message) {
	switch m.Method {
	case mcp.NotifyResourceUpdated:
		return updated(now, server, m)
	case mcp.NotifyTaskStatus:
		return c.taskStatus(server, m)
	case mcp.NotifyElicited:
		if route == "" {
			params, err := exposeElicitation(m.Params, server)
			if err != nil {
				return target{}, nil
			}
			m = mcp.NewRequest(mcp.ID{}, m.Method, params)
		}
	}
	params, err := c.exposeRelated(server, m.Params)
	if err != nil {
		return target{}, nil
	}
	return now.catalog.site(server).target(), mcp.NewRequest(mcp.ID{}, m.Method, params)
}

// updated finds the resource whose change a server tells.
func updated(now pinned, server string, m *mcp.Message) (target, *mcp.Message) {
	uri, err := mcp.ReadURI(m.Params)
	if err != nil {
		return target{}, nil
	}
	return now.catalog.located(server, uri.URI)[0], m
}

func (s *site) target() target {
	return target{server: s.name, item: s.item, name: s.subject(), known: true}
}
