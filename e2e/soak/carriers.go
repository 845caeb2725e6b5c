package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// stream writes server-sent events, beginning with the first.
type stream struct {
	w  http.ResponseWriter
	mu sync.Mutex
	on bool
}

func (s *stream) send(data []byte) error { return s.event("", data) }

func (s *stream) event(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	var b bytes.Buffer
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

func (s *stream) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	_ = http.NewResponseController(s.w).Flush() // who has gone needs no head
}

func (s *stream) begin() {
	if !s.on {
		s.on = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.WriteHeader(http.StatusOK)
	}
}

// end ends the response to a call as the server wants it.
func (s *stream) end(e ending) {
	switch {
	case e == done:
	case e == refuse && !s.on:
		http.Error(s.w, poison, http.StatusInternalServerError)
	default:
		panic(http.ErrAbortHandler)
	}
}

// flow sends what belongs to no call until the visitor or the connection ends.
func (s *stream) flow(ctx context.Context, v *visitor) {
	for {
		select {
		case m := <-v.out:
			if s.send(m) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-v.gone:
			return
		}
	}
}

func receive(r *http.Request) (m message, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return m, false
	}
	return m, json.Unmarshal(body, &m) == nil
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer may have gone
}

// legacyHTTP is a server of 2025-11-25 over Streamable HTTP, with sessions.
type legacyHTTP struct{ *place }

func (p legacyHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")
	v := p.find(id)
	if r.Method == http.MethodPost {
		p.post(w, r, v)
		return
	}
	switch {
	case v == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodGet:
		s := &stream{w: w}
		s.open()
		s.flow(r.Context(), v)
	case r.Method == http.MethodDelete:
		p.drop(id)
	}
}

func (p legacyHTTP) post(w http.ResponseWriter, r *http.Request, v *visitor) {
	m, ok := receive(r)
	switch {
	case !ok:
		http.Error(w, "no JSON", http.StatusBadRequest)
	case m.Method == "initialize":
		id, v := rand.Text(), newVisitor()
		hello := p.greet(v, m, "2025-11-25")
		p.add(id, v)
		w.Header().Set("Mcp-Session-Id", id)
		writeJSON(w, http.StatusOK, hello)
	case v == nil && r.Header.Get("Mcp-Session-Id") == "":
		http.Error(w, "no session", http.StatusBadRequest)
	case v == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case m.isResponse():
		v.answered(m)
		w.WriteHeader(http.StatusAccepted)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "tools/call":
		s := &stream{w: w}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		t := turn{ctx: ctx, id: m.ID, params: read(m.Params), send: s.send}
		if v.elicits.Load() {
			t.ask = func(mark string) (message, bool) { return v.ask(ctx, "elicitation/create", wish(mark), s.send) }
		}
		s.end(p.carry(v, t))
	default:
		writeJSON(w, http.StatusOK, p.say(v, m))
	}
}

// modernHTTP is a server of 2026-07-28: each request stands alone.
type modernHTTP struct{ *place }

func (p modernHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	m, ok := receive(r)
	params := read(m.Params)
	switch {
	case !ok:
		http.Error(w, "no JSON", http.StatusBadRequest)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover":
		writeJSON(w, http.StatusOK, result(m.ID, object{
			"resultType": "complete", "supportedVersions": []string{"2026-07-28"}, "ttlMs": 0, "cacheScope": "public",
			"capabilities": object{"tools": object{}, "resources": object{"subscribe": true}, "logging": object{}},
		}))
	case m.Method == "subscriptions/listen":
		p.listen(w, r, m)
	case m.Method == "tools/call":
		p.call(w, r, m, params)
	default:
		if o := p.lists(m.Method, params); o != nil {
			writeJSON(w, http.StatusOK, result(m.ID, o))
			return
		}
		writeJSON(w, http.StatusNotFound, refusal(m.ID, -32601, "Method not found"))
	}
}

// listen keeps a visitor as long as the request lives.
func (p modernHTTP) listen(w http.ResponseWriter, r *http.Request, m message) {
	v, id := newVisitor(), rand.Text()
	meta := object{"io.modelcontextprotocol/subscriptionId": m.ID}
	uris := read(m.Params).Notifications.Resources
	s := &stream{w: w}
	_ = s.send(notification("notifications/subscriptions/acknowledged", object{
		"_meta": meta, "notifications": object{"resourceSubscriptions": uris},
	}))
	v.mu.Lock()
	for _, uri := range uris {
		v.watched[uri] = true
	}
	v.mu.Unlock()
	p.add(id, v)
	defer p.drop(id)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-v.gone:
			return
		case raw := <-v.out:
			var n message
			_ = json.Unmarshal(raw, &n) // our own
			var o object
			_ = json.Unmarshal(n.Params, &o)
			o["_meta"] = meta
			if s.send(notification(n.Method, o)) != nil {
				return
			}
		}
	}
}

func (p modernHTTP) call(w http.ResponseWriter, r *http.Request, m message, params told) {
	mark, s := params.Arguments.Mark, &stream{w: w}
	if params.InputResponses != nil || params.RequestState != "" {
		got := elicited(params.InputResponses["mark"])
		answer := object{"mark": mark, "server": p.name, "owner": owner(mark), "asked": got}
		if got != mark || params.RequestState != "state of "+mark {
			answer["mark"] = "asked for " + mark + ", the answer was " + got + " with the state " + params.RequestState
		}
		writeJSON(w, http.StatusOK, result(m.ID, complete(answer)))
		return
	}
	if p.asks(m.Params) && p.dice.below(10) == 0 {
		writeJSON(w, http.StatusOK, result(m.ID, object{
			"resultType": "input_required", "requestState": "state of " + mark,
			"inputRequests": object{"mark": object{"method": "elicitation/create", "params": wish(mark)}},
		}))
		return
	}
	s.end(p.carry(newVisitor(), turn{ctx: r.Context(), id: m.ID, params: params, send: s.send}))
}

// asks reports whether the client says that it can be asked.
func (p modernHTTP) asks(params json.RawMessage) bool {
	var o struct {
		Meta struct {
			Capabilities struct {
				Elicitation json.RawMessage `json:"elicitation"`
			} `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	}
	return json.Unmarshal(params, &o) == nil && o.Meta.Capabilities.Elicitation != nil
}
