//lint:file-ignore SA1019 what the modern era gives up is still what legacy clients and servers have

package clients

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// GoServer is a server of the Go SDK that speaks 2026-07-28 alone, over
// Streamable HTTP. It offers what ts-server.mjs does, and one tool more: touch
// tells that its notes were updated, the second one first.
type GoServer struct {
	URL       string
	server    *mcp.Server
	cancelled atomic.Int64
}

// NewGoServer starts the server. Its resources have URIs of this scheme. It ends
// with the test.
func NewGoServer(t testing.TB, scheme string) *GoServer {
	t.Helper()
	m := &GoServer{}
	m.server = mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:              "Made for tests.",
		PageSize:                  2,
		CompletionHandler:         complete,
		SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		SupportedProtocolVersions: []string{modernRevision},
	})
	m.addTools()
	m.addPrompts()
	m.addResources(scheme)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m.server },
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	front := httptest.NewServer(handler)
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	m.URL = front.URL + "/mcp"
	return m
}

// Cancelled is how many calls of count were cancelled while they ran.
func (m *GoServer) Cancelled() int { return int(m.cancelled.Load()) }

func complete(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	all := []string{"Ann", "Anton", "Bert"}
	if r.Params.Ref.Type == "ref/resource" {
		all = []string{"10", "11", "20"}
	}
	result := &mcp.CompleteResult{}
	for _, value := range all {
		if strings.HasPrefix(value, r.Params.Argument.Value) {
			result.Completion.Values = append(result.Completion.Values, value)
		}
	}
	return result, nil
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

type spoken struct {
	Message string `json:"message"`
}

func (m *GoServer) addTools() {
	mcp.AddTool(m.server, &mcp.Tool{Name: "ask"}, who)
	mcp.AddTool(m.server, &mcp.Tool{Name: "count"}, m.count)
	mcp.AddTool(m.server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in spoken) (*mcp.CallToolResult, any, error) {
		return said("Echo: " + in.Message), nil, nil
	})
	mcp.AddTool(m.server, &mcp.Tool{Name: "log"}, logs)
}

func logs(ctx context.Context, r *mcp.CallToolRequest, in spoken) (*mcp.CallToolResult, any, error) {
	for _, level := range []mcp.LoggingLevel{"debug", "warning"} {
		params := &mcp.LoggingMessageParams{Level: level, Data: string(level) + ": " + in.Message}
		if err := r.Session.Log(ctx, params); err != nil {
			return nil, nil, err
		}
	}
	return said("logged"), nil, nil
}

const nameSchema = jsonSchema(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)

// jsonSchema is one as text.
type jsonSchema string

// MarshalJSON returns the text as it is.
func (s jsonSchema) MarshalJSON() ([]byte, error) { return []byte(s), nil }

// who asks for a name by a result that requires input.
func who(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	if answer, ok := r.Params.InputResponses["who"].(*mcp.ElicitResult); ok {
		return said(fmt.Sprintf("%s %v", answer.Action, answer.Content["name"])), nil, nil
	}
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{"who": &mcp.ElicitParams{Message: "Who is calling?", RequestedSchema: nameSchema}},
	}, nil, nil
}

type counting struct {
	Steps int `json:"steps"`
	Pause int `json:"pause"` // before each step, in milliseconds
}

func (m *GoServer) count(ctx context.Context, r *mcp.CallToolRequest, in counting) (*mcp.CallToolResult, any, error) {
	for i := range in.Steps {
		select {
		case <-time.After(time.Duration(in.Pause) * time.Millisecond):
		case <-ctx.Done():
			m.cancelled.Add(1)
			return nil, nil, ctx.Err()
		}
		token := r.Params.GetProgressToken()
		if token == nil {
			continue
		}
		step := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1), Total: float64(in.Steps)}
		if err := r.Session.NotifyProgress(ctx, step); err != nil {
			return nil, nil, err
		}
	}
	return said(fmt.Sprintf("counted %d", in.Steps)), nil, nil
}

func (m *GoServer) addPrompts() {
	message := func(text string) *mcp.GetPromptResult {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}
	}
	greet := &mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "name", Required: true}}}
	m.server.AddPrompt(greet, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return message("Greet " + r.Params.Arguments["name"] + "."), nil
	})
	m.server.AddPrompt(&mcp.Prompt{Name: "plan"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return message("Make a plan."), nil
	})
}

func (m *GoServer) addResources(scheme string) {
	addNotes(m.server, scheme)
	m.server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "items", URITemplate: scheme + "://items/{id}"}, read)
}

func read(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := r.Params.URI
	contents := []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: "This is " + uri + "."}}
	return &mcp.ReadResourceResult{Contents: contents}, nil
}

// addNotes adds two resources, and the tool that tells of their updates.
func addNotes(server *mcp.Server, scheme string) {
	uris := []string{scheme + "://notes/first", scheme + "://notes/second"}
	for _, uri := range uris {
		server.AddResource(&mcp.Resource{Name: uri, URI: uri}, read)
	}
	mcp.AddTool(server, &mcp.Tool{Name: "touch"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		for _, uri := range slices.Backward(uris) {
			if err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
				return nil, nil, err
			}
		}
		return said("touched"), nil, nil
	})
}
