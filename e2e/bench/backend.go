package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// backend is an MCP server of the modern era as servers are usually written: it
// decodes each request and encodes each answer with encoding/json. It is fast
// on purpose, so that what stands before it shows.
type backend struct {
	name  string
	tools []definition
	known map[string]bool
	ready json.RawMessage // the result of tools/list, encoded once; nil to encode it for each request
}

func newBackend(name string, tools []definition) *backend {
	b := &backend{name: name, tools: tools, known: map[string]bool{}}
	for _, d := range tools {
		b.known[d.Name] = true
	}
	return b
}

// prebuilt is the same backend with its list encoded once.
func (b *backend) prebuilt() (*backend, error) {
	ready, err := json.Marshal(b.list())
	if err != nil {
		return nil, fmt.Errorf("encode the list of %s: %w", b.name, err)
	}
	again := *b
	again.ready = ready
	return &again, nil
}

type rpcRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"params"`
}

type rpcResponse struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type listResult struct {
	Tools      []definition `json:"tools"`
	ResultType string       `json:"resultType"`
	TTL        int          `json:"ttlMs"`
	CacheScope string       `json:"cacheScope"`
}

type callResult struct {
	Content    []content `json:"content"`
	ResultType string    `json:"resultType"`
}

type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	var req rpcRequest
	if err := json.Unmarshal(body, &req); err != nil || req.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer, err := json.Marshal(b.answer(&req))
	if err != nil {
		http.Error(w, "cannot encode the answer", http.StatusInternalServerError)
		return
	}
	if b.ready != nil && req.Method == "tools/list" {
		answer = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, b.ready)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(answer) // where the client has gone nobody is left to tell
}

func (b *backend) answer(req *rpcRequest) rpcResponse {
	out := rpcResponse{JSONRPC: "2.0", ID: req.ID}
	switch {
	case req.Method == "server/discover":
		out.Result = json.RawMessage(`{"resultType":"complete","supportedVersions":["2026-07-28"],` +
			`"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}`)
	case req.Method == "tools/list" && b.ready != nil:
	case req.Method == "tools/list":
		out.Result = b.list()
	case req.Method == "tools/call" && b.known[req.Params.Name]:
		text := b.name + " ran " + req.Params.Name + " with " + string(req.Params.Arguments)
		out.Result = callResult{Content: []content{{"text", text}}, ResultType: "complete"}
	case req.Method == "tools/call":
		out.Error = &rpcError{-32602, "Unknown tool: " + req.Params.Name}
	default:
		out.Error = &rpcError{-32601, "Method not found"}
	}
	return out
}

func (b *backend) list() listResult {
	return listResult{Tools: b.tools, ResultType: "complete", CacheScope: "public"}
}
