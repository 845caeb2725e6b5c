package stream

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// response is a sink as a server has it.
type response struct{ events *mcp.EventWriter }

func (r *response) Event(id string, data []byte) error {
	return r.events.Write(mcp.Event{ID: id, Data: data})
}
func (r *response) Comment() error { return r.events.Comment("") }

// serve answers POST with a stream and GET with what Last-Event-ID asks for.
func serve(h *Hub, posted chan<- *Stream) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, after, ok := h.New("alpha"), uint64(0), false
		if r.Method == http.MethodGet {
			if s, after, ok = h.Find("alpha", r.Header.Get("Last-Event-ID")); !ok {
				http.Error(w, "no such event", http.StatusNotFound)
				return
			}
		}
		control := http.NewResponseController(w)
		w.Header().Set("Content-Type", "text/event-stream")
		sink := &response{mcp.NewEventWriter(w, control.Flush)}
		detached := s.Attach(sink, after, ok)
		if !ok {
			s.Prime()
			posted <- s
		}
		select {
		case <-detached:
		case <-r.Context().Done():
			s.Detach(sink)
		}
	}
}

func open(t *testing.T, ctx context.Context, method, url, last string) *mcp.EventReader {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s with Last-Event-ID %q: %s", method, last, resp.Status)
	}
	return mcp.NewEventReader(bufio.NewReader(resp.Body), 1<<20)
}

func TestOverRealConnections(t *testing.T) {
	h := New(Config{}, time.Now)
	posted := make(chan *Stream, 1)
	server := httptest.NewServer(serve(h, posted))
	defer server.Close()
	var got []string
	next := func(r *mcp.EventReader) {
		t.Helper()
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Data))
	}

	ctx, leave := context.WithCancel(t.Context())
	post := open(t, ctx, http.MethodPost, server.URL, "")
	s := <-posted
	next(post)
	primed := post.LastID()
	s.Send([]byte(`{"n":1}`))
	next(post)
	last := post.LastID()
	s.Send([]byte(`{"n":2}`)) // the client leaves before it reads this
	leave()
	s.Send([]byte(`{"n":3}`))

	get := open(t, t.Context(), http.MethodGet, server.URL, last)
	next(get)
	next(get)
	s.Send([]byte(`{"n":4}`))
	s.Finish()
	next(get)
	if want := []string{"", `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}; !slices.Equal(got, want) {
		t.Errorf("the client got %q, want %q", got, want)
	}
	if _, err := get.Next(); err == nil {
		t.Error("a finished stream goes on")
	}

	got = nil
	again := open(t, t.Context(), http.MethodGet, server.URL, primed)
	for range 4 {
		next(again)
	}
	if want := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}; !slices.Equal(got, want) {
		t.Errorf("asked again the client got %q, want %q", got, want)
	}
}
