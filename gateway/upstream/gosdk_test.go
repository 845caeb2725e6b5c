package upstream

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/regogate/regogate/gateway/mcp"
)

type sdkInput struct {
	Text string `json:"text"`
}

// sdkServer is a server made with the official SDK.
func sdkServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "official", Version: "1.8.0"}, &sdk.ServerOptions{
		Instructions: "speak up",
		PageSize:     2,
	})
	for _, name := range []string{"b", "a", "c", "d", "e"} {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: "tool " + name}, func(_ context.Context, _ *sdk.CallToolRequest, in sdkInput) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: name + ":" + in.Text}}}, nil, nil
		})
	}
	sdk.AddTool(s, &sdk.Tool{Name: "progress"}, func(ctx context.Context, r *sdk.CallToolRequest, in sdkInput) (*sdk.CallToolResult, any, error) {
		for i := range 3 {
			err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)})
			if err != nil {
				return nil, nil, err
			}
		}
		return &sdk.CallToolResult{}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "wait"}, func(ctx context.Context, r *sdk.CallToolRequest, in sdkInput) (*sdk.CallToolResult, any, error) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // without a session the SDK need not learn of a cancellation
		}
		return nil, nil, context.Canceled
	})
	return s
}

// TestOfficialServers talks to servers of the official SDK, with and without
// sessions, with streams and without, in the eras they speak.
func TestOfficialServers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		options  sdk.StreamableHTTPOptions
		protocol string
		version  string
	}{
		{"stateful", sdk.StreamableHTTPOptions{}, "auto", "2025-11-25"},
		{"stateful with JSON", sdk.StreamableHTTPOptions{JSONResponse: true}, "auto", "2025-11-25"},
		{"stateful and resumable", sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)}, "auto", "2025-11-25"},
		{"stateless", sdk.StreamableHTTPOptions{Stateless: true}, "auto", "2026-07-28"},
		{"stateless with JSON", sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}, "modern", "2026-07-28"},
		{"stateless in the legacy era", sdk.StreamableHTTPOptions{Stateless: true}, "legacy", "2025-11-25"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testOfficial(t, sdkServer(), tt.options, tt.protocol, tt.version)
		})
	}
}

func testOfficial(t *testing.T, server *sdk.Server, options sdk.StreamableHTTPOptions, protocol, version string) {
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &options))
	t.Cleanup(web.Close)
	o := quick(nil)
	o.Refresh = time.Hour
	p := running(t, map[string]Config{"alpha": {URL: web.URL, Protocol: protocol}}, o)
	s := p.Current().Server("alpha")
	if !s.Up || s.Version != version || s.Instructions != "speak up" {
		t.Fatalf("up %v, problem %q, version %q, instructions %q", s.Up, s.Problem, s.Version, s.Instructions)
	}
	wantNames(t, s, "a", "b", "c", "d", "e", "progress", "wait")
	m, err := callTool(t.Context(), p, "alpha", "someone", "b", `{"text":"hello"}`)
	if got := must(t, m, err); !strings.Contains(got, `"text":"b:hello"`) {
		t.Errorf("the result is %s", got)
	}
	if !options.JSONResponse {
		var tokens []string
		m, err = p.Do(t.Context(), Call{
			Server: "alpha", Peer: testPeer("someone"), Method: "tools/call",
			Params: jsontext.Value(`{"name":"progress","arguments":{"text":""},"_meta":{"progressToken":"mine"}}`),
			Notify: func(m *mcp.Message) { tokens = append(tokens, m.Method+" "+string(progressOf(m).Raw())) },
		})
		must(t, m, err)
		if want := slices.Repeat([]string{`notifications/progress "mine"`}, 3); !slices.Equal(tokens, want) {
			t.Errorf("the notifications are %q", tokens)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = callTool(ctx, p, "alpha", "someone", "wait", `{"text":""}`)
	wantKind(t, err, Timeout, "alpha")
	m, err = callTool(t.Context(), p, "alpha", "someone", "none", `{}`)
	if err != nil || m.Err().Code != mcp.CodeInvalidParams {
		t.Errorf("an unknown tool gave %v, %v", m, err)
	}
	// The SDK tells of changes; what it then lists has one more.
	sdk.AddTool(server, &sdk.Tool{Name: "late"}, func(context.Context, *sdk.CallToolRequest, sdkInput) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{}, nil, nil
	})
	if !options.Stateless || version == "2026-07-28" {
		until(t, p, "the late tool", func(s *State) bool { return s.Server("alpha").Tool("late") != nil })
	}
}
