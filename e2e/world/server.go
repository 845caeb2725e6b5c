package world

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// Server is an MCP server of both eras over Streamable HTTP that writes down
// every message that reaches it. It has no authorization of its own: whatever
// arrives is carried out, so what it received is what really got through. Its
// exported fields are set before it serves; Change alters them later.
type Server struct {
	Name         string
	Tools        []jsontext.Value // whole definitions, in the order of the list
	Prompts      []jsontext.Value
	Resources    []jsontext.Value
	Templates    []jsontext.Value
	Instructions string
	Capabilities jsontext.Value // nil declares what it has
	Era          mcp.Era        // the only one that it speaks; zero is both
	// Tells says that it sends messages of its own accord: it has a stream for
	// each session, and answers subscriptions/listen. Say sends them.
	Tells bool
	// Result answers a call; nil echoes the tool and its arguments.
	Result func(tool string, arguments jsontext.Value) jsontext.Value
	// Handle answers any request before the server does; where both results are
	// nil, the server does.
	Handle func(x *Exchange) (jsontext.Value, *mcp.Error)

	mu       sync.Mutex
	received []Received
	sessions int
	streams  map[*Exchange]string // open ones, by the session; "" is a subscription
	asked    map[asking]chan *mcp.Message
}

// Received is one message as it arrived.
type Received struct {
	Time   time.Time
	Header http.Header
	Body   jsontext.Value
	Method string // "" of a response
	Tool   string // of tools/call
}

// Received returns everything that has arrived so far, oldest first.
func (s *Server) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.received...)
}

// Calls returns the tools/call messages that have arrived, oldest first.
func (s *Server) Calls() []Received { return s.Got("tools/call") }

// Got returns the messages with a method that have arrived, oldest first.
func (s *Server) Got(method string) []Received {
	var got []Received
	for _, r := range s.Received() {
		if r.Method == method {
			got = append(got, r)
		}
	}
	return got
}

// Forget drops what was written down.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = nil
}

// Change lets f alter what the server offers while it serves. It tells nobody.
func (s *Server) Change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && s.Tells && s.Era != mcp.Modern:
		s.stream(w, r)
		return
	case r.Method != http.MethodPost:
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
	x := &Exchange{Message: msg, Header: r.Header, Session: r.Header.Get("Mcp-Session-Id"), server: s, w: w, ctx: r.Context()}
	switch msg.Kind() {
	case mcp.Response:
		s.answered(x)
		w.WriteHeader(http.StatusAccepted)
		return
	case mcp.Notification:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result, e := s.answer(x)
	if x.over {
		return
	}
	if e != nil {
		e.ID = msg.ID
		x.finish(e.Append(nil))
		return
	}
	if msg.Method == mcp.MethodInitialize {
		w.Header().Set("Mcp-Session-Id", s.newSession())
	}
	answer := mcp.Message{ID: msg.ID, Result: result}
	x.finish(answer.Append(nil))
}

func (s *Server) newSession() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	return s.Name + "-session-" + strconv.Itoa(s.sessions)
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

func (s *Server) answer(x *Exchange) (jsontext.Value, *mcp.Error) {
	if s.Handle != nil {
		if result, e := s.Handle(x); result != nil || e != nil || x.over {
			return result, e
		}
	}
	unknown := mcp.NewError(mcp.CodeMethodNotFound, "Method not found")
	switch x.Method {
	case mcp.MethodInitialize:
		params, err := mcp.ReadInitialize(x.Params)
		if err != nil {
			return nil, err
		}
		if s.Era == mcp.Modern {
			return nil, unknown
		}
		return s.hello("protocolVersion", mcp.String(mcp.Negotiate(params.ProtocolVersion)), "serverInfo", s.info()), nil
	case mcp.MethodDiscover:
		if s.Era == mcp.Legacy {
			return nil, unknown
		}
		return s.hello("resultType", `"complete"`, "supportedVersions", `["2026-07-28","2025-11-25","2025-06-18"]`,
			"ttlMs", "0", "cacheScope", `"public"`), nil
	case mcp.MethodPing, mcp.MethodSubscribe, mcp.MethodUnsubscribe, mcp.MethodSetLevel:
		return jsontext.Value("{}"), nil
	case mcp.MethodListen:
		if !s.Tells {
			return nil, unknown
		}
		s.listen(x)
		return nil, nil
	case mcp.MethodToolsCall:
		return s.call(x.Message)
	case mcp.MethodPromptsGet:
		return s.prompt(x.Message)
	case mcp.MethodResourcesRead:
		return s.read(x.Message)
	case mcp.MethodComplete:
		return object("completion", `{"values":["one","two"]}`, "resultType", `"complete"`), nil
	}
	if list, ok := s.list(x.Method); ok {
		return list, nil
	}
	return nil, unknown
}

func (s *Server) info() jsontext.Value {
	return object("name", mcp.String(s.Name), "version", `"1"`)
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
