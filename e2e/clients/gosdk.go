//lint:file-ignore SA1019 what the modern era gives up is still what legacy clients and servers have

package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	box := newInbox()
	session, err := connectSDK(ctx, spec, box)
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
		result.Calls = append(result.Calls, (&operation{session, box, call}).attempt(ctx))
	}
	if err := session.Close(); err != nil {
		return result, fault("close", err)
	}
	return result, nil
}

func connectSDK(ctx context.Context, spec Spec, box *inbox) (*mcp.ClientSession, error) {
	options := &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{},
		ProgressNotificationHandler: box.progress,
		LoggingMessageHandler:       box.message,
		ResourceUpdatedHandler:      box.updated,
	}
	if spec.Answer != nil {
		var content map[string]any
		if err := json.Unmarshal(spec.Answer, &content); err != nil {
			return nil, fmt.Errorf("decoding the answer: %w", err)
		}
		options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		}
	}
	if spec.Sample != "" {
		options.CreateMessageHandler = func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "none", Role: "assistant", Content: &mcp.TextContent{Text: spec.Sample}}, nil
		}
	}
	if spec.Roots != nil {
		options.Capabilities.RootsV2 = &mcp.RootCapabilities{}
	}
	version := ""
	if spec.Era == Legacy {
		version = legacyRevision
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "regogate-e2e", Version: "1.0.0"}, options)
	for _, uri := range spec.Roots {
		client.AddRoots(&mcp.Root{URI: uri})
	}
	transport := &mcp.StreamableClientTransport{Endpoint: spec.URL, HTTPClient: &http.Client{Transport: bearer(spec.Token)}}
	return client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
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
