package gateway_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
)

// wire sends bytes over a connection of its own and returns everything that
// comes back until the gateway closes it; closed is false if it does not within
// the time.
func wire(t *testing.T, w *world.World, within time.Duration, send string) (answer string, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, send); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(conn)
	return string(out), err == nil
}

// TestBodyThatNeverComes announces a body and does not send it, where the
// gateway answers without having read it. The connection must not stay.
func TestBodyThatNeverComes(t *testing.T) {
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.Limits.ReadTimeout = 300 * time.Millisecond }})
	auth := "Authorization: Bearer " + token(t, w, "developer") + "\r\n"
	for name, c := range map[string]struct{ line, headers, status string }{
		"health":           {"GET /healthz", "Content-Length: 10\r\n", "200"},
		"readiness":        {"GET /readyz", "Content-Length: 10\r\n", "200"},
		"metadata":         {"GET /.well-known/oauth-protected-resource/mcp", "Content-Length: 10\r\n", "200"},
		"no token":         {"POST /mcp", "Content-Length: 10\r\n", "401"},
		"no token, chunks": {"POST /mcp", "Transfer-Encoding: chunked\r\n", "401"},
		"no token, expect": {"POST /mcp", "Content-Length: 10\r\nExpect: 100-continue\r\n", "401"},
		"no such path":     {"POST /", "Content-Length: 10\r\n", "401"},
		"wrong host":       {"POST /mcp", "Host: evil.example\r\nContent-Length: 10\r\n", "403"},
		"options":          {"OPTIONS *", "Content-Length: 10\r\n", "401"},
		"media type":       {"POST /mcp", auth + "Content-Length: 10\r\n", "415"},
		"no session":       {"DELETE /mcp", auth + "Content-Length: 10\r\n", "400"},
		"method":           {"PUT /mcp", auth + "Content-Length: 10\r\n", "405"},
		"body":             {"POST /mcp", auth + "Content-Type: application/json\r\nContent-Length: 10\r\n", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := "Host: 127.0.0.1\r\n"
			if strings.HasPrefix(c.headers, "Host:") {
				host = ""
			}
			answer, closed := wire(t, w, 5*time.Second, fmt.Sprintf("%s HTTP/1.1\r\n%s%s\r\n", c.line, host, c.headers))
			if !strings.HasPrefix(answer, "HTTP/1.1 "+c.status) || !closed {
				t.Errorf("closed %v after %.80q, want it closed after %s", closed, answer, c.status)
			}
		})
	}
}

// TestServerWideOptionsAreGuarded: net/http would answer OPTIONS * by itself,
// whoever asks.
func TestServerWideOptionsAreGuarded(t *testing.T) {
	w := start(t, world.Options{})
	answer, _ := wire(t, w, 5*time.Second, "OPTIONS * HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 403") {
		t.Errorf("answer %.80q, want 403", answer)
	}
}

// TestReadTimeoutEndsWithTheRequest: what takes longer to answer than a request
// may take to arrive is not cut off.
func TestReadTimeoutEndsWithTheRequest(t *testing.T) {
	const limit = 300 * time.Millisecond
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.Limits.ReadTimeout = limit }})
	w.Servers["stripe"].Result = func(string, jsontext.Value) jsontext.Value {
		time.Sleep(2 * limit)
		return jsontext.Value(`{"content":[],"resultType":"complete"}`)
	}
	stream := connect(t, w, "/mcp", "admin").listen()
	client, err := w.Client("admin")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := client.Call(t.Context(), "stripe__list_prices", nil); err != nil || out.Result == nil {
		t.Errorf("a call that takes longer: %+v, %v", out, err)
	}
	select {
	case message, open := <-stream:
		t.Errorf("the stream: %q, open %v", message, open)
	default:
	}
}

// TestStreamRecordsAsItGoes: a stream asks the policy again at every change, and
// what it asked is on record then, not when it ends.
func TestStreamRecordsAsItGoes(t *testing.T) {
	dir := policyDir(t)
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.Policy.Dir = dir }})
	p := connect(t, w, "/mcp", "developer")
	w.Records.Forget()
	p.listen()
	eventually(t, "the first look is on record", func() bool { return len(w.Records.All()) == 1 })
	rule := "package mcp.authz\n\nallow := false if \"developer\" in input.claims.roles\n"
	if err := os.WriteFile(filepath.Join(dir, "freeze.rego"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second look is on record", func() bool { return len(w.Records.All()) == 2 })
	all := w.Records.All()
	if got, want := len(all[1].List.Names(true)), 0; got != want || len(all[0].List.Names(true)) == 0 {
		t.Errorf("the first look saw %d tools, the second %d", len(all[0].List.Names(true)), got)
	}
}

// TestStreamEndsWithItsSession: a session that has to make room for another one
// takes its stream along at once, or a principal could hold any number of them.
func TestStreamEndsWithItsSession(t *testing.T) {
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.Sessions.PerPrincipal = 1 }})
	stream := connect(t, w, "/mcp", "developer").listen()
	other := connect(t, w, "/mcp", "payments").listen()
	connect(t, w, "/mcp", "developer")
	select {
	case message, open := <-stream:
		if open {
			t.Errorf("message %s", message)
		}
	case <-time.After(5 * time.Second):
		t.Error("the stream outlived its session")
	}
	select {
	case message, open := <-other:
		t.Errorf("another principal's stream: %q, open %v", message, open)
	default:
	}
}

// TestAnnouncedBodiesTakeNoRoom: memory is for the bytes that came, not for
// those that a client says will come.
func TestAnnouncedBodiesTakeNoRoom(t *testing.T) {
	const clients, body = 32, 4 << 20
	w := start(t, world.Options{})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	head := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n ", token(t, w, "developer"), body)
	for range clients {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
	}
	var taken int64
	for range 20 {
		time.Sleep(25 * time.Millisecond)
		taken = max(taken, heap()-before)
	}
	if most := int64(clients * body / 8); taken > most {
		t.Errorf("%d clients that announced %d bytes each take %d bytes, want at most %d", clients, body, taken, most)
	}
}

// TestAnswersTakeTheirForm: a name in a second spelling is a bad request like
// one that comes twice, params that are merely wrong are not; and an error comes
// in the form that the client takes.
func TestAnswersTakeTheirForm(t *testing.T) {
	w := start(t, world.Options{})
	p := connect(t, w, "/mcp", "developer")
	request := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	for _, c := range []struct {
		accept, params, kind string
		status, code         int
	}{
		{"application/json, text/event-stream", `{"name":"a","Name":"b"}`, "application/json", 400, -32600},
		{"application/json, text/event-stream", `{"name":"a","name":"b"}`, "application/json", 400, -32600},
		{"application/json, text/event-stream", `{"arguments":{}}`, "application/json", 200, -32602},
		{"application/json", `{"name":"a"}`, "application/json", 200, -32602},
		{"text/event-stream", `{"name":"a"}`, "text/event-stream", 200, -32602},
		{"text/event-stream", `{"name":"a","Name":"b"}`, "application/json", 400, -32600},
	} {
		resp, body := p.post(request(c.params), "Accept", c.accept)
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != c.status || kind != c.kind || !strings.Contains(body, fmt.Sprintf(`"code":%d`, c.code)) {
			t.Errorf("%s to %s: %d %s %s, want %d %s %d", c.params, c.accept, resp.StatusCode, kind, body, c.status, c.kind, c.code)
		}
	}
}
