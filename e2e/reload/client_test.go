package reload_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

type object = map[string]any

// client is a principal of one group with a client of one era. It is safe for
// concurrent use.
type client struct {
	group  string
	legacy bool

	url, token, session string
	http                *http.Client
	ids                 atomic.Int64
}

// answer is what a request ended in.
type answer struct {
	Status int
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    struct{ Reasons []string }
	}
}

// join makes a client and, for the legacy era, begins its session.
func (r *rig) join(t testing.TB, group string, legacy bool) *client {
	t.Helper()
	token, err := r.Mint(object{"sub": fmt.Sprintf("%s-%v", group, legacy), "group": group}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	c := &client{group: group, legacy: legacy, url: r.URL + "/mcp", token: token, http: &http.Client{Transport: transport}}
	if !legacy {
		return c
	}
	resp, err := c.post(t.Context(), "initialize", "", object{
		"protocolVersion": "2025-11-25", "capabilities": object{}, "clientInfo": object{"name": "reload", "version": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if c.session = resp.Header.Get("Mcp-Session-Id"); c.session == "" {
		t.Fatalf("initialize: %s", resp.Status)
	}
	return c
}

func (c *client) String() string {
	era := "modern"
	if c.legacy {
		era = "legacy"
	}
	return c.group + " (" + era + ")"
}

// post sends a request.
func (c *client) post(ctx context.Context, method, name string, params object) (*http.Response, error) {
	if !c.legacy {
		params["_meta"] = json.RawMessage(world.ModernMeta)
	}
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": c.ids.Add(1), "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	c.head(r)
	if !c.legacy {
		r.Header.Set("Mcp-Method", method)
		if name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	}
	return c.http.Do(r)
}

func (c *client) head(r *http.Request) {
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("MCP-Protocol-Version", world.ModernVersion)
	if c.legacy {
		r.Header.Set("MCP-Protocol-Version", "2025-11-25")
		r.Header.Set("Mcp-Session-Id", c.session)
	}
}

func (c *client) do(ctx context.Context, method, name string, params object) (answer, error) {
	resp, err := c.post(ctx, method, name, params)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	out := answer{Status: resp.StatusCode}
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.Header.Get("Content-Type") == "text/event-stream" {
		var e mcp.Event
		e, err = mcp.NewEventReader(bytes.NewReader(body), 1<<20).Next()
		body = e.Data
	}
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	return out, err
}

// list returns the names that are listed, sorted.
func (c *client) list(ctx context.Context) (names []string, a answer, err error) {
	if a, err = c.do(ctx, "tools/list", "", object{}); err != nil || a.Error != nil {
		return nil, a, err
	}
	var result struct {
		Tools      []struct{ Name string }
		NextCursor string
	}
	if err := json.Unmarshal(a.Result, &result); err != nil || result.NextCursor != "" {
		return nil, a, fmt.Errorf("the list is not one page: %w", err)
	}
	names = []string{}
	for _, t := range result.Tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names, a, nil
}

func (c *client) call(ctx context.Context, tool string) (answer, error) {
	return c.do(ctx, "tools/call", tool, object{"name": tool, "arguments": object{}})
}

// fits returns the revisions of lo..hi whose list this is.
func fits(group string, names []string, lo, hi int) (fitting []int) {
	for n := lo; n <= hi; n++ {
		if slices.Equal(names, visible(group, n)) {
			fitting = append(fitting, n)
		}
	}
	return fitting
}

// fitsCall returns the revisions of lo..hi whose answer to a call this is.
func fitsCall(group, tool string, a answer, lo, hi int) (fitting []int) {
	for n := lo; n <= hi; n++ {
		var is bool
		switch {
		case tool == probe:
			is = a.Status == 200 && a.Result == nil && a.Error != nil && a.Error.Code == 403 && slices.Equal(a.Error.Data.Reasons, []string{code(n)})
		case slices.Contains(visible(group, n), tool):
			is = a.Status == 200 && a.Error == nil && a.Result != nil
		default:
			is = a.Status == 200 && a.Result == nil && a.Error != nil && a.Error.Code == -32602 && a.Error.Message == "Unknown tool: "+tool
		}
		if is {
			fitting = append(fitting, n)
		}
	}
	return fitting
}
