package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const legacyVersion = "2025-11-25"

// sitting is one legacy-era session of a client.
type sitting struct {
	*client
	id   string
	over atomic.Bool // it has been given up, so that it may be unknown
	lost atomic.Bool // the gateway says that it is unknown
	life context.Context
	end  context.CancelFunc
	// beside is everything but the session's own requests.
	beside sync.WaitGroup
}

// liveLegacy opens one session after the other until life ends.
func (c *client) liveLegacy(life context.Context) {
	for life.Err() == nil {
		s := c.sit()
		if s == nil {
			c.rest(life)
			continue
		}
		c.crowd.legacy.Add(1)
		s.beside.Go(s.standing)
		s.work(life)
		s.over.Store(true)
		// One in five goes without a word, where the run is long enough to see
		// that it is missed.
		if c.crowd.polite || life.Err() != nil || c.dice.below(5) > 0 {
			s.leave()
		} else {
			c.crowd.count("legacy session: left behind")
		}
		c.crowd.legacy.Add(-1)
		s.end()
		s.beside.Wait()
	}
}

// sit opens a session; nil where that failed.
func (c *client) sit() *sitting {
	ctx, cancel := context.WithTimeout(context.Background(), c.crowd.patience)
	defer cancel()
	id := c.nextID()
	m := request(id, "initialize", object{
		"protocolVersion": legacyVersion, "clientInfo": object{"name": "soak", "version": "1"},
		"capabilities": object{"elicitation": object{}},
	})
	r := c.do(ctx, http.MethodPost, &m, nil, func(m message) { c.fault("initialize: told %s", encode(m)) })
	if !c.ended("legacy initialize", id, r) {
		return nil
	}
	if r.session == "" {
		c.fault("legacy initialize: no session")
		return nil
	}
	s := &sitting{client: c, id: r.session}
	s.life, s.end = context.WithCancel(context.Background())
	s.post(ctx, message{JSONRPC: "2.0", Method: "notifications/initialized"})
	c.crowd.count("legacy session: begun")
	return s
}

// work makes requests until life ends or the session has been enough.
func (s *sitting) work(life context.Context) {
	uri := func() string { return "note://" + s.server() + "/" + s.name }
	plain := func(method string, params object) { s.plain(method, "", params) }
	stay := true
	actions := []chance[func()]{
		{66, s.call}, {5, func() { s.twice(s.call) }}, {4, s.cancelled}, {4, s.abandoned},
		{5, func() { plain("tools/list", object{}) }},
		{4, func() { u := uri(); s.plain("resources/read", u, object{"uri": u}) }},
		{5, func() { plain("resources/subscribe", object{"uri": uri()}) }},
		{2, func() { plain("resources/unsubscribe", object{"uri": uri()}) }},
		{2, func() { plain("ping", object{}) }}, {1, func() { plain("logging/setLevel", object{"level": "debug"}) }},
		{2, func() { stay = false }},
	}
	for ; life.Err() == nil && stay && !s.lost.Load(); s.rest(life) {
		pick(s.dice, actions)()
	}
}

// known reports whether the session is one still. It has to be, until it is
// given up: clients of the legacy era seldom begin again.
func (s *sitting) known(r reply) bool {
	if r.status != http.StatusNotFound {
		return true
	}
	if !s.over.Load() && !s.lost.Swap(true) {
		s.fault("the session is unknown: %s", encode(r.final))
	}
	return false
}

func (s *sitting) headers() map[string]string {
	return map[string]string{"Mcp-Session-Id": s.id, "MCP-Protocol-Version": legacyVersion}
}

// post sends what has no answer.
func (s *sitting) post(ctx context.Context, m message) {
	r := s.do(ctx, http.MethodPost, &m, s.headers(), func(message) {})
	if (r.err != nil || r.status != http.StatusAccepted) && !s.over.Load() {
		s.fault("posting %s: status %d, %v", encode(m), r.status, r.err)
	}
}

// leave ends the session, twice: the second time it must be unknown.
func (s *sitting) leave() {
	for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		ctx, cancel := context.WithTimeout(context.Background(), s.crowd.patience)
		r := s.do(ctx, http.MethodDelete, nil, s.headers(), func(message) {})
		cancel()
		if r.status != want {
			s.fault("DELETE: status %d, want %d: %v", r.status, want, r.err)
		}
	}
	s.crowd.count("legacy session: ended")
}

func (s *sitting) call() {
	const what = "legacy call"
	id, server := s.nextID(), s.server()
	ctx, cancel := context.WithTimeout(context.Background(), s.crowd.patience)
	defer cancel()
	s.judged(what, id, server, s.send(ctx, what, id, server))
}

// send sends a call and serves what the server asks meanwhile.
func (s *sitting) send(ctx context.Context, what string, id int64, server string) reply {
	mark := s.mark(id)
	m := request(id, "tools/call", object{
		"name": server + "__" + tool, "arguments": object{"mark": mark}, "_meta": object{"progressToken": id},
	})
	return s.do(ctx, http.MethodPost, &m, s.headers(), func(m message) {
		if m.isRequest() {
			s.asked(what, mark, server, m)
			return
		}
		if m.Method == "notifications/cancelled" {
			s.crowd.count("a server's request was taken back")
			return
		}
		s.during(what, mark, server, id, m)
	})
}

func (s *sitting) judged(what string, id int64, server string, r reply) {
	if !s.known(r) || !s.ended(what, id, r) {
		return
	}
	var a answer
	if err := json.Unmarshal(r.final.Result, &a); err != nil {
		s.fault("%s: %v: %s", what, err, clip(r.final.Result))
		return
	}
	s.right(what, s.mark(id), server, a)
}

// asked answers an elicitation. mark and server are those of the call on whose
// stream it came, or empty.
func (s *sitting) asked(what, mark, server string, m message) {
	got := read(m.Params).Message
	if m.Method != "elicitation/create" || !s.mine(what, got) || binds(server) && got != mark {
		s.fault("%s %s at %s: asked for what is not its own: %s", what, mark, server, encode(m))
	}
	s.crowd.count("elicitation")
	reply := message{JSONRPC: "2.0", ID: m.ID, Result: encode(object{"action": "accept", "content": object{"mark": got}})}
	s.beside.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.crowd.patience)
		defer cancel()
		s.post(ctx, reply)
	})
}

// cancelled takes a call back by a notification. The answer may come first.
func (s *sitting) cancelled() {
	const what = "legacy call, cancelled"
	id, server := s.nextID(), s.server()
	ctx, cancel := context.WithTimeout(context.Background(), s.crowd.patience)
	wait := s.dice.between(time.Millisecond, 300*time.Millisecond)
	var posted sync.WaitGroup
	posted.Go(func() {
		time.Sleep(wait)
		s.post(ctx, message{JSONRPC: "2.0", Method: "notifications/cancelled", Params: encode(object{"requestId": id})})
	})
	s.judged(what, id, server, s.send(ctx, what, id, server))
	posted.Wait()
	cancel()
}

// abandoned loses the connection of a call and takes its stream up again.
func (s *sitting) abandoned() {
	const what = "legacy call, connection lost"
	id, server := s.nextID(), s.server()
	ctx, cancel := context.WithTimeout(context.Background(), s.dice.between(time.Millisecond, 600*time.Millisecond))
	r := s.send(ctx, what, id, server)
	cancel()
	switch {
	case r.final != nil:
		s.judged(what, id, server, r)
		return
	case r.lastID == "":
		s.crowd.count(what + ": before its stream began")
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), s.crowd.patience)
	defer cancel()
	h := s.headers()
	h["Last-Event-ID"] = r.lastID
	r = s.do(ctx, http.MethodGet, nil, h, func(m message) {
		if m.isRequest() {
			s.asked(what, s.mark(id), server, m)
			return
		}
		if m.Method != "notifications/cancelled" {
			s.during(what, s.mark(id), server, id, m)
		}
	})
	s.judged(what+", resumed", id, server, r)
}

func (s *sitting) plain(method, uri string, params object) {
	id := s.nextID()
	ctx, cancel := context.WithTimeout(context.Background(), s.crowd.patience)
	defer cancel()
	m := request(id, method, params)
	r := s.do(ctx, http.MethodPost, &m, s.headers(), func(m message) {
		if m.isRequest() {
			s.asked(method, "", "", m)
		}
	})
	if s.known(r) && s.ended("legacy "+method, id, r) {
		s.plainly("legacy "+method, uri, r.final.Result)
	}
}

// standing keeps the session's own stream open until the session ends, anew now
// and then.
func (s *sitting) standing() {
	h := s.headers()
	for s.life.Err() == nil {
		ctx, cancel := context.WithTimeout(s.life, s.dice.between(3*time.Second, 40*time.Second))
		r := s.do(ctx, http.MethodGet, nil, h, s.heard)
		cancel()
		// Where something was told before, the stream goes on after that.
		if delete(h, "Last-Event-ID"); r.lastID != "" {
			h["Last-Event-ID"] = r.lastID
		}
		switch {
		case r.final != nil && r.status == http.StatusOK:
			s.fault("an answer on the session's own stream: %s", encode(r.final))
		case !s.known(r):
			return
		case r.status != http.StatusOK && r.status != 0 && !s.over.Load():
			s.fault("GET: status %d", r.status)
		default:
			s.crowd.count("legacy stream: ended")
		}
		s.rest(s.life)
	}
}

// heard judges what comes on the session's own stream.
func (s *sitting) heard(m message) {
	p := read(m.Params)
	switch {
	case m.isRequest():
		s.asked("legacy stream", "", "", m)
	case m.Method == "notifications/resources/updated":
		s.updated("legacy", p.URI)
	case m.Method == "notifications/message" && s.mine("legacy", p.Data):
		s.crowd.count("log message of the session")
	case m.Method == "notifications/tools/list_changed", m.Method == "notifications/resources/list_changed", m.Method == "notifications/cancelled":
		s.crowd.count("legacy stream: " + m.Method)
	default:
		s.fault("on the session's own stream: %s", encode(m))
	}
}
