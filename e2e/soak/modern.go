package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const modernVersion = "2026-07-28"

// live makes requests of the modern era until life ends, with a listening
// stream beside.
func (c *client) liveModern(life context.Context) {
	var beside sync.WaitGroup
	beside.Go(func() { c.listening(life) })
	defer beside.Wait()
	actions := []chance[func()]{
		{70, func() { c.modernCall(0) }},
		{5, func() { c.twice(func() { c.modernCall(0) }) }},
		{5, func() { c.modernCall(c.dice.between(time.Millisecond, 400*time.Millisecond)) }},
		{6, func() { c.modernPlain("server/discover", "", object{}) }},
		{6, func() { c.modernPlain("tools/list", "", object{}) }},
		{8, func() {
			uri := "note://" + c.server() + "/" + c.name
			c.modernPlain("resources/read", uri, object{"uri": uri})
		}},
	}
	for ; life.Err() == nil; c.rest(life) {
		pick(c.dice, actions)()
	}
}

// twice does something twice at once.
func (c *client) twice(f func()) {
	var both sync.WaitGroup
	both.Go(f)
	both.Go(f)
	both.Wait()
}

func modernHeaders(method, name string) map[string]string {
	h := map[string]string{"MCP-Protocol-Version": modernVersion, "Mcp-Method": method}
	if name != "" {
		h["Mcp-Name"] = name
	}
	return h
}

func (c *client) modernMeta(id int64) object {
	return object{
		"progressToken": id, "io.modelcontextprotocol/protocolVersion": modernVersion,
		"io.modelcontextprotocol/clientCapabilities": object{"elicitation": object{}},
		"io.modelcontextprotocol/clientInfo":         object{"name": "soak", "version": "1"},
		"io.modelcontextprotocol/logLevel":           "debug",
	}
}

// modernCall calls a tool and gives it whatever it asks for. With leave it goes
// away after that time.
func (c *client) modernCall(leave time.Duration) {
	const what, rounds = "modern call", 4
	server, id := c.server(), c.nextID()
	mark := c.mark(id)
	params := object{"name": server + "__" + tool, "arguments": object{"mark": mark}, "_meta": c.modernMeta(id)}
	patience := c.crowd.patience
	if leave > 0 {
		patience = leave
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range rounds {
		m := request(id, "tools/call", params)
		r := c.do(ctx, http.MethodPost, &m, modernHeaders("tools/call", server+"__"+tool),
			func(m message) { c.during(what, mark, server, id, m) })
		if leave > 0 && ctx.Err() != nil {
			c.crowd.count(what + ": left")
			return
		}
		if !c.ended(what, id, r) {
			return
		}
		var a answer
		if err := json.Unmarshal(r.final.Result, &a); err != nil {
			c.fault("%s: %v: %s", what, err, clip(r.final.Result))
			return
		}
		if a.ResultType != "input_required" {
			if a.ResultType != "complete" {
				c.fault("%s: a result of type %q", what, a.ResultType)
			}
			c.right(what, mark, server, a)
			return
		}
		params["inputResponses"] = c.respond(what, mark, server, a)
		params["requestState"] = a.RequestState
		if a.RequestState == "" {
			delete(params, "requestState")
		}
	}
	c.fault("%s %s at %s: asked for input %d times", what, mark, server, rounds)
}

// respond answers what a result asks for.
func (c *client) respond(what, mark, server string, a answer) object {
	responses := object{}
	for key, m := range a.InputRequests {
		asked := read(m.Params).Message
		if m.Method != "elicitation/create" || asked != mark && (binds(server) || !c.mine(what, asked)) {
			c.fault("%s %s at %s: asked for what is not its own: %s", what, mark, server, encode(m))
		}
		responses[key] = object{"action": "accept", "content": object{"mark": asked}}
	}
	c.crowd.count(what + ": input_required")
	return responses
}

// modernPlain is a request without anything special.
func (c *client) modernPlain(method, name string, params object) {
	id := c.nextID()
	params["_meta"] = c.modernMeta(id)
	ctx, cancel := context.WithTimeout(context.Background(), c.crowd.patience)
	defer cancel()
	m := request(id, method, params)
	r := c.do(ctx, http.MethodPost, &m, modernHeaders(method, name), func(m message) {
		// What a server says beside may be taken for part of the request.
		if m.Method != "notifications/message" || !c.mine("modern", read(m.Params).Data) {
			c.fault("%s: told what is not its own: %s", method, encode(m))
		}
		c.crowd.count("log message of the same principal, beside another request")
	})
	if c.ended("modern "+method, id, r) {
		c.plainly("modern "+method, name, r.final.Result)
	}
}

// plainly judges the result of a list or of a resource.
func (c *client) plainly(what, uri string, result json.RawMessage) {
	var r struct {
		Tools    []json.RawMessage `json:"tools"`
		Contents []struct{ URI, Text string }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		c.fault("%s: %v: %s", what, err, clip(result))
		return
	}
	switch {
	case r.Tools != nil && len(r.Tools) != len(c.crowd.servers):
		c.fault("%s: %d tools, not %d: %s", what, len(r.Tools), len(c.crowd.servers), result)
	case uri != "" && (len(r.Contents) != 1 || r.Contents[0].URI != uri || r.Contents[0].Text != uri):
		c.fault("%s %s: WRONG ANSWER %s", what, uri, clip(result))
	default:
		c.crowd.count(what + ": answer")
	}
}

// listening keeps subscriptions/listen open until life ends, anew now and then.
func (c *client) listening(life context.Context) {
	for life.Err() == nil {
		ctx, cancel := context.WithTimeout(life, c.dice.between(5*time.Second, 60*time.Second))
		id := c.nextID()
		uris := []string{}
		for _, s := range c.crowd.servers {
			if c.dice.below(3) == 0 {
				uris = append(uris, "note://"+s+"/"+c.name)
			}
		}
		m := request(id, "subscriptions/listen", object{"_meta": c.modernMeta(id), "notifications": object{
			"toolsListChanged": true, "resourceSubscriptions": uris,
		}})
		r := c.do(ctx, http.MethodPost, &m, modernHeaders("subscriptions/listen", ""), func(m message) { c.heard(id, m) })
		cancel()
		switch {
		case r.final != nil:
			c.ended("modern listen", id, r)
		case r.status != 0 && r.status != http.StatusOK:
			c.fault("modern listen: status %d", r.status)
		default:
			c.crowd.count("modern listen: ended")
		}
		c.rest(life)
	}
}

// heard judges what comes on a listening stream.
func (c *client) heard(id int64, m message) {
	p := read(m.Params)
	if string(p.Meta.Subscription) != fmt.Sprint(id) {
		c.fault("modern listen: of another subscription: %s", encode(m))
		return
	}
	switch m.Method {
	case "notifications/subscriptions/acknowledged", "notifications/tools/list_changed":
		c.crowd.count(m.Method)
	case "notifications/resources/updated":
		c.updated("modern", p.URI)
	default:
		c.fault("modern listen: told %s", encode(m))
	}
}

func (c *client) updated(era, uri string) {
	for _, s := range c.crowd.servers {
		if uri == "note://"+s+"/"+c.name {
			c.crowd.count(era + ": resource update of " + s)
			return
		}
	}
	c.fault("%s: told of %s, which is not its own", era, uri)
}
