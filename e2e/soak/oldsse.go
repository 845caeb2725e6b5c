package main

import (
	"context"
	"crypto/rand"
	"net/http"
)

// oldSSE is a server of 2024-11-05: one stream for all answers, and messages
// are posted beside it.
type oldSSE struct{ *place }

func (p oldSSE) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/sse":
		id, v, s := rand.Text(), newVisitor(), &stream{w: w}
		p.add(id, v)
		defer p.drop(id)
		if s.event("endpoint", []byte("/messages?session="+id)) == nil {
			s.flow(r.Context(), v)
		}
	case r.Method == http.MethodPost && r.URL.Path == "/messages":
		p.post(w, r)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (p oldSSE) post(w http.ResponseWriter, r *http.Request) {
	v := p.find(r.URL.Query().Get("session"))
	m, ok := receive(r)
	if v == nil || !ok {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	p.take(v, m, v.sure, v.end)
}

// sure puts a message on the visitor's own stream and waits for room.
func (v *visitor) sure(m []byte) error {
	select {
	case v.out <- m:
		return nil
	case <-v.gone:
		return http.ErrServerClosed
	}
}

// take serves one message where all share one stream.
func (p *place) take(v *visitor, m message, send func([]byte) error, die func()) {
	switch {
	case m.isResponse():
		v.answered(m)
	case m.ID == nil && m.Method == "notifications/cancelled":
		v.cancel(string(read(m.Params).RequestID))
	case m.ID == nil:
	case m.Method == "initialize":
		_ = send(p.greet(v, m, "2024-11-05"))
	case m.Method == "tools/call":
		ctx, cancel := v.under(string(m.ID))
		t := turn{ctx: ctx, id: m.ID, params: read(m.Params), send: send}
		if v.elicits.Load() {
			t.ask = func(mark string) (message, bool) { return v.ask(ctx, "elicitation/create", wish(mark), send) }
		}
		go func() {
			defer cancel()
			if p.carry(v, t) != done && ctx.Err() == nil {
				die()
			}
		}()
	default:
		_ = send(p.say(v, m))
	}
}

// under begins a call, which ends with the visitor or when it is cancelled.
func (v *visitor) under(id string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.calls == nil {
		v.calls = map[string]context.CancelFunc{}
	}
	v.calls[id] = cancel
	go func() {
		select {
		case <-v.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.calls, id)
	}
}

func (v *visitor) cancel(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if cancel := v.calls[id]; cancel != nil {
		cancel()
	}
}
