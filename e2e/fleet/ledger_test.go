package fleet_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// message is any JSON-RPC message.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	} `json:"error,omitempty"`
}

// ledger is a server that writes down what arrives.
type ledger struct {
	name string

	mu       sync.Mutex
	arrived  map[string]int            // calls by mark
	sessions map[string]chan []byte    // own streams, by session
	callers  map[string]map[string]int // calls of a mark's owner by session
	watched  map[string]bool           // sessions that subscribed
}

func newLedger(name string) *ledger {
	return &ledger{
		name: name, arrived: map[string]int{}, sessions: map[string]chan []byte{},
		callers: map[string]map[string]int{}, watched: map[string]bool{},
	}
}

const noteURI = "note://old/one"

func (l *ledger) count(mark string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrived[mark]
}

// twice are the marks that arrived more than once.
func (l *ledger) twice() (marks []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for mark, n := range l.arrived {
		if n > 1 {
			marks = append(marks, mark)
		}
	}
	slices.Sort(marks)
	return marks
}

// sessionsOf are the sessions that carried an owner's calls, sorted.
func (l *ledger) sessionsOf(owner string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.callers[owner]))
}

// change tells whoever has subscribed that the note is another one.
func (l *ledger) change() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.watched {
		if out := l.sessions[id]; out != nil {
			select {
			case out <- []byte(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + noteURI + `"}}`):
			default: // nobody listens
			}
		}
	}
}

type params struct {
	Name      string          `json:"name"`
	Task      json.RawMessage `json:"task"`
	TaskID    string          `json:"taskId"`
	State     string          `json:"requestState"`
	Responses json.RawMessage `json:"inputResponses"`
	Arguments struct {
		Owner string `json:"owner"`
		Mark  string `json:"mark"`
	} `json:"arguments"`
}

func (l *ledger) note(session string, p params) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived[p.Arguments.Mark]++
	if l.callers[p.Arguments.Owner] == nil {
		l.callers[p.Arguments.Owner] = map[string]int{}
	}
	l.callers[p.Arguments.Owner][session]++
}

// lists is the same in both eras.
func (l *ledger) lists(method string) object {
	made := object{"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
	switch method {
	case "tools/list":
		var tools []object
		for _, name := range []string{"ask", "echo", "slow", "start"} {
			tools = append(tools, object{
				"name": name, "inputSchema": object{"type": "object"}, "execution": object{"taskSupport": "optional"},
			})
		}
		made["tools"] = tools
	case "resources/list":
		made["resources"] = []object{{"name": "one", "uri": noteURI}}
	case "resources/templates/list":
		made["resourceTemplates"] = []object{}
	default:
		return nil
	}
	return made
}

func said(mark string) object {
	return object{"content": []object{{"type": "text", "text": mark}}, "resultType": "complete"}
}

func write(w http.ResponseWriter, m message, result any) {
	w.Header().Set("Content-Type", "application/json")
	out, _ := json.Marshal(result) // of strings and numbers
	m = message{JSONRPC: "2.0", ID: m.ID, Result: out}
	out, _ = json.Marshal(m)
	_, _ = w.Write(out) // the peer may have gone
}

func unknown(w http.ResponseWriter, m message) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
}

func receive(r *http.Request) (m message, p params) {
	body, _ := io.ReadAll(r.Body) // what is missing is no JSON
	_ = json.Unmarshal(body, &m)
	_ = json.Unmarshal(m.Params, &p)
	return m, p
}

// legacy serves 2025-11-25 with sessions.
func (l *ledger) legacy(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")
	l.mu.Lock()
	out, known := l.sessions[id]
	l.mu.Unlock()
	if !known && (r.Method != http.MethodPost || id != "") {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodDelete:
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.sessions, id)
		delete(l.watched, id)
		return
	case http.MethodGet:
		l.stream(w, r, out)
		return
	}
	m, p := receive(r)
	if m.Method == "initialize" {
		id = rand.Text()
		l.mu.Lock()
		l.sessions[id] = make(chan []byte, 8)
		l.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
		write(w, m, object{"protocolVersion": "2025-11-25", "serverInfo": object{"name": l.name, "version": "1"}, "capabilities": object{
			"tools": object{}, "resources": object{"subscribe": true},
			"tasks": object{"list": object{}, "cancel": object{}, "requests": object{"tools": object{"call": object{}}}},
		}})
		return
	}
	switch {
	case !known:
		http.Error(w, "initialize first", http.StatusBadRequest)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		l.answer(w, m, p, id)
	}
}

func (l *ledger) answer(w http.ResponseWriter, m message, p params, id string) {
	task := object{
		"taskId": p.TaskID, "status": "completed", "ttl": 60000, "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
	}
	switch m.Method {
	case "tools/call":
		l.note(id, p)
		if p.Name == "slow" {
			time.Sleep(700 * time.Millisecond)
		}
		if p.Task != nil {
			task["taskId"] = "task of " + p.Arguments.Mark
			write(w, m, object{"task": task})
			return
		}
		write(w, m, said(p.Arguments.Mark))
	case "tasks/get":
		write(w, m, task)
	case "tasks/result":
		write(w, m, said(p.TaskID))
	case "resources/subscribe":
		l.mu.Lock()
		l.watched[id] = true
		l.mu.Unlock()
		write(w, m, object{})
	case "ping":
		write(w, m, object{})
	default:
		if o := l.lists(m.Method); o != nil {
			write(w, m, o)
			return
		}
		unknown(w, m)
	}
}

func (l *ledger) stream(w http.ResponseWriter, r *http.Request, out <-chan []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		_ = http.NewResponseController(w).Flush() // who has gone needs nothing
		select {
		case <-r.Context().Done():
			return
		case m := <-out:
			fmt.Fprintf(w, "data: %s\n\n", m)
		}
	}
}

// modern serves 2026-07-28. The tool ask wants input first.
func (l *ledger) modern(w http.ResponseWriter, r *http.Request) {
	m, p := receive(r)
	switch m.Method {
	case "server/discover":
		write(w, m, object{
			"resultType": "complete", "supportedVersions": []string{"2026-07-28"}, "ttlMs": 0, "cacheScope": "public",
			"capabilities": object{"tools": object{}},
		})
	case "tools/call":
		if p.Name == "ask" && p.Responses == nil {
			write(w, m, object{
				"resultType": "input_required", "requestState": "state of " + p.Arguments.Mark,
				"inputRequests": object{"it": object{"method": "elicitation/create", "params": object{
					"message": "which", "requestedSchema": object{"type": "object", "properties": object{}},
				}}},
			})
			return
		}
		l.note("", p)
		write(w, m, said(p.Arguments.Mark+p.State))
	default:
		if o := l.lists(m.Method); o != nil {
			write(w, m, o)
			return
		}
		unknown(w, m)
	}
}
