package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/regogate/regogate/gateway/mcp"
)

// seen is one HTTP request as a double received it.
type seen struct {
	method  string
	header  http.Header
	body    string
	message *mcp.Message // nil for a body that is none
}

// webDouble is a scripted Streamable HTTP server. Its zero script is a legacy
// server with sessions and the two tools read and write.
type webDouble struct {
	*httptest.Server
	t *testing.T

	modern  bool
	version string // negotiated; 2025-06-18 by default
	tools   string // the result of tools/list
	// first, when set, may answer any request itself; false leaves it to the
	// script.
	first func(w http.ResponseWriter, s seen) bool
	// call answers tools/call in the script's place.
	call func(w http.ResponseWriter, s seen)

	mu       sync.Mutex
	requests []seen
	sessions map[string]bool
	next     int
}

const twoTools = `{"tools":[{"name":"read","inputSchema":{"type":"object"}},{"name":"write","inputSchema":{"type":"object"}}]}`

// newWebDouble starts a server that script has set up.
func newWebDouble(t *testing.T, script func(*webDouble)) *webDouble {
	t.Helper()
	d := &webDouble{t: t, version: "2025-06-18", tools: twoTools, sessions: map[string]bool{}}
	if script != nil {
		script(d)
	}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *webDouble) config() Config { return Config{URL: d.URL + "/mcp"} }

func (d *webDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s := seen{method: r.Method, header: r.Header.Clone(), body: string(body)}
	if m, bad := mcp.Parse(body); bad == nil {
		s.message = m
	}
	d.mu.Lock()
	d.requests = append(d.requests, s)
	d.mu.Unlock()
	switch {
	case d.first != nil && d.first(w, s):
	case d.modern:
		d.serveModern(w, s)
	default:
		d.serveLegacy(w, s)
	}
}

func (d *webDouble) serveModern(w http.ResponseWriter, s seen) {
	switch {
	case s.method != http.MethodPost:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	case s.message == nil || s.message.Method == "initialize":
		fail(w, s, http.StatusBadRequest, -32022, "unsupported", `,"data":{"supported":["2026-07-28"]}`)
	case s.message.Method == discover:
		answer(w, s, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
	case s.message.Method == "tools/list":
		answer(w, s, d.tools)
	case s.message.Method == "tools/call" && d.call != nil:
		d.call(w, s)
	case s.message.Method == "tools/call":
		answer(w, s, string(s.message.Params))
	default:
		fail(w, s, http.StatusNotFound, -32601, "unknown", "")
	}
}

func (d *webDouble) serveLegacy(w http.ResponseWriter, s seen) {
	id := s.header.Get("Mcp-Session-Id")
	switch {
	case s.method == http.MethodGet:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	case s.method == http.MethodDelete:
		d.mu.Lock()
		delete(d.sessions, id)
		d.mu.Unlock()
	case s.message == nil:
		http.Error(w, "no", http.StatusBadRequest)
	case s.message.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", d.open())
		answer(w, s, `{"protocolVersion":"`+d.version+`","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"},"instructions":"be kind"}`)
	case id == "":
		fail(w, s, http.StatusBadRequest, -32000, "Bad Request: no session", "")
	case !d.has(id):
		http.Error(w, "no such session", http.StatusNotFound)
	case s.header.Get("Mcp-Protocol-Version") != d.version:
		fail(w, s, http.StatusBadRequest, -32000, "unsupported protocol version", "")
	case s.message.Kind() != mcp.Request:
		w.WriteHeader(http.StatusAccepted)
	case s.message.Method == "tools/list":
		answer(w, s, d.tools)
	case s.message.Method == "tools/call" && d.call != nil:
		d.call(w, s)
	case s.message.Method == "tools/call":
		answer(w, s, string(s.message.Params))
	case s.message.Method == "ping":
		answer(w, s, `{}`)
	default:
		fail(w, s, http.StatusOK, -32601, "unknown", "")
	}
}

func (d *webDouble) open() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	id := "session-" + strconv.Itoa(d.next)
	d.sessions[id] = true
	return id
}

func (d *webDouble) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[id]
}

// restart forgets all sessions.
func (d *webDouble) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.sessions)
}

// got returns the requests so far that match.
func (d *webDouble) got(match func(seen) bool) (list []seen) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.requests {
		if match(s) {
			list = append(list, s)
		}
	}
	return list
}

// posts returns the messages of one method so far.
func (d *webDouble) posts(method string) []seen {
	return d.got(func(s seen) bool { return s.message != nil && s.message.Method == method })
}

func answer(w http.ResponseWriter, s seen, result string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, s.message.ID.Raw(), result)
}

// fail answers with a JSON-RPC error; more are further members of it.
func fail(w http.ResponseWriter, s seen, status, code int, message, more string) {
	id := "null"
	if s.message != nil {
		id = string(s.message.ID.Raw())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q%s}}`, id, code, message, more)
}

// stream begins an answer as server-sent events and returns how to write more,
// flushed at once. ID in the text stands for the request's.
func stream(w http.ResponseWriter, s seen) func(text string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	return func(text string) {
		if s.message != nil {
			text = strings.ReplaceAll(text, "ID", string(s.message.ID.Raw()))
		}
		io.WriteString(w, text)
		w.(http.Flusher).Flush()
	}
}
