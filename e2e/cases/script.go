package cases

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// script is what one MCP server answers, over whichever transport. It is safe
// for concurrent use.
type script struct {
	name string

	mu     sync.Mutex
	spec   Backend
	met    map[string]chan struct{} // of a tool with Meet: closed when enough calls are there
	here   map[string]int
	counts map[string]int // of each session
	ran    map[string]int // calls of each tool
	number int            // the last $N
}

func newScript(name string, spec Backend) *script {
	return &script{
		name: name, spec: spec,
		met: map[string]chan struct{}{}, here: map[string]int{}, counts: map[string]int{}, ran: map[string]int{},
	}
}

// manners says how it behaves now.
func (s *script) manners() Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec
}

// become changes how it behaves.
func (s *script) become(spec Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec = spec
}

func (s *script) offer(tools []Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec.Tools = tools
}

// version is the revision that it negotiates.
func (spec Backend) version() string {
	switch {
	case spec.Version != "":
		return spec.Version
	case spec.Transport == "sse":
		return "2024-11-05"
	}
	return legacyVersion
}

// answer returns the whole answer to a request of a session.
func (s *script) answer(ctx context.Context, session string, m *mcp.Message) []byte {
	result, failure := s.result(ctx, session, m)
	out := append([]byte(`{"jsonrpc":"2.0","id":`), m.ID.Raw()...)
	if failure != "" {
		return append(append(append(out, `,"error":`...), failure...), '}')
	}
	return append(append(append(out, `,"result":`...), result...), '}')
}

func (s *script) result(ctx context.Context, session string, m *mcp.Message) (result, failure string) {
	spec := s.manners()
	capabilities := spec.Capabilities
	if capabilities == "" {
		capabilities = `{"tools":{}}`
	}
	if own := spec.Answers[m.Method]; own != "" {
		return own, ""
	}
	switch {
	case m.Method == "initialize":
		return `{"protocolVersion":"` + spec.version() + `","capabilities":` + capabilities + `,"serverInfo":{"name":"` + s.name + `","version":"1"}}`, ""
	case m.Method == "server/discover" && spec.Era == "modern":
		return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + capabilities + `,"ttlMs":0,"cacheScope":"public"}`, ""
	case m.Method == "ping":
		return "{}", ""
	case m.Method == "tools/list":
		return s.list(m)
	case m.Method == "tools/call":
		return s.call(ctx, session, m)
	}
	return "", `{"code":-32601,"message":"Method not found"}`
}

// list returns the page of the tools that is asked for.
func (s *script) list(m *mcp.Message) (result, failure string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := Page{}
	if s.spec.Pages != nil {
		var ok bool
		if page, ok = s.spec.page(m); !ok {
			return "", `{"code":-32602,"message":"Unknown cursor"}`
		}
	}
	if page.Error != "" {
		return "", page.Error
	}
	var list []string
	for _, t := range s.spec.Tools {
		if s.spec.Pages != nil && !slices.Contains(page.Tools, t.Name) {
			continue
		}
		if t.Definition == "" {
			t.Definition = `{"name":` + string(mcp.String(t.Name)) + `,"inputSchema":{"type":"object"}}`
		}
		list = append(list, t.Definition)
	}
	out := `{"tools":[` + strings.Join(list, ",") + `]`
	if page.Next != "" {
		s.number++
		out += `,"nextCursor":` + strings.ReplaceAll(page.Next, "$N", strconv.Itoa(s.number))
	}
	if s.spec.Era == "modern" {
		out += `,"resultType":"complete","ttlMs":0,"cacheScope":"public"`
	}
	return out + "}", ""
}

// page finds the page that a request asks for.
func (spec Backend) page(m *mcp.Message) (Page, bool) {
	list, err := mcp.ReadList(m.Params)
	if err != nil {
		return Page{}, false
	}
	cursor := list.Cursor
	if !list.HasCursor {
		cursor = "first"
	}
	p, ok := spec.Pages[cursor]
	if !ok {
		p, ok = spec.Pages["other"]
	}
	return p, ok
}

func (s *script) call(ctx context.Context, session string, m *mcp.Message) (result, failure string) {
	name := calledTool(m)
	t, ok := s.tool(name)
	if !ok {
		return "", `{"code":-32602,"message":"Unknown tool: ` + name + ` (says ` + s.name + `)"}`
	}
	n := s.count(session, t)
	if t.Meet > 0 && !s.meet(ctx, t) {
		return "", `{"code":-32000,"message":"the others did not come"}`
	}
	select {
	case <-ctx.Done():
	case <-time.After(t.Delay):
	}
	text := s.name + " ran " + name
	switch {
	case t.Error != "":
		return "", t.Error
	case t.Result != "":
		return t.Result, ""
	case t.Count != "":
		text = strconv.Itoa(n)
	}
	kind := ""
	if s.manners().Era == "modern" {
		kind = `,"resultType":"complete"`
	}
	return `{"content":[{"type":"text","text":"` + text + `"}]` + kind + `}`, ""
}

// count takes note of a call and returns the session's count.
func (s *script) count(session string, t Tool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[t.Name]++
	if t.Count == "add" {
		s.counts[session]++
	}
	return s.counts[session]
}

// calls is how many calls of a tool were carried out.
func (s *script) calls(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[tool]
}

func (s *script) tool(name string) (Tool, bool) {
	for _, t := range s.manners().Tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// meet waits until Meet calls of the tool are under way.
func (s *script) meet(ctx context.Context, t Tool) bool {
	s.mu.Lock()
	if s.met[t.Name] == nil {
		s.met[t.Name] = make(chan struct{})
	}
	all := s.met[t.Name]
	if s.here[t.Name]++; s.here[t.Name] == t.Meet {
		close(all)
	}
	s.mu.Unlock()
	select {
	case <-all:
		return true
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	return false
}

// calledTool is the name in a tools/call.
func calledTool(m *mcp.Message) string {
	params, err := mcp.Split(m.Params)
	if err != nil {
		return ""
	}
	name, _ := mcp.Text(mcp.Get(params, "name"))
	return name
}
