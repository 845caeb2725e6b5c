package cases

import (
	"net/http"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// arrived is one message as it came to a backend.
type arrived struct {
	backend string
	header  http.Header // nil over stdio
	body    []byte
	method  string // MCP method, or the HTTP method of what is no message
	tool    string // of a tools/call
	id      string // of a request, the exact JSON
	of      string // of a notifications/cancelled, BACKEND/TOOL of the call that it names
}

// house reports whether the message is the gateway's own housekeeping.
func (a *arrived) house() bool {
	switch a.method {
	case "initialize", "notifications/initialized", "server/discover", "ping", "subscriptions/listen",
		"tools/list", "prompts/list", "resources/list", "resources/templates/list",
		http.MethodGet, http.MethodDelete, left:
		return true
	}
	return false
}

// what names the message as totals do.
func (a *arrived) what() string {
	if a.tool != "" {
		return a.backend + "/" + a.tool
	}
	return a.backend + "/" + a.method
}

// arrivals is what has come to the backends of a world, oldest first. It is safe
// for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	list []arrived
}

func (l *arrivals) add(a arrived) {
	var cancels string
	if m, bad := mcp.ParseBackend(a.body); bad == nil && len(a.body) > 0 {
		a.method = m.Method
		switch {
		case m.Method == "tools/call":
			a.tool = calledTool(m)
		case m.Method == "notifications/cancelled":
			cancels = string(at(m.Params, "/requestId"))
		case m.Method == "":
			a.method = "response"
		}
		a.id = string(at(jsontext.Value(a.body), "/id"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancels != "" {
		for _, call := range slices.Backward(l.list) {
			if call.tool != "" && call.id == cancels && call.peer() == a.peer() {
				a.of = call.what()
				break
			}
		}
	}
	l.list = append(l.list, a)
}

// peer is the side of a conversation that gives ids.
func (a *arrived) peer() string { return a.backend + " " + a.header.Get("Mcp-Session-Id") }

// since returns what has come after the first n.
func (l *arrivals) since(n int) []arrived {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]arrived(nil), l.list[n:]...)
}

func (l *arrivals) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// total is how many messages have come that are so named.
func (l *arrivals) total(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if l.list[i].what() == what {
			n++
		}
	}
	return n
}
