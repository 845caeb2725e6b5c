package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
)

// official is a server of the official SDK with something of everything.
func official() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "official", Version: "1"}, &sdk.ServerOptions{
		Instructions: "Be kind.",
		CompletionHandler: func(_ context.Context, r *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{r.Params.Argument.Value + "!"}}}, nil
		},
		SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
	})
	sdk.AddTool(s, &sdk.Tool{Name: "greet"}, func(_ context.Context, _ *sdk.CallToolRequest, in struct{ Who string }) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hello " + in.Who}}}, nil, nil
	})
	s.AddPrompt(&sdk.Prompt{Name: "poem", Arguments: []*sdk.PromptArgument{{Name: "topic"}}}, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "on " + r.Params.Arguments["topic"]}}}}, nil
	})
	read := func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, Text: "at " + r.Params.URI}}}, nil
	}
	s.AddResource(&sdk.Resource{Name: "one", URI: "doc://one"}, read)
	s.AddResourceTemplate(&sdk.ResourceTemplate{Name: "more", URITemplate: "doc://more/{id}"}, read)
	return s
}

// officials runs a gateway with one such server of each era, old and now.
func officials(t *testing.T) (g *rig, servers map[string]*sdk.Server) {
	t.Helper()
	servers = map[string]*sdk.Server{"old": official(), "now": official()}
	web := map[string]*httptest.Server{}
	for name, s := range servers {
		web[name] = httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: name == "now"}))
		t.Cleanup(web[name].Close)
	}
	r := newRules(t)
	w := start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		Adjust: func(c *gateway.Config) {
			c.Policy.Dir, c.Policy.Deadline = r.dir, 10*time.Second
			for name, protocol := range map[string]string{"old": "legacy", "now": "modern"} {
				c.Servers[name] = gateway.Server{Config: upstream.Config{URL: web[name].URL, Protocol: protocol}}
			}
		},
	})
	return &rig{w, t, r}, servers
}

// TestEveryPairOfEras uses everything of servers of both eras as clients of
// both.
func TestEveryPairOfEras(t *testing.T) {
	g, servers := officials(t)
	for server := range servers {
		for era, p := range map[string]*peer{"legacy": legacy(t, g.World, "/mcp", "developer", able), "modern": modern(t, g.World, "/mcp", "developer")} {
			pair := era + " client, server " + server
			for _, ask := range []struct{ method, params, want string }{
				{"tools/list", `{}`, `"name":"` + server + `__greet"`},
				{"prompts/list", `{}`, `"name":"` + server + `__poem"`},
				{"resources/list", `{}`, `"uri":"doc://one"`},
				{"resources/templates/list", `{}`, `"uriTemplate":"doc://more/{id}"`},
				{"tools/call", `{"name":"` + server + `__greet","arguments":{"Who":"you"}}`, `"text":"hello you"`},
				{"prompts/get", `{"name":"` + server + `__poem","arguments":{"topic":"rain"}}`, `"text":"on rain"`},
				{"resources/read", `{"uri":"doc://one"}`, `"text":"at doc://one"`},
				{"resources/read", `{"uri":"doc://more/7"}`, `"text":"at doc://more/7"`},
				{"completion/complete", `{"ref":{"type":"ref/prompt","name":"` + server + `__poem"},"argument":{"name":"topic","value":"sno"}}`, `"values":["sno!"]`},
				{"completion/complete", `{"ref":{"type":"ref/resource","uri":"doc://more/{id}"},"argument":{"name":"id","value":"4"}}`, `"values":["4!"]`},
			} {
				status, answer := p.do(ask.method, ask.params)
				if status != http.StatusOK || !strings.Contains(answer, ask.want) || strings.HasPrefix(answer, "error") {
					t.Errorf("%s: %s: %d %s", pair, ask.method, status, answer)
				}
				if era == "modern" && !strings.Contains(answer, `"resultType":"complete"`) {
					t.Errorf("%s: %s has no resultType: %s", pair, ask.method, answer)
				}
				cached := strings.HasSuffix(ask.method, "/list") || ask.method == "resources/read"
				if era == "modern" && cached && (!strings.Contains(answer, `"cacheScope":"private"`) || !strings.Contains(answer, `"ttlMs":`)) {
					t.Errorf("%s: %s may be cached: %s", pair, ask.method, answer)
				}
			}
		}
	}
}

// TestListsAndResourcesChangeInEveryPair has servers of both eras tell clients
// of both.
func TestListsAndResourcesChangeInEveryPair(t *testing.T) {
	g, servers := officials(t)
	streams := ears(t, g.World, "/mcp", "developer")
	g.watched(2)
	for name, s := range servers {
		s.AddPrompt(&sdk.Prompt{Name: "another"}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) { return nil, nil })
		for who, e := range streams {
			e.hears(who+" of "+name, "prompts")
		}
	}
	for name, s := range servers {
		l := legacy(t, g.World, "/mcp/"+name, "payments", able)
		own := l.get("")
		if _, answer := l.do("resources/subscribe", `{"uri":"doc://one"}`); answer != `{}` {
			t.Fatalf("%s: subscribe: %s", name, answer)
		}
		f := modern(t, g.World, "/mcp/"+name, "support").open("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["doc://one"]}}`)
		if got := f.next(); !strings.Contains(got, `"resourceSubscriptions":["doc://one"]`) {
			t.Fatalf("%s: listen: %s", name, got)
		}
		if err := s.ResourceUpdated(t.Context(), &sdk.ResourceUpdatedNotificationParams{URI: "doc://one"}); err != nil {
			t.Fatal(err)
		}
		for era, f := range map[string]*flow{"legacy": own, "modern": f} {
			if got := f.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{`) || !strings.Contains(got, `"uri":"doc://one"`) {
				t.Errorf("%s client, server %s: %s", era, name, got)
			}
			f.cut()
		}
	}
}

// TestInputAcrossErasIsRefused is where the eras' ways to ask the client do not
// meet: the call, or the server's request, fails and says why.
func TestInputAcrossErasIsRefused(t *testing.T) {
	g := newRig(t, nil, needy("needy"), asker("asker"))
	l, m := legacy(t, g.World, "/mcp", "developer", able), modern(t, g.World, "/mcp", "developer")
	const want = `error {"code":-32603,"message":"server needy asks for input, which this client's protocol revision cannot give to it","data":{"server":"needy","reason":"backend_broken"}}`
	if _, answer := l.do("tools/call", `{"name":"needy__need"}`); answer != want {
		t.Errorf("legacy client, modern server: %s\nwant %s", answer, want)
	}
	_, answer := m.do("tools/call", asking("asker__ask", `1`, "roots/list", `{}`))
	result, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + answer + `}`))
	if err != nil {
		t.Fatalf("modern client, legacy server: %s", answer)
	}
	if got, want := said(t, result), `error {"code":-32601,"message":"the client speaks MCP 2026-07-28, in which servers send no requests: roots/list cannot reach it"}`; got != want {
		t.Errorf("modern client, legacy server: the server got %s\nwant %s", got, want)
	}
}
