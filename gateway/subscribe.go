package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/upstream"
)

// subscribe answers resources/subscribe. The session remembers it, so that a
// replica that takes the session up can subscribe anew.
func (x *exchange) subscribe() *fault {
	params, err := mcp.ReadURI(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	t, ok := x.choose(now, mcp.MethodSubscribe, x.located(now, params.URI))
	if !ok {
		return x.unknownResource(params.URI)
	}
	ctx, end := x.callContext()
	defer end()
	from := time.Now()
	x.talk.subscribes(session.Subscription{Server: t.server, URI: params.URI}) // its updates may come first
	answer, e := x.g.pool.Subscribe(ctx, t.server, x.talk, params.URI)
	measure(&x.stages.upstream, from)
	x.g.answeredBy(t.server, from, answer, e)
	if e != nil || answer.Error != nil {
		x.talk.unsubscribes(params.URI)
	}
	if e != nil {
		return x.backendFault(ctx, t.server, e)
	}
	if x.talk.isOver() { // meanwhile: nothing of it must stay
		x.g.pool.Release(x.talk.Key())
		return faultSession(session.ErrUnknown)
	}
	if answer.Error == nil {
		added := session.Subscription{Server: t.server, URI: params.URI}
		err := x.talk.save(ctx, func(s *session.Session) {
			s.Subscriptions = append(dropSubscription(s.Subscriptions, params.URI), added)
		})
		if err != nil {
			x.talk.unsubscribes(params.URI)
			_ = x.g.pool.Unsubscribe(ctx, t.server, x.talk, params.URI)
			return faultSession(err)
		}
	}
	answer.ID = x.msg.ID
	x.replyAs(answer)
	return nil
}

// unsubscribe answers resources/unsubscribe. What the session has subscribed
// may always be given up, whatever the policy says of it by now; there is
// nothing else to give up, and nothing is told of it.
func (x *exchange) unsubscribe() *fault {
	params, err := mcp.ReadURI(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	ctx, end := x.callContext()
	defer end()
	for _, s := range x.session.Subscriptions {
		if s.URI != params.URI {
			continue
		}
		x.talk.unsubscribes(s.URI)
		if err := x.g.pool.Unsubscribe(ctx, s.Server, x.talk, s.URI); err != nil {
			return x.backendFault(ctx, s.Server, err)
		}
		err := x.talk.save(ctx, func(s *session.Session) { s.Subscriptions = dropSubscription(s.Subscriptions, params.URI) })
		if err != nil {
			return faultSession(err)
		}
	}
	return x.ping() // the empty result
}

func dropSubscription(list []session.Subscription, uri string) []session.Subscription {
	return slices.DeleteFunc(slices.Clone(list), func(s session.Subscription) bool { return s.URI == uri })
}

// save changes what the session remembers.
func (c *conversation) save(ctx context.Context, change func(*session.Session)) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	s, err := c.g.sessions.Use(ctx, c.session, c.owner)
	if err != nil {
		return err
	}
	change(&s)
	return c.g.sessions.Save(ctx, s)
}

// resubscribe has a session that another replica began hear of its resources
// from here. What cannot be subscribed to now is tried again for a while.
func (c *conversation) resubscribe(left []session.Subscription) {
	wait := time.Second
	for range resubscribeTries {
		left = slices.DeleteFunc(slices.Clone(left), c.resubscribed)
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-c.g.closing.Done():
			return
		}
	}
}

// resubscribeTries, each after twice the time, make about two minutes.
const resubscribeTries = 7

// resubscribed reports whether there is nothing more to do about a subscription.
func (c *conversation) resubscribed(s session.Subscription) bool {
	if c.isOver() {
		return true
	}
	j := c.latest()
	now, code := j.now()
	if code != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(c.g.closing, time.Minute)
	defer cancel()
	t := now.catalog.located(s.Server, s.URI)[0]
	if !t.known || !j.tells(ctx, mcp.MethodSubscribe, t) {
		return true
	}
	c.subscribes(s)
	_, err := c.g.pool.Subscribe(ctx, s.Server, c, s.URI)
	if c.isOver() {
		c.g.pool.Release(c.Key())
	}
	return err == nil
}

// setLevelWait bounds how long servers may take to hear of a level.
const setLevelWait = 2 * time.Second

// setLevel answers logging/setLevel. The session remembers the level, and each
// server is told with the next request to it; those with which the session has
// a conversation are told at once, where the policy lets them be.
func (x *exchange) setLevel() *fault {
	level, err := mcp.ReadSetLevel(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	ctx, end := x.callContext()
	defer end()
	if err := x.talk.save(ctx, func(s *session.Session) { s.LogLevel = level }); err != nil {
		return faultSession(err)
	}
	ctx, cancel := context.WithTimeout(ctx, setLevelWait)
	defer cancel()
	var telling sync.WaitGroup
	for _, server := range x.g.pool.Open(x.talk.Key()) {
		s := now.catalog.site(server)
		if s == nil || x.server != "" && x.server != server || !s.state.Has("logging", "") {
			continue
		}
		if t := s.target(); !x.allowed(now, mcp.MethodSetLevel, t) {
			continue
		}
		telling.Go(func() {
			// What a server answers, or does not, is no business of the client's.
			_, _ = x.g.pool.Do(ctx, upstream.Call{Server: server, Peer: x.talk, Subject: x.onBehalf(), Method: mcp.MethodSetLevel, Params: x.msg.Params})
		})
	}
	telling.Wait()
	return x.ping() // the empty result
}
