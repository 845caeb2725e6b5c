package upstream

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// listener holds the streams over which a modern server tells one subscriber
// of its resources. It is for one goroutine.
type listener struct {
	*subscriber
	entry *entry
	joint bool // there is one feed for all
	life  context.Context
	feeds map[string]*feed // by what they are about
	ended chan struct{}    // holds one: one of them has ended
	wg    sync.WaitGroup
}

// feed is one subscriptions/listen.
type feed struct {
	uris []string
	// refused: the server no longer tells of what it told of before.
	refused bool
	cancel  context.CancelFunc
	agreed  chan []string // holds one: what the server agreed to tell of
	over    chan struct{} // closed when m or err is set
	m       *mcp.Message
	err     error
}

// listen keeps what is wanted in place over the link of a modern server.
func (sub *subscriber) listen(e *entry) error {
	l := &listener{subscriber: sub, entry: e, feeds: map[string]*feed{}, ended: make(chan struct{}, 1)}
	_, l.joint = e.link.(*stateless)
	var cancel context.CancelFunc
	l.life, cancel = context.WithCancel(sub.life)
	defer l.wg.Wait()
	defer cancel()
	for {
		if err := l.arrange(); err != nil {
			return err
		}
		if sub.isIdle() {
			return nil
		}
		select {
		case <-l.life.Done():
			return l.life.Err()
		case <-e.gone:
			return errStale
		case <-l.ended:
			if err := l.broken(); err != nil {
				return err
			}
		case <-sub.wake:
		}
	}
}

// arrange opens the feeds that are missing and then ends those that are no
// longer needed, so that nothing is missed in between. Over HTTP, where each
// holds a connection, there is one for all; on a channel that all requests
// share there is one for each resource, since there are servers that take the
// end of one for the end of all; and so there is when a server has refused all,
// perhaps for one of them.
func (l *listener) arrange() error {
	var groups [][]*want
	for _, w := range l.list() {
		if l.joint && len(groups) > 0 {
			groups[0] = append(groups[0], w)
		} else {
			groups = append(groups, []*want{w})
		}
	}
	needed := map[string]bool{}
	for _, group := range groups {
		key := strings.Join(urisOf(group), "\x00")
		needed[key] = true
		if l.feeds[key] != nil {
			continue
		}
		f, err := l.open(group)
		if err != nil {
			return err
		}
		if f == nil {
			return l.arrange() // without what was refused, or one by one
		}
		l.feeds[key] = f
	}
	for key, f := range l.feeds {
		if !needed[key] {
			f.cancel()
			delete(l.feeds, key)
		}
	}
	return nil
}

func urisOf(group []*want) (uris []string) {
	for _, w := range group {
		uris = append(uris, w.uri)
	}
	slices.Sort(uris)
	return uris
}

// open opens a feed and settles what it is about. It returns nil without an
// error where the server has refused it, and that is not the last word.
func (l *listener) open(group []*want) (*feed, error) {
	f := &feed{uris: urisOf(group), agreed: make(chan []string, 1), over: make(chan struct{})}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(l.life)
	l.wg.Go(func() { l.run(ctx, f) })
	limited, cancel := context.WithTimeout(ctx, l.server.config.CallTimeout)
	defer cancel()
	select {
	case agreed := <-f.agreed:
		l.agree(group, agreed)
		return f, nil
	case <-f.over:
		select {
		case agreed := <-f.agreed: // and ended at once, if that is nothing
			l.agree(group, agreed)
			return f, nil
		default:
		}
	case <-limited.Done():
		f.cancel()
		return nil, limited.Err()
	}
	f.cancel()
	if f.err != nil {
		return nil, f.err
	}
	if f.m.Error == nil {
		return nil, broken("it ended a subscription before it began")
	}
	return l.refuse(group, f), nil
}

// refuse settles what is new and so is wanted no longer. What is not stays
// without a feed for as long as the link lasts.
func (l *listener) refuse(group []*want, f *feed) *feed {
	if len(group) > 1 {
		l.joint = false
		return nil
	}
	if w := group[0]; !w.isSettled() {
		l.settle(w, f.m, nil)
		return nil
	}
	l.server.log.Warn("a server no longer tells of a resource", "server", l.server.name, "code", f.m.Err().Code)
	f.refused = true
	return f
}

// agree settles what a feed is about.
func (l *listener) agree(group []*want, agreed []string) {
	for _, w := range group {
		m := mcp.NewResponse(mcp.ID{}, jsontext.Value("{}"))
		if !slices.Contains(agreed, w.uri) {
			m = errorAnswer(mcp.CodeInvalidParams, "the server does not tell of changes of this resource")
		}
		l.settle(w, m, nil)
	}
}

func (l *listener) run(ctx context.Context, f *feed) {
	f.m, f.err = l.server.over(ctx, l.entry, request{
		method: listen, params: listenParams(f.uris), peer: l.who(), notify: func(m *mcp.Message) { l.hear(f, m) },
	})
	close(f.over)
	select {
	case l.ended <- struct{}{}:
	default:
	}
}

// hear takes what comes over a feed.
func (l *listener) hear(f *feed, m *mcp.Message) {
	switch m.Method {
	case acknowledged:
		select {
		case f.agreed <- agreedOf(m):
		default:
		}
	case updated:
		if m = unsubscribed(m); m != nil {
			l.who().Notify(l.server.name, m)
		}
	}
}

// broken returns why one of the feeds has ended that are still needed, nil
// where none has.
func (l *listener) broken() error {
	for _, f := range l.feeds {
		switch {
		case f.refused || !isClosed(f.over):
		case f.err != nil:
			return f.err
		default:
			return broken("it ended a subscription")
		}
	}
	return nil
}

func listenParams(uris []string) jsontext.Value {
	out := []byte(`{"notifications":{"resourceSubscriptions":[`)
	for i, uri := range uris {
		if i > 0 {
			out = append(out, ',')
		}
		out = mcp.AppendString(out, uri)
	}
	return append(out, `]}}`...)
}

// agreedOf reads which resources the server has agreed to tell of.
func agreedOf(m *mcp.Message) []string {
	members, err := mcp.Split(m.Params)
	if err != nil {
		return nil
	}
	members, err = mcp.Split(mcp.Get(members, "notifications"))
	if err != nil {
		return nil
	}
	return texts(mcp.Get(members, "resourceSubscriptions"))
}
