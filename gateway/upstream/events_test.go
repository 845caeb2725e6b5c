package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// eventsDouble is a server of the HTTP+SSE transport at /sse.
type eventsDouble struct {
	*httptest.Server

	endpoint string // what it announces, with a verb for the session's number; relative by default
	early    bool   // answers before the POST is over
	status   atomic.Int32

	mu       sync.Mutex
	next     int
	sessions map[string]eventsSession
	posts    []seen
}

type eventsSession struct {
	texts chan string   // for the stream
	gone  chan struct{} // closed to end the stream
}

func newEventsDouble(t *testing.T) *eventsDouble {
	d := &eventsDouble{endpoint: "messages?session=%d", sessions: map[string]eventsSession{}}
	d.Server = httptest.NewServer(d)
	t.Cleanup(func() {
		d.drop()
		d.Close()
	})
	return d
}

// drop ends all streams and forgets their sessions.
func (d *eventsDouble) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.sessions {
		close(s.gone)
		delete(d.sessions, id)
	}
}

func (d *eventsDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/sse":
		d.stream(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/messages":
		d.post(w, r)
	default:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	}
}

func (d *eventsDouble) stream(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.next++
	id, s := d.next, eventsSession{make(chan string, 16), make(chan struct{})}
	d.sessions[fmt.Sprint(id)] = s
	d.mu.Unlock()
	send := stream(w, seen{})
	endpoint := d.endpoint
	if strings.Contains(endpoint, "%d") {
		endpoint = fmt.Sprintf(endpoint, id)
	}
	send("event: endpoint\r\ndata: " + endpoint + "\r\n\r\n")
	for {
		select {
		case text := <-s.texts:
			send("event: message\r\ndata: " + text + "\r\n\r\n")
		case <-s.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (d *eventsDouble) post(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, bad := mcp.Parse(body)
	if bad != nil {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	session, known := d.sessions[r.URL.Query().Get("session")]
	d.posts = append(d.posts, seen{header: r.Header.Clone(), body: string(body), message: m})
	d.mu.Unlock()
	if !known {
		http.Error(w, "no session", http.StatusNotFound)
		return
	}
	if status := d.status.Load(); status != 0 && m.Method == "tools/call" {
		w.WriteHeader(int(status))
		return
	}
	if !d.early {
		w.WriteHeader(http.StatusAccepted)
		w.(http.Flusher).Flush()
	}
	if result := eventsResult(m); result != "" {
		session.texts <- `{"jsonrpc":"2.0","id":` + string(m.ID.Raw()) + `,"result":` + result + `}`
	}
	if d.early {
		time.Sleep(50 * time.Millisecond)
	}
	if strings.Contains(string(m.Params), `"drop"`) {
		d.drop()
	}
}

func eventsResult(m *mcp.Message) string {
	switch m.Method {
	case "initialize":
		return `{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"old","version":"1"}}`
	case "tools/list":
		return twoTools
	case "tools/call":
		if name := string(m.Params); !strings.Contains(name, `"drop"`) && !strings.Contains(name, `"silent"`) {
			return name
		}
	}
	return ""
}

func (d *eventsDouble) bodies(method string) (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.posts {
		if s.message.Method == method {
			list = append(list, s.body)
		}
	}
	return list
}

func beta(d *eventsDouble) map[string]Config {
	return map[string]Config{"beta": {URL: d.URL + "/sse"}}
}

// TestEvents is the backend's half of B068.
func TestEvents(t *testing.T) {
	for _, early := range []bool{false, true} {
		d := newEventsDouble(t)
		d.early = early
		p := running(t, beta(d), quick(nil))
		s := p.Current().Server("beta")
		if !s.Up || s.Version != "2024-11-05" {
			t.Fatalf("up %v, problem %q, version %q", s.Up, s.Problem, s.Version)
		}
		wantNames(t, s, "read", "write")
		m, err := callTool(t.Context(), p, "beta", "a", "read", `{"n":9007199254740993}`)
		if got := must(t, m, err); got != `{"name":"read","arguments":{"n":9007199254740993}}` {
			t.Errorf("the result is %s", got)
		}
		if n := len(d.bodies("initialize")); n != 2 {
			t.Errorf("%d conversations were begun, want one for discovery and one for the principal", n)
		}

		// The stream breaks under a call, then between calls.
		_, err = callTool(t.Context(), p, "beta", "a", "drop", "{}")
		wantKind(t, err, Broken, "beta")
		m, err = callTool(t.Context(), p, "beta", "a", "read", "{}")
		must(t, m, err)
		d.drop()
		eventually(t, "a call over a new stream", func() bool {
			_, err := callTool(t.Context(), p, "beta", "a", "read", "{}")
			return err == nil
		})
	}
}

func TestEventsErrors(t *testing.T) {
	d := newEventsDouble(t)
	p := newPool(t, beta(d), quick(nil))
	m, err := callTool(t.Context(), p, "beta", "a", "read", "{}")
	must(t, m, err)
	d.status.Store(http.StatusInternalServerError)
	_, err = callTool(t.Context(), p, "beta", "a", "read", "{}")
	wantKind(t, err, Broken, "beta")
	d.status.Store(0)
	m, err = callTool(t.Context(), p, "beta", "a", "read", "{}")
	must(t, m, err)
	if n := len(d.bodies("initialize")); n != 1 {
		t.Errorf("%d conversations were begun, want the first to go on", n)
	}
	// A session that is not known any more has carried nothing out.
	d.mu.Lock()
	clear(d.sessions)
	d.mu.Unlock()
	m, err = callTool(t.Context(), p, "beta", "a", "read", "{}")
	must(t, m, err)
	if n := len(d.bodies("initialize")); n != 2 {
		t.Errorf("%d conversations were begun", n)
	}
}

func TestEventsEndpoint(t *testing.T) {
	var d *eventsDouble
	for _, tt := range []struct {
		endpoint string
		up       bool
	}{
		{"/messages?session=%d", true}, {"messages?session=%d", true}, {"./messages?session=%d", true}, {"HOST/messages?session=%d", true},
		{"http://other-host.test/messages?session=%d", false}, {"//other-host.test/messages", false},
		{"https://HOSTONLY/messages?session=%d", false}, {"http://user@HOSTONLY/messages?session=%d", false}, {"http://[", false},
	} {
		d = newEventsDouble(t)
		d.endpoint = strings.NewReplacer("HOSTONLY", strings.TrimPrefix(d.URL, "http://"), "HOST", d.URL).Replace(tt.endpoint)
		p := newPool(t, beta(d), quick(nil))
		m, err := callTool(t.Context(), p, "beta", "a", "read", "{}")
		if tt.up {
			must(t, m, err)
		} else if err == nil || len(d.bodies("initialize")) != 0 {
			t.Errorf("the endpoint %s was used", tt.endpoint)
		}
	}
}

func TestEventsNotifications(t *testing.T) {
	d := newEventsDouble(t)
	p := newPool(t, beta(d), quick(nil))
	var got []string
	done := make(chan func() string, 1)
	go func() {
		m, err := p.Do(t.Context(), Call{
			Server: "beta", Peer: testPeer("a"), Method: "tools/call", Params: jsontext.Value(`{"name":"silent","_meta":{"progressToken":"mine"}}`),
			Notify: func(m *mcp.Message) { got = append(got, string(m.Params)) },
		})
		done <- func() string { return must(t, m, err) }
	}()
	eventually(t, "the call", func() bool { return len(d.bodies("tools/call")) == 1 })
	d.mu.Lock()
	texts := d.sessions["1"].texts
	d.mu.Unlock()
	for _, text := range []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`,
		`not JSON`, `{"jsonrpc":"2.0","id":"s","method":"ping"}`, `{"jsonrpc":"2.0","id":2,"result":{"late":true}}`,
	} {
		texts <- text
	}
	if got := receive(t, done, "the answer")(); got != `{"late":true}` {
		t.Errorf("the result is %s", got)
	}
	eventually(t, "the answer to the ping", func() bool { return len(d.bodies("")) == 1 })
	if want := []string{`{"progressToken":"mine","progress":1}`}; !slices.Equal(got, want) {
		t.Errorf("the notifications are %q", got)
	}
}
