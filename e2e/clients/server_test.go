package clients_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/regogate/regogate/e2e/clients"
)

// session connects the Go SDK's client and returns the names of the tools too.
func session(t *testing.T, transport mcp.Transport) (*mcp.ClientSession, []string) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "regogate-e2e", Version: "1.0.0"},
		&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	s, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var tools []string
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool.Name)
	}
	return s, tools
}

func TestStdio(t *testing.T) {
	clients.Dir(t) // skips before anything is set up
	dir := t.TempDir()
	file := filepath.Join(dir, "note.txt")
	if err := os.WriteFile(file, []byte("a note"), 0o600); err != nil {
		t.Fatal(err)
	}
	entity := map[string]any{"name": "regogate", "entityType": "gateway", "observations": []string{"it denies"}}
	tests := []struct {
		server    string
		tools     int
		call      string
		arguments map[string]any
		want      string
	}{
		{"everything", 13, "get-sum", map[string]any{"a": 2, "b": 3}, "The sum of 2 and 3 is 5."},
		{"filesystem", 14, "read_text_file", map[string]any{"path": file}, "a note"},
		{"memory", 9, "create_entities", map[string]any{"entities": []any{entity}}, "it denies"},
	}
	for _, test := range tests {
		t.Run(test.server, func(t *testing.T) {
			command := clients.Stdio(t, test.server, dir)
			cmd := exec.CommandContext(t.Context(), command.Path, command.Args...)
			cmd.Env = os.Environ()
			for name, value := range command.Env {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			s, tools := session(t, &mcp.CommandTransport{Command: cmd})
			if len(tools) != test.tools {
				t.Errorf("%d tools, want %d: %v", len(tools), test.tools, tools)
			}
			result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: test.call, Arguments: test.arguments})
			if err != nil {
				t.Fatal(err)
			}
			if text, ok := result.Content[0].(*mcp.TextContent); !ok || !strings.Contains(text.Text, test.want) {
				t.Errorf("%s: got %+v, want %q in it", test.call, result.Content[0], test.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "memory.jsonl")); err != nil {
		t.Error(err)
	}
}

// TestServerEnds also shows that the server is up when Everything returns.
func TestServerEnds(t *testing.T) {
	var url string
	t.Run("up", func(t *testing.T) {
		url = clients.Everything(t.Context(), t, clients.SSE)
		if _, tools := session(t, &mcp.SSEClientTransport{Endpoint: url}); len(tools) != len(everythingTools) {
			t.Errorf("tools %v", tools)
		}
	})
	if url == "" {
		t.Skip("the server is not installed")
	}
	if response, err := http.Get(url); err == nil {
		response.Body.Close()
		t.Error("the server goes on after its test")
	}
}
