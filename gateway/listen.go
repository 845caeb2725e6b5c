package gateway

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/upstream"
)

// listen answers subscriptions/listen, the modern era's stream of changes. It
// lives as long as the request.
func (x *exchange) listen() *fault {
	wish, err := mcp.ReadListen(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	if _, sse := accepts(x.r.Header); !sse {
		return faultAccept()
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	l := &subscriber{x: x, judge: x.judge()}
	l.told.handle = l.pass
	defer l.told.close()
	defer x.g.pool.Release(l.Key())
	agreed := l.subscribe(now, wish.Resources)
	x.hand()
	x.leave()
	l.acknowledge(wish, agreed)
	w := &watcher{x: x, wanted: [listings]bool{
		toolList: wish.ToolsListChanged, promptList: wish.PromptsListChanged,
		resourceList: wish.ResourcesListChanged, templateList: wish.ResourcesListChanged,
	}}
	change := func() bool {
		for _, method := range w.changed() {
			l.tell(method)
		}
		return !x.answer.failed()
	}
	x.lasts(nil, func() bool {
		x.answer.keepAlive()
		return !x.answer.failed() && (!w.missed || change())
	}, change)
	// Where the client is still there, it is told that this is the end.
	x.reply(x.result(object(mcp.Set{Name: "resultType", Value: mcp.String("complete")}, l.name())))
	return nil
}

// subscriber is the peer that a listening request subscribes for. Servers of the
// legacy era keep a session for it.
type subscriber struct {
	x     *exchange
	judge *judge

	told inbox // by servers

	mu     sync.Mutex             // one message after the other
	ready  bool                   // the acknowledgement, which comes first, has been sent
	early  [][]byte               // what came before it
	wanted []session.Subscription // what it acknowledged
}

// subscribeWait bounds how long one server may take to agree.
const subscribeWait = 5 * time.Second

// subscribe subscribes to the resources that the policy allows and that a
// server agrees to tell of in time, and returns those.
func (l *subscriber) subscribe(now pinned, uris []string) (agreed []session.Subscription) {
	x := l.x
	ctx, cancel := context.WithTimeout(x.ctx, subscribeWait)
	defer cancel()
	asked, yes := make([]session.Subscription, len(uris)), make([]bool, len(uris))
	var asking sync.WaitGroup
	for i, uri := range uris {
		t, ok := x.choose(now, mcp.MethodSubscribe, x.located(now, uri))
		if !ok {
			continue
		}
		asked[i] = session.Subscription{Server: t.server, URI: uri}
		asking.Go(func() {
			answer, err := x.g.pool.Subscribe(ctx, t.server, l, uri)
			yes[i] = err == nil && answer.Error == nil
		})
	}
	asking.Wait()
	for i := range uris {
		if yes[i] {
			agreed = append(agreed, asked[i])
		}
	}
	return agreed
}

// acknowledge begins the stream. Of what the client wishes for it agrees to all
// but tasks, and to the resources given.
func (l *subscriber) acknowledge(f mcp.Filter, agreed []session.Subscription) {
	f.Tasks, f.Resources = nil, nil
	for _, s := range agreed {
		f.Resources = append(f.Resources, s.URI)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready, l.wanted = true, agreed
	l.x.answer.event(l.message(mcp.NotifyAcknowledged, mcp.Set{Name: "notifications", Value: f.Value()}))
	for _, m := range l.early {
		l.x.answer.event(m)
	}
	l.early = nil
}

// wants reports whether the subscription is to a resource, or one that it is
// part of. Before the acknowledgement, which comes at once, it may be to any.
func (l *subscriber) wants(server, uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ready || covered(l.wanted, server, uri)
}

// covered reports whether who has these subscriptions hears of a resource: of
// one that is subscribed to, or lies below it.
func covered(subscriptions []session.Subscription, server, uri string) bool {
	return slices.ContainsFunc(subscriptions, func(s session.Subscription) bool {
		rest, ok := strings.CutPrefix(uri, s.URI)
		below := rest == "" || strings.HasSuffix(s.URI, "/") || strings.ContainsRune("/?#", rune(rest[0]))
		return s.Server == server && ok && below
	})
}

// tell sends a notification.
func (l *subscriber) tell(method string, sets ...mcp.Set) {
	m := l.message(method, sets...)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ready:
		l.x.answer.event(m)
	case len(l.early) < mcp.MaxSubscriptions:
		l.early = append(l.early, m)
	}
}

// message names the subscription, as every message of the stream does.
func (l *subscriber) message(method string, sets ...mcp.Set) []byte {
	return mcp.NewRequest(mcp.ID{}, method, object(append(sets, l.name())...)).Append(nil)
}

func (l *subscriber) name() mcp.Set {
	return mcp.Set{Name: "_meta", Value: object(mcp.Set{Name: mcp.MetaSubscriptionID, Value: l.x.msg.ID.Raw()})}
}

func (l *subscriber) Key() string {
	return "listen " + strconv.Quote(l.x.principal.Key()) + " " + l.x.id
}
func (l *subscriber) Era() mcp.Era                 { return mcp.Modern }
func (l *subscriber) Capabilities() jsontext.Value { return jsontext.Value("{}") }
func (l *subscriber) Subject() upstream.Subject    { return l.judge.onBehalf }

func (l *subscriber) Ask(_ context.Context, _ string, m *mcp.Message) *mcp.Message {
	return acrossEras(m)
}

// Notify takes the updates of resources.
func (l *subscriber) Notify(server string, m *mcp.Message) { l.told.put(server, m) }

// pass hands them on.
func (l *subscriber) pass(server string, m *mcp.Message) {
	now, code := l.judge.now()
	if m.Method != mcp.NotifyResourceUpdated || code != "" {
		return
	}
	t, m := updated(now, server, m)
	if m == nil || !l.judge.tells(l.x.ctx, m.Method, t) {
		return
	}
	uri := mcp.Find(m.Params, "uri")
	if text, _ := mcp.Text(uri); !l.wants(server, text) {
		return
	}
	l.tell(m.Method, mcp.Set{Name: "uri", Value: uri})
}
