package cases

import (
	"io"
	"net/http"
	"sync"

	"github.com/regogate/regogate/gateway/mcp"
)

// arrived is one message as it came to a backend.
type arrived struct {
	backend string
	header  http.Header // nil over stdio
	body    []byte
	method  string // MCP method, or the HTTP method of what is no message
	tool    string // of a tools/call
}

// house reports whether the message is the gateway's own housekeeping.
func (a *arrived) house() bool {
	switch a.method {
	case "initialize", "notifications/initialized", "server/discover", "tools/list", "ping", "subscriptions/listen",
		http.MethodGet, http.MethodDelete:
		return true
	}
	return false
}

// arrivals is what has come to the backends of a world, oldest first. It is safe
// for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	list []arrived
}

func (l *arrivals) add(a arrived) {
	if m, bad := mcp.ParseBackend(a.body); bad == nil && len(a.body) > 0 {
		a.method = m.Method
		if m.Method == "tools/call" {
			a.tool = calledTool(m)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, a)
}

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

// web is a backend over Streamable HTTP.
type web struct {
	*host
	*script
	log *arrivals
}

func newWeb(name string, spec Backend, log *arrivals) (*web, error) {
	b := &web{host: newHost(), script: newScript(name, spec.Era, spec.Tools), log: log}
	return b, b.open(b)
}

func (b *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 256<<20))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	header := r.Header.Clone()
	header.Set("Host", r.Host)
	b.log.add(arrived{backend: b.name, header: header, body: body, method: r.Method})
	m, bad := mcp.ParseBackend(body)
	method := ""
	if bad == nil {
		method = m.Method
	}
	switch {
	case b.misbehave(w, r, method):
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case bad != nil:
		http.Error(w, bad.Message, http.StatusBadRequest)
	case m.Kind() != mcp.Request:
		w.WriteHeader(http.StatusAccepted)
	default:
		b.reply(w, r, m)
	}
}

func (b *web) reply(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
	answer := b.answer(r.Context(), m)
	w.Header().Set("Content-Type", "application/json")
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "session-of-"+b.name)
	}
	_, _ = w.Write(answer) // the gateway may have gone
}
