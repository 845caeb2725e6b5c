//lint:file-ignore SA1019 what the modern era gives up is still what legacy clients and servers have

package clients

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// NewAsker starts a server of the Go SDK that speaks the legacy era alone, over
// Streamable HTTP, and returns its URL. Its tools person, model and roots ask
// the client for what they are called, and say what came of that; touch tells
// that its two resources, ask://notes/first and ask://notes/second, were
// updated, the second one first. It ends with the test.
func NewAsker(t testing.TB) (url string) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "asker", Version: "1.0.0"},
		&mcp.ServerOptions{
			SupportedProtocolVersions: []string{legacyRevision},
			SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
			UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		})
	addNotes(server, "ask")
	for name, ask := range map[string]func(context.Context, *mcp.ServerSession) (string, error){
		"person": askPerson, "model": askModel, "roots": askRoots,
	} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			answer, err := ask(ctx, r.Session)
			return said(answer), nil, err
		})
	}
	front := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front.URL + "/mcp"
}

func askPerson(ctx context.Context, s *mcp.ServerSession) (string, error) {
	r, err := s.Elicit(ctx, &mcp.ElicitParams{Message: "Who is calling?", RequestedSchema: nameSchema})
	if err != nil {
		return "", err
	}
	name, _ := r.Content["name"].(string)
	return r.Action + " " + name, nil
}

func askModel(ctx context.Context, s *mcp.ServerSession) (string, error) {
	question := &mcp.SamplingMessage{Role: "user", Content: &mcp.TextContent{Text: "Say something."}}
	r, err := s.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{question}})
	if err != nil {
		return "", err
	}
	return contentText([]mcp.Content{r.Content}), nil
}

func askRoots(ctx context.Context, s *mcp.ServerSession) (string, error) {
	r, err := s.ListRoots(ctx, nil)
	if err != nil {
		return "", err
	}
	var uris []string
	for _, root := range r.Roots {
		uris = append(uris, root.URI)
	}
	return strings.Join(uris, " "), nil
}
