package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	legacyRevision = "2025-11-25"
	modernRevision = "2026-07-28"
)

// runSDK is the Go SDK's client, in this process. It has no way of its own to
// insist on the modern era, so this does.
func runSDK(ctx context.Context, _ testing.TB, spec Spec) (Result, error) {
	result := Result{Client: "go-sdk", Era: spec.Era}
	session, err := connectSDK(ctx, spec)
	if ctx.Err() != nil {
		return result, fmt.Errorf("connecting: %w", context.Cause(ctx))
	}
	if err != nil {
		return result, fault("connect", err)
	}
	result.Version = session.InitializeResult().ProtocolVersion
	if spec.Era == Modern && result.Version < modernRevision {
		return result, fault("connect", errors.Join(fmt.Errorf("the server offers %s only", result.Version), session.Close()))
	}
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return result, fault("list", errors.Join(err, session.Close()))
		}
		result.Tools = append(result.Tools, tool.Name)
	}
	for _, call := range spec.Calls {
		result.Calls = append(result.Calls, callSDK(ctx, session, call))
	}
	if err := session.Close(); err != nil {
		return result, fault("close", err)
	}
	return result, nil
}

func connectSDK(ctx context.Context, spec Spec) (*mcp.ClientSession, error) {
	options := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	if spec.Answer != nil {
		var content map[string]any
		if err := json.Unmarshal(spec.Answer, &content); err != nil {
			return nil, fmt.Errorf("decoding the answer: %w", err)
		}
		options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		}
	}
	version := ""
	if spec.Era == Legacy {
		version = legacyRevision
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "regogate-e2e", Version: "1.0.0"}, options)
	transport := &mcp.StreamableClientTransport{Endpoint: spec.URL, HTTPClient: &http.Client{Transport: bearer(spec.Token)}}
	return client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
}

func callSDK(ctx context.Context, session *mcp.ClientSession, call Call) CallResult {
	out := CallResult{Name: call.Name}
	params := &mcp.CallToolParams{Name: call.Name}
	if call.Arguments != nil {
		params.Arguments = call.Arguments
	}
	result, err := session.CallTool(ctx, params)
	if err != nil {
		out.Error = problem(err)
		return out
	}
	var text []string
	for _, content := range result.Content {
		if block, ok := content.(*mcp.TextContent); ok {
			text = append(text, block.Text)
		}
	}
	out.OK, out.IsError, out.Text = !result.IsError, result.IsError, strings.Join(text, "\n")
	return out
}

func fault(stage string, err error) *Fault { return &Fault{Stage: stage, Problem: *problem(err)} }

func problem(err error) *Problem {
	p := &Problem{Message: err.Error()}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		p.Code, p.Data = int(wire.Code), wire.Data
	}
	return p
}

// bearer sends requests with the token, if it isn't empty.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}
