package world

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// Server is an MCP server of both eras over Streamable HTTP that writes down
// every message that reaches it. It has no authorization of its own: whatever
// arrives is carried out, so what it received is what really got through.
type Server struct {
	Name  string
	Tools []jsontext.Value // whole definitions, in the order of the list
	// Result answers a call; nil echoes the tool and its arguments.
	Result func(tool string, arguments jsontext.Value) jsontext.Value

	mu       sync.Mutex
	received []Received
}

// Received is one message as it arrived.
type Received struct {
	Time   time.Time
	Header http.Header
	Body   jsontext.Value
	Method string
	Tool   string // of tools/call
}

// Received returns everything that has arrived so far, oldest first.
func (s *Server) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.received...)
}

// Calls returns the tools/call messages that have arrived, oldest first.
func (s *Server) Calls() []Received {
	var calls []Received
	for _, r := range s.Received() {
		if r.Method == "tools/call" {
			calls = append(calls, r)
		}
	}
	return calls
}

// Forget drops what was written down.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	msg, e := mcp.Parse(body)
	if e != nil {
		write(w, http.StatusBadRequest, e.Append(nil))
		return
	}
	s.record(r.Header, body, msg)
	if msg.Kind() != mcp.Request {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result, e := s.answer(msg)
	if e != nil {
		e.ID = msg.ID
		write(w, http.StatusOK, e.Append(nil))
		return
	}
	if msg.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", s.Name+"-session")
	}
	answer := mcp.Message{ID: msg.ID, Result: result}
	write(w, http.StatusOK, answer.Append(nil))
}

func (s *Server) record(h http.Header, body []byte, msg *mcp.Message) {
	r := Received{Time: time.Now(), Header: h.Clone(), Body: body, Method: msg.Method}
	if msg.Method == "tools/call" {
		if params, err := mcp.ReadCall(msg.Params); err == nil {
			r.Tool = params.Name
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = append(s.received, r)
}

func (s *Server) answer(msg *mcp.Message) (jsontext.Value, *mcp.Error) {
	switch msg.Method {
	case "initialize":
		params, err := mcp.ReadInitialize(msg.Params)
		if err != nil {
			return nil, err
		}
		return object("protocolVersion", mcp.String(mcp.Negotiate(params.ProtocolVersion)),
			"capabilities", `{"tools":{}}`, "serverInfo", s.info()), nil
	case "server/discover":
		return object("resultType", `"complete"`, "supportedVersions", `["2026-07-28","2025-11-25","2025-06-18"]`,
			"capabilities", `{"tools":{}}`, "ttlMs", "0", "cacheScope", `"public"`), nil
	case "ping":
		return jsontext.Value("{}"), nil
	case "tools/list":
		return s.list(), nil
	case "tools/call":
		return s.call(msg)
	}
	return nil, mcp.NewError(mcp.CodeMethodNotFound, "Method not found")
}

func (s *Server) info() jsontext.Value {
	return object("name", mcp.String(s.Name), "version", `"1"`)
}

func (s *Server) list() jsontext.Value {
	parts := make([]string, len(s.Tools))
	for i, t := range s.Tools {
		parts[i] = string(t)
	}
	return object("tools", "["+strings.Join(parts, ",")+"]", "resultType", `"complete"`, "ttlMs", "0", "cacheScope", `"public"`)
}

func (s *Server) call(msg *mcp.Message) (jsontext.Value, *mcp.Error) {
	params, err := mcp.ReadCall(msg.Params)
	if err != nil {
		return nil, err
	}
	for _, t := range s.Tools {
		members, e := mcp.Members(t)
		if e != nil {
			continue
		}
		if name, _ := mcp.Text(mcp.Get(members, "name")); name == params.Name {
			return s.result(params.Name, params.Arguments), nil
		}
	}
	return nil, mcp.NewError(mcp.CodeInvalidParams, "Unknown tool: "+params.Name)
}

func (s *Server) result(tool string, arguments jsontext.Value) jsontext.Value {
	if s.Result != nil {
		return s.Result(tool, arguments)
	}
	text := s.Name + " ran " + tool + " with " + string(arguments)
	content := object("type", `"text"`, "text", mcp.String(text))
	return object("content", "["+string(content)+"]", "resultType", `"complete"`)
}

// object makes a JSON object of pairs of a name and a JSON text.
func object(pairs ...any) jsontext.Value {
	out := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(mcp.AppendString(out, pairs[i].(string)), ':')
		switch v := pairs[i+1].(type) {
		case string:
			out = append(out, v...)
		case jsontext.Value:
			out = append(out, v...)
		}
	}
	return append(out, '}')
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The peer may have gone; then nobody is left to tell.
	_, _ = w.Write(body)
}
