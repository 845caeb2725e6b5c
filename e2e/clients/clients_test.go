package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/clients"
)

// each runs f for every client and those of its eras that the test picks.
func each(t *testing.T, pick func(all []clients.Era) []clients.Era, f func(*testing.T, clients.Client, clients.Era)) {
	for _, client := range clients.All() {
		for _, era := range pick(client.Eras) {
			t.Run(client.Name+"/"+string(era), func(t *testing.T) { f(t, client, era) })
		}
	}
}

// faultOf returns the fault in err, which has to be one.
func faultOf(t *testing.T, err error) *clients.Fault {
	t.Helper()
	fault, ok := errors.AsType[*clients.Fault](err)
	if !ok {
		t.Fatalf("error %v, want a fault", err)
	}
	return fault
}

func call(name, arguments string) clients.Call {
	return clients.Call{Name: name, Arguments: json.RawMessage(arguments)}
}

// everythingTools is what server-everything offers to a client with no
// capabilities.
var everythingTools = []string{
	"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference",
	"get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource",
	"toggle-simulated-logging", "toggle-subscriber-updates", "trigger-long-running-operation",
	"simulate-research-query",
}

// TestEverything has every client talk to a third-party server, which speaks
// the legacy era only: those that can have to find out.
func TestEverything(t *testing.T) {
	url := clients.Everything(t.Context(), t, clients.StreamableHTTP)
	notLegacy := func(all []clients.Era) []clients.Era { return all[min(1, len(all)-1):] }
	each(t, notLegacy, func(t *testing.T, client clients.Client, era clients.Era) {
		got, err := client.Run(t.Context(), t, clients.Spec{
			URL: url, Era: era, Calls: []clients.Call{call("echo", `{"message":"hi"}`)},
		})
		if era == clients.Modern {
			faultOf(t, err)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		tools := everythingTools
		if client.Name == "inspector" { // the only one that cannot but declare roots
			tools = slices.Insert(slices.Clone(tools), len(tools)-1, "get-roots-list")
		}
		want := clients.Result{
			Client: client.Name, Era: era, Version: "2025-11-25", Tools: tools,
			Calls: []clients.CallResult{{Name: "echo", OK: true, Text: "Echo: hi"}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// TestDual has every client walk the pages of a server of both eras, and pins
// what each makes of a refusal.
func TestDual(t *testing.T) {
	url := dual(t)
	each(t, slices.Clone, func(t *testing.T, client clients.Client, era clients.Era) {
		spec := clients.Spec{URL: url, Token: token, Era: era, Calls: []clients.Call{call("echo", `{"message":"hi"}`)}}
		want := clients.Result{
			Client: client.Name, Era: era, Version: "2026-07-28",
			Tools: []string{"ask", "denied", "echo", "fails", "scoped"},
			Calls: []clients.CallResult{{Name: "echo", OK: true, Text: "Echo: hi"}},
		}
		if era == clients.Legacy || client.Name == "mcp-remote" { // whose own side is always legacy
			want.Version = "2025-11-25"
		}
		if era == client.Eras[len(client.Eras)-1] { // the others see the same
			for _, name := range []string{"fails", "hidden", "denied", "scoped"} {
				spec.Calls = append(spec.Calls, clients.Call{Name: name})
			}
			want.Calls = append(want.Calls, clients.CallResult{Name: "fails", IsError: true, Text: "it broke"})
			want.Calls = append(want.Calls, refusals(client.Name)...)
		}
		got, err := client.Run(t.Context(), t, spec)
		if err != nil {
			t.Fatal(err)
		}
		if g, w := indent(t, got), indent(t, want); g != w {
			t.Errorf("got  %s\nwant %s", g, w)
		}
	})
}

// refusals returns what the client makes of calling hidden, denied and scoped.
func refusals(client string) []clients.CallResult {
	hidden := clients.Problem{Code: -32602, Message: "Unknown tool: hidden"}
	denied := clients.Problem{Code: 403, Message: "Call denied", Data: json.RawMessage(`{"reasons":["too_much"]}`)}
	scoped := clients.Problem{Code: 403, Message: "More scope needed", Data: json.RawMessage(`{"reasons":["no_scope"]}`)}
	switch client {
	case "go-sdk":
		hidden.Message = `calling "tools/call": ` + hidden.Message
		denied.Message = `calling "tools/call": ` + denied.Message
		scoped.Message = `calling "tools/call": sending "tools/call": ` + scoped.Message + ": rejected by transport: Forbidden"
	case "ts-v1":
		hidden.Message = "MCP error -32602: " + hidden.Message
		denied.Message = "MCP error 403: " + denied.Message
		scoped = clients.Problem{Status: 403, Kind: "StreamableHTTPError", Message: "Streamable HTTP error: Error POSTing to endpoint: " +
			`{"jsonrpc":"2.0","id":8,"error":{"code":403,"message":"More scope needed","data":{"reasons":["no_scope"]}}}`}
	case "ts-v2":
		scoped = clients.Problem{Kind: "InsufficientScopeError", Message: `Insufficient scope: required "pay:write"`}
	case "inspector":
		hidden = clients.Problem{Kind: "tool_not_found", Message: "Tool 'hidden' not found on server."}
		denied = clients.Problem{Status: 403, Kind: "auth_required", Message: denied.Message}
		scoped = clients.Problem{Kind: "error", Message: `Insufficient scope: required "pay:write"`}
	case "mcp-remote":
		hidden.Message = "MCP error -32602: " + hidden.Message
		denied.Message = "MCP error 403: " + denied.Message
		scoped = clients.Problem{Code: -32001, Message: "MCP error -32001: mcp-remote: " +
			"Dynamic Client Registration rejected (HTTP 404): 404 page not found\n"}
	}
	return []clients.CallResult{
		{Name: "hidden", Error: &hidden}, {Name: "denied", Error: &denied}, {Name: "scoped", Error: &scoped},
	}
}

func indent(t *testing.T, v any) string {
	t.Helper()
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestUnauthorized has every client meet a 401.
func TestUnauthorized(t *testing.T) {
	url := dual(t)
	const noStatus, noCode = 0, 0
	tests := map[string]struct {
		stage, kind, message string
		code, status         int
	}{
		"go-sdk":         {"connect", "", "Unauthorized", noCode, noStatus},
		"ts-v1":          {"connect", "StreamableHTTPError", "Error POSTing to endpoint", noCode, 401},
		"ts-v2":          {"connect", "CLIENT_HTTP_AUTHENTICATION", "requires authorization", noCode, 401},
		"inspector":      {"connect", "auth_required", "requires authorization", noCode, noStatus},
		"mcp-remote":     {"connect", "", "Connection closed", -32000, noStatus},
		"python-sdk":     {"list", "", "Server returned an error response", -32603, noStatus},
		"python-fastmcp": {"list", "", "Server returned an error response", -32603, noStatus},
	}
	for _, client := range clients.All() {
		t.Run(client.Name, func(t *testing.T) {
			era := client.Eras[len(client.Eras)-1]
			got, err := client.Run(t.Context(), t, clients.Spec{URL: url, Token: "of.someone.else", Era: era})
			fault, want := faultOf(t, err), tests[client.Name]
			if fault.Stage != want.stage || fault.Kind != want.kind || fault.Code != want.code || fault.Status != want.status ||
				!strings.Contains(fault.Message, want.message) {
				t.Errorf("got %v, want %+v", fault, want)
			}
			if len(got.Tools) != 0 {
				t.Errorf("tools %v, want none", got.Tools)
			}
		})
	}
}

// TestAnswer has the clients answer what a server asks during a call, as each
// era does it. The Inspector can't, and says so.
func TestAnswer(t *testing.T) {
	everything := clients.Everything(t.Context(), t, clients.StreamableHTTP)
	modern := dual(t)
	ends := func(all []clients.Era) []clients.Era {
		return slices.Compact([]clients.Era{all[0], all[len(all)-1]})
	}
	each(t, ends, func(t *testing.T, client clients.Client, era clients.Era) {
		spec := clients.Spec{Token: token, Era: era, Answer: json.RawMessage(`{"name":"Ann","check":true}`)}
		want := "accept Ann state-1"
		spec.URL, spec.Calls = modern, []clients.Call{{Name: "ask"}}
		if era == clients.Legacy {
			want = "- Name: Ann\n- Agreed to terms: true"
			spec.URL, spec.Calls = everything, []clients.Call{{Name: "trigger-elicitation-request"}}
		}
		got, err := client.Run(t.Context(), t, spec)
		if client.Name == "inspector" {
			if message := faultOf(t, err).Message; !strings.Contains(message, "answers no elicitation") {
				t.Errorf("fault %q", message)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if c := got.Calls[0]; !c.OK || !strings.Contains(c.Text, want) {
			t.Errorf("got %+v, want %q in the text", c, want)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, client := range clients.All() {
		t.Run(client.Name, func(t *testing.T) {
			if _, err := client.Run(t.Context(), t, clients.Spec{}); err == nil || !strings.Contains(err.Error(), `does not speak era ""`) {
				t.Errorf("without an era: error %v", err)
			}
			_, err := client.Run(ended, t, clients.Spec{URL: "http://127.0.0.1:1/mcp", Era: clients.Legacy})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("when cancelled: error %v", err)
			}
		})
	}
}
