package fleet_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/replica"
)

// reply is what came back for one message.
type reply struct {
	status  int
	header  http.Header
	message message
	err     error // nothing came back
}

// client is one of a principal, of either era. It is safe for concurrent use.
type client struct {
	token   string
	session string
	ids     atomic.Int64
}

const limit = 30 * time.Second

// do sends a request and takes the answer as JSON.
func (c *client) do(base, method string, params object, headers ...string) reply {
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": c.ids.Add(1), "method": method, "params": params})
	if err != nil {
		return reply{err: err}
	}
	return c.send(http.MethodPost, base, body, headers...)
}

func (c *client) send(method, base string, body []byte, headers ...string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := c.request(ctx, method, base, body, headers...)
	if err != nil {
		return reply{err: err}
	}
	resp, err := plain.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	out := reply{status: resp.StatusCode, header: resp.Header, err: err}
	if err == nil && len(data) > 0 {
		_ = json.Unmarshal(data, &out.message) // what is no message has no result
	}
	return out
}

func (c *client) request(ctx context.Context, method, base string, body []byte, headers ...string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, base+"/mcp", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r, nil
}

// plain opens a connection for each request: one that a replica closes for its
// idleness would look like a request that it lost.
var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// open begins a session at a replica.
func open(t testing.TB, base, token string) *client {
	t.Helper()
	c := &client{token: token}
	r := c.initialize(base)
	if r.status != http.StatusOK || r.message.Result == nil {
		t.Fatalf("initialize: %d %+v %v", r.status, r.message.Error, r.err)
	}
	c.session = r.header.Get("Mcp-Session-Id")
	return c
}

func (c *client) initialize(base string) reply {
	return c.do(base, "initialize", object{
		"protocolVersion": "2025-11-25", "capabilities": object{}, "clientInfo": object{"name": "fleet", "version": "1"},
	})
}

func (c *client) call(base, tool, owner, mark string) reply {
	return c.do(base, "tools/call", object{"name": tool, "arguments": object{"owner": owner, "mark": mark}})
}

// said is the text of a call's result, or what came instead.
func (r reply) said() string {
	var result struct {
		Content []struct{ Text string }
	}
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.message.Error != nil:
		return http.StatusText(r.status) + ": " + r.message.Error.Message
	case json.Unmarshal(r.message.Result, &result) != nil || len(result.Content) != 1:
		return http.StatusText(r.status) + ": " + string(r.message.Result)
	}
	return result.Content[0].Text
}

// listen opens the session's own stream and hands on what comes. The channel is
// closed when the stream ends.
func (c *client) listen(ctx context.Context, base string) (<-chan string, error) {
	r, err := c.request(ctx, http.MethodGet, base, nil, "Accept", "text/event-stream")
	if err != nil {
		return nil, err
	}
	resp, err := plain.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, errors.New("GET: " + resp.Status)
	}
	out := make(chan string, 64)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "" {
				out <- data
			}
		}
	}()
	return out, nil
}

// balancer sends each request to the next replica, whoever sends it. It tries
// another one only where a connection is refused.
type balancer struct {
	*httptest.Server
	next atomic.Int64

	mu       sync.Mutex
	replicas []string
}

func newBalancer(t *testing.T, replicas []*replica.Replica) *balancer {
	b := &balancer{}
	for _, r := range replicas {
		b.replicas = append(b.replicas, r.URL)
	}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: b, FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

func (b *balancer) put(n int, url string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas[n] = url
}

// RoundTrip makes the balancer the proxy's transport.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	var last error
	if r.Body != nil {
		if body, last = io.ReadAll(r.Body); last != nil {
			return nil, last
		}
	}
	for range 2 * len(b.replicas) {
		b.mu.Lock()
		target, err := url.Parse(b.replicas[int(b.next.Add(1))%len(b.replicas)])
		b.mu.Unlock()
		if err != nil {
			return nil, err
		}
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.Host = target.Scheme, target.Host, target.Host
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp, err := plain.Transport.RoundTrip(out)
		if err == nil || !strings.Contains(err.Error(), "connection refused") {
			return resp, err
		}
		last = err
	}
	return nil, last
}
