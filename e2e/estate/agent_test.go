package estate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// agent is a client of the legacy era, with a session.
type agent struct {
	token, session string
}

// enter opens a session at a replica.
func (e *estate) enter(t *testing.T, at int, subject string) *agent {
	t.Helper()
	a := &agent{token: e.token(t, subject)}
	header, _ := a.do(t, e.nodes[at], "initialize", object{
		"protocolVersion": "2025-11-25", "capabilities": object{}, "clientInfo": object{"name": "estate", "version": "1"},
	})
	if a.session = header.Get("Mcp-Session-Id"); a.session == "" {
		t.Fatal("initialize opened no session")
	}
	return a
}

// do sends a request to a replica and returns the whole answer.
func (a *agent) do(t *testing.T, n *node, method string, params any) (http.Header, string) {
	t.Helper()
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.URL+"/mcp", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+a.token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if a.session != "" {
		r.Header.Set("Mcp-Session-Id", a.session)
		r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header, string(text)
}

// list returns the names that the agent is shown.
func (a *agent) list(t *testing.T, n *node) []string {
	t.Helper()
	_, text := a.do(t, n, "tools/list", object{})
	var answer struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	names := []string{}
	for _, tool := range answer.Result.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// call returns the whole answer to a call of a tool.
func (a *agent) call(t *testing.T, n *node, tool int) string {
	t.Helper()
	_, text := a.do(t, n, "tools/call", object{"name": fmt.Sprint("alpha__t", tool), "arguments": object{}})
	return text
}
