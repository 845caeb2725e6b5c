package world

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// Exchange is one request at a Server, while it is being answered. Its methods
// may be called by several goroutines at once, until the answer is given.
type Exchange struct {
	*mcp.Message
	Header  http.Header
	Session string // of the legacy era

	server *Server
	ctx    context.Context
	over   bool // its answer is on the way, or there is none

	mu     sync.Mutex
	w      http.ResponseWriter
	events *mcp.EventWriter
	closed bool // nothing may be written any more
}

// Context ends when the client has gone.
func (x *Exchange) Context() context.Context { return x.ctx }

// Notify sends a notification before the answer.
func (x *Exchange) Notify(method string, params jsontext.Value) {
	x.send(mcp.NewRequest(mcp.ID{}, method, params).Append(nil))
}

// Ask sends a request under an id and returns the response, or nil where none
// comes while the client is there.
func (x *Exchange) Ask(id mcp.ID, method string, params jsontext.Value) *mcp.Message {
	answer := x.server.await(asking{x.Session, id})
	x.send(mcp.NewRequest(id, method, params).Append(nil))
	select {
	case m := <-answer:
		return m
	case <-x.ctx.Done():
		return nil
	}
}

// Cut ends the connection without an answer.
func (x *Exchange) Cut() { panic(http.ErrAbortHandler) }

// send begins a stream of events where none has begun.
func (x *Exchange) send(message []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	if x.events == nil {
		x.w.Header().Set("Content-Type", "text/event-stream")
		x.events = mcp.NewEventWriter(x.w, http.NewResponseController(x.w).Flush)
	}
	// The peer may have gone; then nobody is left to tell.
	_ = x.events.Write(mcp.Event{Data: message})
}

func (x *Exchange) finish(message []byte) {
	x.mu.Lock()
	begun := x.events != nil
	x.mu.Unlock()
	if begun {
		x.send(message)
	} else {
		write(x.w, http.StatusOK, message)
	}
	x.close()
}

func (x *Exchange) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
}

// asking names a request of a server under way.
type asking struct {
	session string
	id      mcp.ID
}

func (s *Server) await(key asking) <-chan *mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[asking]chan *mcp.Message{}
	}
	answer := make(chan *mcp.Message, 1)
	s.asked[key] = answer
	return answer
}

func (s *Server) answered(x *Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := asking{x.Session, x.ID}
	if answer := s.asked[key]; answer != nil {
		delete(s.asked, key)
		answer <- x.Message
	}
}

// stream serves a session's own stream until the client goes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	x := &Exchange{Message: &mcp.Message{}, Header: r.Header, Session: r.Header.Get("Mcp-Session-Id"), server: s, ctx: r.Context(), w: w}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	x.events = mcp.NewEventWriter(w, control.Flush)
	if control.Flush() == nil {
		s.keep(x, x.Session)
	}
}

// listen serves a subscription of the modern era.
func (s *Server) listen(x *Exchange) {
	x.Notify(mcp.NotifyAcknowledged, object("notifications", mcp.Find(x.Params, "notifications"), "_meta", x.subscription()))
	x.over = true
	s.keep(x, "")
}

func (x *Exchange) subscription() jsontext.Value { return object(mcp.MetaSubscriptionID, x.ID.Raw()) }

func (s *Server) keep(x *Exchange, session string) {
	s.mu.Lock()
	if s.streams == nil {
		s.streams = map[*Exchange]string{}
	}
	s.streams[x] = session
	s.mu.Unlock()
	<-x.ctx.Done()
	x.close()
	s.mu.Lock()
	delete(s.streams, x)
	s.mu.Unlock()
}

// Streams returns how many streams are open on which Say would be heard.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Say sends a notification on every stream that is open, one of a resource
// only to those that have subscribed to it.
func (s *Server) Say(method string, params jsontext.Value) {
	s.mu.Lock()
	open := map[*Exchange]string{}
	for x, session := range s.streams {
		open[x] = session
	}
	s.mu.Unlock()
	for x, session := range open {
		if method == mcp.NotifyResourceUpdated && !s.subscribed(x, mcp.Find(params, "uri")) {
			continue
		}
		said := params
		if session == "" {
			var err error
			if said, err = mcp.EditMeta(params, mcp.Set{Name: mcp.MetaSubscriptionID, Value: x.ID.Raw()}); err != nil {
				continue
			}
		}
		x.Notify(method, said)
	}
}

// subscribed reports whether the last word on a resource was that the stream
// wants to hear of it.
func (s *Server) subscribed(x *Exchange, uri jsontext.Value) (yes bool) {
	wanted, _ := mcp.Elements(mcp.Find(mcp.Find(x.Params, "notifications"), "resourceSubscriptions"))
	for _, w := range wanted {
		yes = yes || bytes.Equal(w, uri)
	}
	for _, r := range s.Received() {
		if r.Header.Get("Mcp-Session-Id") != x.Session || !bytes.Equal(mcp.Find(mcp.Find(r.Body, "params"), "uri"), uri) {
			continue
		}
		switch r.Method {
		case mcp.MethodSubscribe:
			yes = true
		case mcp.MethodUnsubscribe:
			yes = false
		}
	}
	return yes
}

// Put sends a request of the server's own accord to one session, under an id,
// and returns where its response will be.
func (s *Server) Put(session string, id mcp.ID, method string, params jsontext.Value) <-chan *mcp.Message {
	answer := s.await(asking{session, id})
	s.mu.Lock()
	defer s.mu.Unlock()
	for x, of := range s.streams {
		if of == session {
			x.send(mcp.NewRequest(id, method, params).Append(nil))
		}
	}
	return answer
}
