package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const token = "a.test.token"

// dual starts a server of both eras that wants the token and has its tools on
// several pages. Calls of hidden, denied and scoped are refused in three ways,
// ask asks who is calling (in the modern era), fails fails, and the others echo.
func dual(t *testing.T) (url string) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "dual", Version: "1.0.0"}, &mcp.ServerOptions{PageSize: 2})
	for _, name := range []string{"denied", "echo", "scoped"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, echo)
	}
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, ask)
	mcp.AddTool(server, &mcp.Tool{Name: "fails"}, fails)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true})
	front := httptest.NewServer(refuse(handler))
	t.Cleanup(front.Close)
	return front.URL + "/mcp"
}

type message struct {
	Message string `json:"message"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in message) (*mcp.CallToolResult, any, error) {
	return text("Echo: " + in.Message), nil, nil
}

func fails(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
	return nil, nil, errors.New("it broke")
}

func ask(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	if answer, ok := r.Params.InputResponses["who"].(*mcp.ElicitResult); ok {
		return text(fmt.Sprintf("%s %v %s", answer.Action, answer.Content["name"], r.Params.RequestState)), nil, nil
	}
	schema := json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{"who": &mcp.ElicitParams{Message: "Who is calling?", RequestedSchema: schema}},
		RequestState:  "state-1",
	}, nil, nil
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// refuse answers what a gateway refuses, before next sees it.
func refuse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mcp" {
			http.NotFound(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var call struct {
			ID     json.RawMessage
			Params struct{ Name string }
		}
		_ = json.Unmarshal(body, &call) // a body that is no call has no name
		status, problem := http.StatusOK, ""
		switch call.Params.Name {
		case "hidden":
			problem = `{"code":-32602,"message":"Unknown tool: hidden"}`
		case "denied":
			problem = `{"code":403,"message":"Call denied","data":{"reasons":["too_much"]}}`
		case "scoped":
			problem = `{"code":403,"message":"More scope needed","data":{"reasons":["no_scope"]}}`
			status = http.StatusForbidden
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="pay:write"`)
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, call.ID, problem)
	})
}
