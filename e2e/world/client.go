package world

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// Client is a small MCP client of the modern era: every request stands alone.
// It is safe for concurrent use.
type Client struct {
	URL   string
	Token string
	HTTP  *http.Client

	ids atomic.Int64
}

// Outcome is how a request ended: with a result or with an error.
type Outcome struct {
	Status int
	Result jsontext.Value
	Error  jsontext.Value
	Code   int64  // of the error
	Text   string // of the error
}

// ModernMeta is the _meta of a modern request that declares no capability.
const ModernMeta = `{"io.modelcontextprotocol/protocolVersion":"` + ModernVersion + `",` +
	`"io.modelcontextprotocol/clientCapabilities":{},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"regogate-world","version":"1"}}`

// ModernVersion is the protocol revision that Client speaks.
const ModernVersion = "2026-07-28"

// List returns the names of all tools, following cursors to the end.
func (c *Client) List(ctx context.Context) ([]string, error) {
	var names []string
	for cursor := ""; ; {
		params := object("_meta", ModernMeta)
		if cursor != "" {
			params = object("_meta", ModernMeta, "cursor", mcp.String(cursor))
		}
		out, err := c.Do(ctx, "tools/list", "", params)
		if err != nil {
			return nil, err
		}
		if out.Error != nil {
			return nil, fmt.Errorf("tools/list: %s", out.Text)
		}
		page, next, err := readPage(out.Result)
		if err != nil {
			return nil, fmt.Errorf("tools/list: %w", err)
		}
		names = append(names, page...)
		if cursor = next; cursor == "" {
			return names, nil
		}
	}
}

func readPage(result jsontext.Value) (names []string, next string, err error) {
	members, err := mcp.Members(result)
	if err != nil {
		return nil, "", err
	}
	next, _ = mcp.Text(mcp.Get(members, "nextCursor"))
	tools, err := mcp.Elements(mcp.Get(members, "tools"))
	if err != nil {
		return nil, "", err
	}
	for _, t := range tools {
		m, err := mcp.Members(t)
		if err != nil {
			return nil, "", err
		}
		name, _ := mcp.Text(mcp.Get(m, "name"))
		names = append(names, name)
	}
	return names, next, nil
}

// Call calls a tool by the name that the gateway shows.
func (c *Client) Call(ctx context.Context, tool string, arguments jsontext.Value) (Outcome, error) {
	if arguments == nil {
		arguments = jsontext.Value("{}")
	}
	return c.Do(ctx, "tools/call", tool, object("name", mcp.String(tool), "arguments", arguments, "_meta", ModernMeta))
}

// Do sends one request. The error is about the connection; what the other side
// answered, errors too, is the Outcome.
func (c *Client) Do(ctx context.Context, method, name string, params jsontext.Value) (Outcome, error) {
	body := mcp.NewRequest(mcp.NumberID(c.ids.Add(1)), method, params).Append(nil)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return Outcome{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("MCP-Protocol-Version", ModernVersion)
	r.Header.Set("Mcp-Method", method)
	if name != "" {
		r.Header.Set("Mcp-Name", mcp.EncodeHeader(name))
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(r)
	if err != nil {
		return Outcome{}, err
	}
	defer resp.Body.Close()
	return readOutcome(resp)
}

func readOutcome(resp *http.Response) (Outcome, error) {
	out := Outcome{Status: resp.StatusCode}
	var message []byte
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		events := mcp.NewEventReader(resp.Body, 64<<20)
		for {
			event, err := events.Next()
			if err != nil {
				return out, err
			}
			if m, e := mcp.Parse(event.Data); e == nil && m.Kind() == mcp.Response {
				message = event.Data
				break
			}
		}
	} else {
		var err error
		if message, err = io.ReadAll(resp.Body); err != nil {
			return out, err
		}
	}
	m, e := mcp.Parse(message)
	if e != nil {
		return out, fmt.Errorf("status %d, no JSON-RPC response in the body", resp.StatusCode)
	}
	out.Result, out.Error = m.Result, m.Error
	if m.Error != nil {
		members, err := mcp.Members(m.Error)
		if err != nil {
			return out, err
		}
		out.Text, _ = mcp.Text(mcp.Get(members, "message"))
		if _, err := fmt.Sscan(string(mcp.Get(members, "code")), &out.Code); err != nil {
			return out, err
		}
	}
	return out, nil
}
