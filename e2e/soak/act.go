package main

import (
	"context"
	"encoding/json"
	"strconv"
	"time"
)

// act is how a server behaves in one call.
type act uint8

const (
	actAnswer act = iota
	actSlow
	actProgress
	actLog
	actAsk
	actError
	actGarbage
	actForeign // an answer to a request that nobody made comes first
	actStray   // progress of a request that nobody made comes first
	actTwice   // the same id is answered again, with poison
	actRefuse  // HTTP 500, where there is HTTP
	actCut     // the connection, or the process, ends in the middle
	actHang
)

var acts = []chance[act]{
	{500, actAnswer}, {100, actSlow}, {90, actProgress}, {50, actLog}, {90, actAsk}, {40, actError}, {20, actGarbage},
	{15, actForeign}, {15, actStray}, {15, actTwice}, {15, actRefuse}, {15, actCut}, {8, actHang},
}

var calmActs = []chance[act]{{6, actAnswer}, {1, actSlow}, {1, actProgress}, {1, actLog}, {1, actAsk}}

// turn is one call at a server.
type turn struct {
	ctx    context.Context // ends when the caller has gone
	id     json.RawMessage
	params told
	send   func([]byte) error // on what carries the answer
	// ask asks the client during the call; nil where the era has no such thing.
	ask func(mark string) (message, bool)
}

// ending is how the carrier ends a call.
type ending uint8

const (
	done   ending = iota // everything has been sent
	refuse               // with an HTTP error, if nothing was sent
	cut                  // abruptly
)

// carry answers one call.
func (p *place) carry(v *visitor, t turn) ending {
	all := acts
	if p.calm.Load() {
		all = calmActs
	}
	mark := t.params.Arguments.Mark
	answer := object{"mark": mark, "server": p.name, "owner": v.owned(mark)}
	right := result(t.id, complete(answer))
	switch a := pick(p.dice, all); a {
	case actSlow:
		t.pause(p.dice.between(50*time.Millisecond, 900*time.Millisecond))
	case actProgress, actLog:
		p.tell(t, a)
	case actAsk:
		p.inquire(t, answer)
		right = result(t.id, complete(answer))
	case actError:
		right = refusal(t.id, 4711, mark)
	case actGarbage:
		right = []byte(`{"jsonrpc":"2.0","id":` + string(t.id) + `,"result":{"mark":"` + poison)
	case actForeign:
		_ = t.send(result(encode(1_000_000_000+p.dice.below(1000)), complete(object{"mark": poison})))
	case actStray:
		_ = t.send(notification("notifications/progress", object{"progressToken": poison, "progress": 1, "message": poison}))
	case actTwice:
		_ = t.send(right)
		right = result(t.id, complete(object{"mark": poison}))
	case actRefuse:
		return refuse
	case actCut:
		t.pause(p.dice.between(0, 200*time.Millisecond))
		return cut
	case actHang:
		<-t.ctx.Done()
		return cut
	}
	_ = t.send(right) // the caller may have gone
	return done
}

func complete(v object) object {
	text := string(encode(v))
	return object{"content": []object{{"type": "text", "text": text}}, "structuredContent": v, "resultType": "complete"}
}

func (t turn) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
	}
}

// tell sends notifications that belong to the call before its answer.
func (p *place) tell(t turn, a act) {
	mark := t.params.Arguments.Mark
	for i := range 1 + p.dice.below(3) {
		n := notification("notifications/message", object{"level": "error", "logger": "call", "data": mark})
		if a == actProgress {
			if t.params.Meta.Token == nil {
				return
			}
			n = notification("notifications/progress", object{"progressToken": t.params.Meta.Token, "progress": i + 1, "message": mark})
		}
		_ = t.send(n)
		t.pause(p.dice.between(0, 50*time.Millisecond))
	}
}

// inquire asks the client for its mark, and writes down any other.
func (p *place) inquire(t turn, answer object) {
	mark := t.params.Arguments.Mark
	if t.ask == nil {
		return
	}
	m, ok := t.ask(mark)
	switch {
	case !ok:
		answer["asked"] = "no answer"
	case m.Error != nil:
		answer["asked"] = "error " + strconv.Itoa(m.Error.Code)
	default:
		answer["asked"] = elicited(m.Result)
		if answer["asked"] != mark {
			answer["mark"] = "asked for " + mark + ", the answer was " + string(m.Result)
		}
	}
}

// elicited is the mark in the result of an elicitation.
func elicited(result json.RawMessage) string {
	var r struct {
		Content struct {
			Mark string `json:"mark"`
		} `json:"content"`
	}
	_ = json.Unmarshal(result, &r)
	return r.Content.Mark
}

// wish is what an elicitation asks for.
func wish(mark string) object {
	return object{"message": mark, "requestedSchema": object{
		"type": "object", "properties": object{"mark": object{"type": "string"}}, "required": []string{"mark"},
	}}
}

// say answers everything of the legacy era but initialize and calls.
func (p *place) say(v *visitor, m message) []byte {
	params := read(m.Params)
	switch m.Method {
	case "resources/subscribe", "resources/unsubscribe":
		v.mu.Lock()
		defer v.mu.Unlock()
		if m.Method == "resources/subscribe" {
			v.watched[params.URI] = true
		} else {
			delete(v.watched, params.URI)
		}
		return result(m.ID, object{})
	case "ping", "logging/setLevel":
		return result(m.ID, object{})
	}
	if r := p.lists(m.Method, params); r != nil {
		return result(m.ID, r)
	}
	return refusal(m.ID, -32601, "Method not found")
}

// lists answers what both eras have, nil for anything else.
func (p *place) lists(method string, params told) object {
	fresh := func(o object) object {
		o["resultType"], o["ttlMs"], o["cacheScope"] = "complete", 0, "public"
		return o
	}
	schema := object{"type": "object", "properties": object{"mark": object{"type": "string"}}}
	switch method {
	case "tools/list":
		return fresh(object{"tools": []object{{"name": tool, "description": "Gives the mark back.", "inputSchema": schema}}})
	case "resources/list":
		return fresh(object{"resources": []object{{"name": "all", "uri": p.uri("all")}}})
	case "resources/templates/list":
		return fresh(object{"resourceTemplates": []object{{"name": "mine", "uriTemplate": p.uri("{owner}")}}})
	case "resources/read":
		return fresh(object{"contents": []object{{"uri": params.URI, "text": params.URI}}})
	}
	return nil
}

func (p *place) uri(owner string) string { return "note://" + p.name + "/" + owner }

// greet answers initialize.
func (p *place) greet(v *visitor, m message, version string) []byte {
	v.elicits.Store(read(m.Params).Capabilities.Elicitation != nil)
	return result(m.ID, object{
		"protocolVersion": version, "serverInfo": object{"name": p.name, "version": "1"},
		"capabilities": object{"tools": object{}, "resources": object{"subscribe": true}, "logging": object{}},
	})
}
