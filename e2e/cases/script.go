package cases

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// script is what one MCP server answers, over whichever transport. It is safe
// for concurrent use.
type script struct {
	name   string
	modern bool

	mu    sync.Mutex
	tools []Tool
	met   map[string]chan struct{} // of a tool with Meet: closed when enough calls are there
	here  map[string]int
}

func newScript(name, era string, tools []Tool) *script {
	return &script{name: name, modern: era == "modern", tools: tools, met: map[string]chan struct{}{}, here: map[string]int{}}
}

func (s *script) offer(tools []Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = tools
}

// answer returns the whole answer to a request.
func (s *script) answer(ctx context.Context, m *mcp.Message) []byte {
	result, failure := s.result(ctx, m)
	out := append([]byte(`{"jsonrpc":"2.0","id":`), m.ID.Raw()...)
	if failure != "" {
		return append(append(append(out, `,"error":`...), failure...), '}')
	}
	return append(append(append(out, `,"result":`...), result...), '}')
}

func (s *script) result(ctx context.Context, m *mcp.Message) (result, failure string) {
	switch {
	case m.Method == "initialize":
		return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"` + s.name + `","version":"1"}}`, ""
	case m.Method == "server/discover" && s.modern:
		return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}`, ""
	case m.Method == "ping":
		return "{}", ""
	case m.Method == "tools/list":
		return s.list(), ""
	case m.Method == "tools/call":
		return s.call(ctx, m)
	}
	return "", `{"code":-32601,"message":"Method not found"}`
}

func (s *script) list() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, t := range s.tools {
		if t.Definition == "" {
			t.Definition = `{"name":` + string(mcp.String(t.Name)) + `,"inputSchema":{"type":"object"}}`
		}
		list = append(list, t.Definition)
	}
	out := `{"tools":[` + strings.Join(list, ",") + `]`
	if s.modern {
		out += `,"resultType":"complete","ttlMs":0,"cacheScope":"public"`
	}
	return out + "}"
}

func (s *script) call(ctx context.Context, m *mcp.Message) (result, failure string) {
	name := calledTool(m)
	t, ok := s.tool(name)
	if !ok {
		return "", `{"code":-32602,"message":"Unknown tool: ` + name + ` (says ` + s.name + `)"}`
	}
	if t.Meet > 0 && !s.meet(ctx, t) {
		return "", `{"code":-32000,"message":"the others did not come"}`
	}
	select {
	case <-ctx.Done():
	case <-time.After(t.Delay):
	}
	switch {
	case t.Error != "":
		return "", t.Error
	case t.Result != "":
		return t.Result, ""
	}
	kind := ""
	if s.modern {
		kind = `,"resultType":"complete"`
	}
	return `{"content":[{"type":"text","text":"` + s.name + ` ran ` + name + `"}]` + kind + `}`, ""
}

func (s *script) tool(name string) (Tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tools {
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
