//lint:file-ignore SA1019 Servers go on asking for what the newest revision deprecates.
package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// inputTimeout bounds the conversation of one client.
const inputTimeout = 30 * time.Second

// inputs is what the SDK's server returns in the end, for each of its tools that
// asks for input, and a prompt, to a client that answers as connect's does.
var inputs = map[string]string{
	"test_input_required_result_capabilities":    "Capability-aware input requests fulfilled",
	"test_input_required_result_elicitation":     "Hello, Ada!",
	"test_input_required_result_list_roots":      "Client exposed 1 root(s): file:///srv",
	"test_input_required_result_multi_round":     "Multi-round complete: Ada likes blue",
	"test_input_required_result_multiple_inputs": "Hello Ada — 1 root(s) visible",
	"test_input_required_result_prompt":          "Context: none",
	"test_input_required_result_request_state":   "state-ok: requestState received and confirmation accepted",
	"test_input_required_result_sampling":        "Sampling response: Hello",
}

// TestInput has a legacy client use what asks for input on a modern server, for
// which the suite has no scenario. It is to get what a modern client gets
// directly.
func TestInput(t *testing.T) {
	k := installed(t)
	target := k.fixture(t, modern)
	direct := ask(t, target, modern)
	if passed, failed := direct.total(direct.names()...); passed != len(inputs) || failed != 0 {
		t.Errorf("directly: %d as expected and %d not, want %d and 0", passed, failed, len(inputs))
	}
	through := ask(t, gateway(t, target, "modern"), legacy)
	compare(t, direct, through, true, exceptions(t, "testdata/input.yaml", "legacy client, modern server"))
}

// ask returns, as the suite would, whether each returns what it is to return.
func ask(t *testing.T, url, revision string) results {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), inputTimeout)
	defer cancel()
	session := connect(ctx, t, url, revision)
	defer session.Close()
	r := results{}
	for name, want := range inputs {
		var got string
		var err error
		if name == "test_input_required_result_prompt" {
			var result *mcp.GetPromptResult
			if result, err = session.GetPrompt(ctx, &mcp.GetPromptParams{Name: name}); err == nil && len(result.Messages) == 1 {
				got = text(result.Messages[0].Content)
			}
		} else {
			var result *mcp.CallToolResult
			if result, err = session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: map[string]any{}}); err == nil {
				got = text(result.Content...)
			}
		}
		c := check{ID: "result", Name: "Result", Status: success}
		if err != nil || got != want {
			c.Status, c.ErrorMessage = failure, fmt.Sprintf("%q, %v; want %q", got, err, want)
		}
		r[name] = []check{c}
	}
	return r
}

// connect is a client that answers whatever it is asked.
func connect(ctx context.Context, t *testing.T, url, revision string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "regogate-e2e", Version: "1.0.0"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "ok": true, "color": "blue", "context": "none"}}, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: "Hello"}}, nil
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///srv", Name: "srv"})
	if revision == modern {
		revision = "" // what the client takes by itself
	}
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func text(content ...mcp.Content) string {
	all := ""
	for _, c := range content {
		if block, ok := c.(*mcp.TextContent); ok {
			all += block.Text
		} else {
			all += fmt.Sprintf("%T", c)
		}
	}
	return all
}
