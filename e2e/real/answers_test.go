package real_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/regogate/regogate/e2e/clients"
)

// answersAlike compares, byte for byte, what goes over the wire for a hidden
// name and for one of the same length that does not exist.
func answersAlike(t *testing.T, s *stand) {
	const modern = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	url := s.URL + "/mcp"
	before := s.arrivals(t)
	for _, persona := range personas() {
		token := s.tokens[persona]
		session := open(t, url, token)
		call := map[clients.Era]func(name string) reply{
			clients.Legacy: func(name string) reply {
				return post(t, url, token, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+name+`","arguments":{}}}`,
					"Mcp-Session-Id", session)
			},
			clients.Modern: func(name string) reply {
				return post(t, url, token, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+name+`","arguments":{},"_meta":{`+modern+`}}}`,
					"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", name)
			},
		}
		_, hidden := s.expected(t, persona)
		for era, ask := range call {
			for _, pair := range s.twins(hidden) {
				a, b := plain(ask(pair[0]), pair[0]), plain(ask(pair[1]), pair[1])
				if a != b {
					t.Errorf("%s, %s: %s is answered\n%s\nand %s\n%s", persona, era, pair[0], a, pair[1], b)
				}
				if want := `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"Unknown tool: NAME"}}`; !strings.HasSuffix(a, want) {
					t.Errorf("%s, %s: %s is answered\n%s\nwant %s", persona, era, pair[0], a, want)
				}
			}
		}
	}
	s.arrived(t, before, nil)
}

// plain is a whole answer, but for the name and what is new in every answer.
func plain(r reply, name string) string {
	var lines []string
	for key, values := range r.header {
		if key != "Date" && key != "X-Request-Id" {
			lines = append(lines, fmt.Sprintf("%s: %q", key, values))
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%d\n%s\n%s", r.status, strings.Join(lines, "\n"), strings.ReplaceAll(r.body, name, "NAME"))
}

// serverRoutes looks at each server on its own route, and at one that is not there.
func serverRoutes(t *testing.T, s *stand) {
	sdk := clients.All()[0]
	for _, persona := range personas() {
		visible, hidden := s.expected(t, persona)
		for _, server := range []string{everything, everythingHTTP, files, ledger, memory, "nobody"} {
			own := under(visible, server)
			vain := under(hidden, server)
			if vain == nil {
				vain = []string{"nothing"}
			}
			spec := clients.Spec{URL: s.URL + "/mcp/" + server, Token: s.tokens[persona], Era: clients.Legacy}
			spec.Calls = []clients.Call{{Name: vain[0]}, {Name: vain[0][:len(vain[0])-1] + "q"}}
			before := s.arrivals(t)
			got, err := sdk.Run(t.Context(), t, spec)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tools, own) {
				t.Errorf("%s on /mcp/%s: listed %v, want %v", persona, server, got.Tools, own)
			}
			alike(t, sdk.Name, [][2]string{{spec.Calls[0].Name, spec.Calls[1].Name}}, got.Calls)
			s.arrived(t, before, nil)
		}
	}
}

// under returns the server's own names of its tools.
func under(exposed []string, server string) []string {
	var names []string
	for _, name := range exposed {
		if own, ok := strings.CutPrefix(name, server+"__"); ok {
			names = append(names, own)
		}
	}
	return names
}

// together has both personas list and call at the same time, in many sessions.
func together(t *testing.T, s *stand) {
	const sessions, rounds = 6, 10
	visible := map[string][]string{}
	for _, persona := range personas() {
		visible[persona], _ = s.expected(t, persona)
	}
	before := s.arrivals(t)
	only := map[string]string{builder: everything + "__echo", clerk: everythingHTTP + "__echo"}
	var runs errgroup.Group
	var mu sync.Mutex
	called := map[string]int{}
	for i := range sessions {
		persona := personas()[i%2]
		other := personas()[1-i%2]
		runs.Go(func() error {
			session, err := connect(t, s.URL+"/mcp", s.tokens[persona], nil)
			if err != nil {
				return err
			}
			defer session.Close()
			for range rounds {
				names, err := listNames(t, session)
				if err != nil {
					return err
				}
				if !slices.Equal(names, visible[persona]) {
					return fmt.Errorf("%s was listed %v", persona, names)
				}
				params := &mcp.CallToolParams{Name: only[persona], Arguments: map[string]any{"message": persona}}
				result, err := session.CallTool(t.Context(), params)
				if err != nil || result.IsError || text(result) != "Echo: "+persona {
					return fmt.Errorf("%s called %s: %v, %q", persona, params.Name, err, text(result))
				}
				params.Name = only[other]
				if _, err := session.CallTool(t.Context(), params); err == nil || !strings.Contains(err.Error(), "Unknown tool: "+params.Name) {
					return fmt.Errorf("%s called %s: %v", persona, params.Name, err)
				}
				mu.Lock()
				called[persona]++
				mu.Unlock()
			}
			return nil
		})
	}
	if err := runs.Wait(); err != nil {
		t.Fatal(err)
	}
	s.arrived(t, before, append(slices.Repeat([]string{only[builder]}, called[builder]), slices.Repeat([]string{only[clerk]}, called[clerk])...))
}

// connect opens a legacy-era session of the Go SDK's client. changed is told
// when the server says that the list has changed.
func connect(t testing.TB, url, token string, changed func()) (*mcp.ClientSession, error) {
	t.Helper()
	return connectAs(t, "2025-11-25", url, token, changed)
}

// connectAs is connect with a client of another revision.
func connectAs(t testing.TB, version, url, token string, changed func()) (*mcp.ClientSession, error) {
	t.Helper()
	options := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	if changed != nil {
		options.ToolListChangedHandler = func(_ context.Context, _ *mcp.ToolListChangedRequest) { changed() }
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "regogate-e2e", Version: "1.0.0"}, options)
	transport := &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}}
	return client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
}

func listNames(t testing.TB, session *mcp.ClientSession) ([]string, error) {
	t.Helper()
	var names []string
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

func text(result *mcp.CallToolResult) string {
	if result == nil {
		return ""
	}
	var all []string
	for _, content := range result.Content {
		if block, ok := content.(*mcp.TextContent); ok {
			all = append(all, block.Text)
		}
	}
	return strings.Join(all, "\n")
}

// bearer sends requests with the token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// environment shows that a server over stdio does not inherit what the gateway
// has in its environment, and that no server is sent a client's token.
func environment(t *testing.T, s *stand) {
	session, err := connect(t, s.URL+"/mcp", s.tokens[builder], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: everything + "__get-env"})
	if err != nil {
		t.Fatal(err)
	}
	seen := text(result)
	if !strings.Contains(seen, teeVariable) {
		t.Errorf("the environment of the server lacks what is configured: %s", seen)
	}
	if strings.Contains(seen, "REGOGATE_E2E_SECRET") {
		t.Errorf("the environment of the server has what is the gateway's: %s", seen)
	}
	for server, r := range s.recorders {
		for _, m := range r.messages(t) {
			sent := fmt.Sprint(m.header, m.raw)
			if strings.Contains(sent, s.tokens[builder]) || strings.Contains(sent, s.tokens[clerk]) || m.header.Get("Authorization") != "" {
				t.Errorf("server %s was sent a client's token: %s", server, sent)
			}
		}
	}
}
