package real_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/clients"
)

// The messages of a legacy-era client that lists tools.
const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	listTools   = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
)

// reply is what an HTTP server answered.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends one message over Streamable HTTP. Headers are pairs of a name and
// a value.
func post(t testing.TB, url, token, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(out)}
}

// open begins a legacy-era session and returns its id.
func open(t testing.TB, url, token string) string {
	t.Helper()
	r := post(t, url, token, initialize)
	id := r.header.Get("Mcp-Session-Id")
	if r.status != http.StatusOK || id == "" {
		t.Fatalf("initialize: status %d, session %q: %s", r.status, id, r.body)
	}
	post(t, url, token, initialized, "Mcp-Session-Id", id)
	return id
}

// offered is one tool as its server defines it.
type offered struct {
	server, name string
	raw          json.RawMessage
}

// exposed is the name on the gateway's aggregate route.
func (o offered) exposed() string { return o.server + "__" + o.name }

// tools reads the answer to listTools, or returns nil where it is something else.
func tools(t testing.TB, server, line string) []offered {
	t.Helper()
	var m struct {
		ID     any
		Result struct{ Tools []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("server %s: %v: %s", server, err, line)
	}
	if m.ID != float64(2) {
		return nil
	}
	var all []offered
	for _, raw := range m.Result.Tools {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatalf("server %s: %v: %s", server, err, raw)
		}
		all = append(all, offered{server, tool.Name, raw})
	}
	return all
}

// askStdio starts a server for itself and asks it what it offers.
func askStdio(t testing.TB, server string, command clients.Command) []offered {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command.Path, command.Args...)
	cmd.Env = os.Environ()
	for name, value := range command.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = cmd.Wait() }() // it ends with its input
	if _, err := io.WriteString(in, initialize+"\n"+initialized+"\n"+listTools+"\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("asking server %s what it offers: %v", server, err)
		}
		if all := tools(t, server, line); all != nil {
			return all
		}
	}
}

// askHTTP asks a legacy-era server what it offers.
func askHTTP(t testing.TB, server, url string) []offered {
	t.Helper()
	r := post(t, url, "", listTools, "Mcp-Session-Id", open(t, url, ""))
	for line := range strings.Lines(r.body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if all := tools(t, server, data); all != nil {
				return all
			}
		}
	}
	t.Fatalf("server %s does not say what it offers: status %d: %s", server, r.status, r.body)
	return nil
}
