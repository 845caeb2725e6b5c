// Package clients drives third-party MCP clients and servers, pinned in this
// directory, for end-to-end tests. README.md lists them and says how each
// behaves.
package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// Era says which protocol era a client is told to speak.
type Era string

// The eras. Legacy clients send initialize. Modern ones speak 2026-07-28 and
// nothing else. Auto asks the server first and takes the newer one it offers.
const (
	Legacy Era = "legacy"
	Auto   Era = "auto"
	Modern Era = "modern"
)

// Spec says what a client is to do: connect, list all tools, make the calls
// one after the other, and disconnect.
type Spec struct {
	URL   string
	Token string // bearer token; none when empty
	Era   Era
	Calls []Call
	// Answer, when it isn't nil, has the client declare form elicitation and
	// accept whatever it is asked with this content, a JSON object. The
	// Inspector can't: its run ends in a Fault.
	Answer json.RawMessage
	// Sample, when it isn't empty, has the client declare sampling and give
	// this text as the model's. Only go-sdk, ts-v1, ts-v2 and mcp-remote can.
	Sample string
	// Roots, when there are any, are declared and listed by those same clients.
	Roots []string
}

// Call is one request, or one wait. By its method, Name and Arguments are:
//
//	tools/call, prompts/get           the name and the arguments; "" is tools/call
//	resources/read                    the URI; no arguments
//	resources/subscribe               the URI; in the modern era it is listened for
//	completion/complete               a prompt's name or a URI template; {"argument":…,"context":…}
//	logging/setLevel                  the level
//	prompts/list, resources/list,
//	resources/templates/list          neither
//	await                             a notification's method; {"contains":"…"}: waits up to 10 s for one with that text
//
// The Inspector has no completion/complete, resources/subscribe and await;
// python-fastmcp has no resources/subscribe, python-sdk only the legacy one.
type Call struct {
	Method    string
	Name      string
	Arguments json.RawMessage // a JSON object; nil stands for an empty one
	Progress  bool            // of a tool: ask for its progress
	Cancel    bool            // of a tool: ask for its progress, and cancel the call at the first
	LogLevel  string          // of a tool, in the modern era: ask for log messages
}

// Result is what one run of a client saw.
type Result struct {
	Client  string       `json:"client"`
	Era     Era          `json:"era"`
	Version string       `json:"version"` // protocol revision that the client takes as negotiated
	Tools   []string     `json:"tools"`   // names of all pages, in the server's order
	Calls   []CallResult `json:"calls"`   // one for each Spec.Calls, in that order
}

// CallResult is the outcome of one call. OK: a result came and is no error.
// IsError: a result came and says that the tool failed. Otherwise Error is set.
type CallResult struct {
	Name     string   `json:"name"`
	OK       bool     `json:"ok"`
	IsError  bool     `json:"isError"`
	Text     string   `json:"text"`     // text blocks of the result, a line break between two; what was awaited
	Items    []string `json:"items"`    // names, URIs or templates of a list's pages; values of a completion
	Progress []string `json:"progress"` // such as 1/4, in the order in which it came
	Error    *Problem `json:"error"`
}

// Problem is what a client makes of an error that it met. Clients differ in
// what they tell; what one does not tell is zero.
type Problem struct {
	Code    int             `json:"code"`   // of the JSON-RPC error
	Status  int             `json:"status"` // of the HTTP response
	Kind    string          `json:"kind"`   // the client's own name for it
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"` // of the JSON-RPC error
}

func (p *Problem) String() string {
	return fmt.Sprintf("%s (code %d, status %d, kind %q)", p.Message, p.Code, p.Status, p.Kind)
}

// Fault is the error of a run that did not get to its end because the server
// or the way there failed at Stage: connect, list or close.
type Fault struct {
	Stage string `json:"stage"`
	Problem
}

func (f *Fault) Error() string { return f.Stage + ": " + f.Problem.String() }

// Client is one client. The zero value is of no use; All has them.
type Client struct {
	Name  string
	Eras  []Era
	drive func(context.Context, testing.TB, Spec) (Result, error)
}

// All returns every client, the one that needs no installation first.
func All() []Client {
	node, python := []string{"node"}, []string{".venv/bin/python", "-B"}
	return []Client{
		{"go-sdk", []Era{Legacy, Auto, Modern}, runSDK},
		{"ts-v1", []Era{Legacy}, driver(node, "ts-v1.mjs")},
		{"ts-v2", []Era{Legacy, Auto, Modern}, driver(node, "ts-v2.mjs")},
		{"inspector", []Era{Legacy, Auto, Modern}, driver(node, "inspector.mjs")},
		{"mcp-remote", []Era{Legacy, Auto}, driver(node, "mcp-remote.mjs")},
		{"python-sdk", []Era{Legacy, Auto, Modern}, driver(python, "python-sdk.py")},
		{"python-fastmcp", []Era{Legacy, Auto, Modern}, driver(python, "python-fastmcp.py")},
	}
}

const runTimeout = time.Minute

// Run has the client do what spec says. It returns a *Fault, with what the
// client had seen until then, when the server did not let the client get
// through; any other error means that the client did not run properly. Failed
// calls are part of the result. Where the client isn't installed, the test is
// skipped or, if REGOGATE_E2E is 1, failed. Runs may be concurrent; one that
// takes longer than a minute is ended.
func (c Client) Run(ctx context.Context, t testing.TB, spec Spec) (Result, error) {
	t.Helper()
	if !slices.Contains(c.Eras, spec.Era) {
		return Result{}, fmt.Errorf("%s does not speak era %q", c.Name, spec.Era)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("no answer in %v", runTimeout))
	defer cancel()
	result, err := c.drive(ctx, t, spec)
	if err != nil {
		return result, fmt.Errorf("%s (%s): %w", c.Name, spec.Era, err)
	}
	return result, nil
}
