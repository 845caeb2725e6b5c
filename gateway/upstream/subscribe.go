package upstream

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream/credentials"
)

// subscriptionsMost bounds the subscriptions of one key, over all servers.
const subscriptionsMost = 256

// quota counts the subscriptions of each key. It is safe for concurrent use.
type quota struct {
	mu sync.Mutex
	of map[string]int
}

func (q *quota) take(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[key] == subscriptionsMost {
		return false
	}
	q.of[key]++
	return true
}

func (q *quota) give(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[key]--; q.of[key] == 0 {
		delete(q.of, key)
	}
}

// subscriptions are the resources of one server that peers want to hear of. It
// is safe for concurrent use.
type subscriptions struct {
	server *server
	quota  *quota
	life   context.Context // ends when the pool does
	wg     sync.WaitGroup

	mu sync.Mutex
	of map[string]*subscriber // by key
}

// subscriber is what one key is subscribed to. One goroutine keeps it in place.
type subscriber struct {
	*subscriptions
	key  string
	life context.Context
	end  context.CancelFunc
	wake chan struct{} // holds one: wants has changed

	// Guarded by subscriptions.mu:
	peer  Peer // that subscribed last
	wants map[string]*want
}

// want is one resource of a subscriber.
type want struct {
	uri     string
	on      *entry        // where the server was asked; nil is nowhere yet; guarded by subscriptions.mu
	settled chan struct{} // closed when m or err is set
	m       *mcp.Message
	err     error
}

func (w *want) isSettled() bool { return isClosed(w.settled) }

// settle reports whether it did. It is for a caller that holds mu.
func (w *want) settle(m *mcp.Message, err error) bool {
	if w.isSettled() {
		return false
	}
	w.m, w.err = m, err
	close(w.settled)
	return true
}

// subscribe wants a resource, and waits for what becomes of that the first
// time.
func (s *subscriptions) subscribe(ctx context.Context, peer Peer, uri string) (*mcp.Message, error) {
	sub, w := s.add(peer, uri)
	if w == nil {
		return errorAnswer(mcp.CodeTooManyRequests, "too many subscriptions"), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.server.config.CallTimeout)
	defer cancel()
	select {
	case <-w.settled:
	case <-ctx.Done():
		sub.settle(w, nil, ctx.Err())
	}
	if w.err != nil {
		return nil, s.server.failure(ctx, w.err)
	}
	s.server.breaker.worked()
	return withID(w.m, mcp.ID{}), nil // each caller has its own
}

// add returns the want, nil where there are too many.
func (s *subscriptions) add(peer Peer, uri string) (*subscriber, *want) {
	key := peer.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.of[key]
	if sub != nil && sub.wants[uri] != nil {
		sub.peer = peer
		return sub, sub.wants[uri]
	}
	if !s.quota.take(key) {
		return nil, nil
	}
	if sub == nil {
		sub = &subscriber{subscriptions: s, key: key, wants: map[string]*want{}, wake: make(chan struct{}, 1)}
		sub.life, sub.end = context.WithCancel(s.life)
		s.of[key] = sub
		s.wg.Go(sub.keep)
	}
	sub.peer = peer
	w := &want{uri: uri, settled: make(chan struct{})}
	sub.wants[uri] = w
	sub.stir()
	return sub, w
}

// stir has the keeper look at the wants again.
func (sub *subscriber) stir() {
	select {
	case sub.wake <- struct{}{}:
	default:
	}
}

// settle says what became of a want the first time; what comes later changes
// nothing. One that failed is wanted no longer.
func (sub *subscriber) settle(w *want, m *mcp.Message, err error) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if w.settle(m, err) && (err != nil || m.Error != nil) {
		sub.forget(w)
	}
}

// forget is for a caller that holds mu.
func (sub *subscriber) forget(w *want) {
	if sub.wants[w.uri] != w {
		return
	}
	delete(sub.wants, w.uri)
	sub.quota.give(sub.key)
	sub.stir()
}

// unsubscribe ends a want, and tells a legacy server unless somebody else
// wants the same of the process that they share.
func (s *subscriptions) unsubscribe(ctx context.Context, key, uri string) error {
	e := s.remove(key, uri)
	if e == nil || !s.server.links.hold(e) {
		return nil
	}
	defer s.server.links.give(e)
	ctx, cancel := context.WithTimeout(ctx, s.server.config.CallTimeout)
	defer cancel()
	if _, err := s.server.over(ctx, e, request{method: unsubscribe, params: uriParams(uri)}); err != nil && !errors.Is(err, errStale) {
		return s.server.failure(ctx, err)
	}
	return nil
}

// remove forgets a want and returns the entry whose server is to be told.
func (s *subscriptions) remove(key, uri string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.of[key]
	if sub == nil || sub.wants[uri] == nil {
		return nil
	}
	w := sub.wants[uri]
	sub.forget(w)
	w.settle(nil, context.Canceled)
	if w.on == nil || w.on.link.hello().era != mcp.Legacy {
		return nil
	}
	if s.isWanted(uri, w.on) {
		return nil
	}
	return w.on
}

// isWanted reports whether somebody wants a resource over the entry. It is for
// a caller that holds mu.
func (s *subscriptions) isWanted(uri string, e *entry) bool {
	for _, sub := range s.of {
		if w := sub.wants[uri]; w != nil && w.on == e {
			return true
		}
	}
	return false
}

// release ends all of a key, without waiting.
func (s *subscriptions) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.of[key]; sub != nil {
		sub.clear()
	}
}

// clear takes the subscriber out of use with all that it wants. It is for a
// caller that holds mu.
func (sub *subscriber) clear() {
	sub.end()
	for _, w := range sub.wants {
		sub.forget(w)
		w.settle(nil, context.Canceled)
	}
	if sub.of[sub.key] == sub {
		delete(sub.of, sub.key)
	}
}

// keep has the server asked for what is wanted, again and again where that is
// lost, until nothing is wanted any more.
func (sub *subscriber) keep() {
	o := sub.server.options
	wait := backoff{least: o.RetryMin, most: min(o.RetryMax, 10*time.Second)}
	defer sub.finish()
	for again := false; ; again = true {
		began := time.Now()
		err := sub.attempt()
		if sub.life.Err() != nil || sub.isIdle() {
			return
		}
		if time.Since(began) > wait.most {
			wait.reset()
			again = false
		}
		if errors.Is(err, errStale) && !again {
			continue // the first time there is nothing to wait for
		}
		sub.fail(err)
		if within(sub.life.Done(), wait.next()) {
			return
		}
	}
}

// attempt keeps what is wanted in place for as long as one link lasts.
func (sub *subscriber) attempt() error {
	e, err := sub.server.take(sub.life, sub.who())
	if err != nil {
		return err
	}
	defer sub.server.links.give(e)
	if e.link.hello().era == mcp.Modern {
		return sub.listen(e)
	}
	return sub.place(e)
}

func (sub *subscriber) who() Peer {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.peer
}

// isIdle reports whether nothing is wanted, and takes the subscriber out of
// use if so.
func (sub *subscriber) isIdle() bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if len(sub.wants) > 0 {
		return false
	}
	if sub.of[sub.key] == sub {
		delete(sub.of, sub.key)
	}
	return true
}

// fail settles what was not in place yet.
func (sub *subscriber) fail(err error) {
	if errors.Is(err, errStale) {
		err = unavailable("a new session was gone at once")
	}
	for _, w := range sub.list() {
		sub.settle(w, nil, err)
	}
}

// finish leaves nothing behind.
func (sub *subscriber) finish() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.clear()
}

// list returns what is wanted.
func (sub *subscriber) list() (list []*want) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, w := range sub.wants {
		list = append(list, w)
	}
	return list
}

func uriParams(uri string) jsontext.Value {
	return append(mcp.AppendString([]byte(`{"uri":`), uri), '}')
}

// crowd is the peer of a link that belongs to no peer alone: it is told of no
// capabilities, is not asked, and hands on what a subscription says to those
// who have it.
type crowd struct{ subs *subscriptions }

// onlooker is the peer of the gateway's own link, by which it learns what there
// is. It is told of what any client might be, and answers nothing.
type onlooker struct{ *crowd }

// Notify drops what peers hear over links of their own.
func (o onlooker) Notify(string, *mcp.Message) {}

func (c *crowd) Key() string                  { return "" }
func (c *crowd) Era() mcp.Era                 { return mcp.Legacy }
func (c *crowd) Capabilities() jsontext.Value { return nil }
func (c *crowd) Subject() Subject             { return credentials.Gateway() }

func (c *crowd) Ask(_ context.Context, _ string, m *mcp.Message) *mcp.Message { return reply(m) }

func (c *crowd) Notify(server string, m *mcp.Message) {
	members, err := mcp.Split(m.Params)
	if m.Method != updated || err != nil {
		return
	}
	uri, _ := mcp.Text(mcp.Get(members, "uri"))
	for _, peer := range c.subs.interested(uri) {
		peer.Notify(server, m)
	}
}

// interested returns the peers that want to hear of a resource. The server may
// name a part of the one that they subscribed to.
func (s *subscriptions) interested(uri string) (peers []Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.of {
		for wanted := range sub.wants {
			if strings.HasPrefix(uri, wanted) {
				peers = append(peers, sub.peer)
				break
			}
		}
	}
	return peers
}
