package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry/strictyaml"
)

// talkativeEnv, when set, makes the test binary act as a stdio server.
const talkativeEnv = "REGOGATE_TEST_TALKATIVE"

// talkative is a stdio server whose tool tell has it say 400 times, at length,
// that a resource has changed.
func talkative() {
	results := map[string]string{
		"initialize":               `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"talkative","version":"1"}}`,
		"tools/list":               `{"tools":[{"name":"tell","inputSchema":{"type":"object"}},{"name":"quick","inputSchema":{"type":"object"}}]}`,
		"resources/list":           `{"resources":[{"uri":"file:///a","name":"a"}]}`,
		"resources/templates/list": `{"resourceTemplates":[]}`,
		"resources/subscribe":      `{}`,
		"tools/call":               `{"content":[]}`,
	}
	line := func(m *mcp.Message) { fmt.Printf("%s\n", m.Append(nil)) }
	news := jsontext.Value(`{"uri":"file:///a","pad":"` + strings.Repeat("a", 64<<10) + `"}`)
	in := bufio.NewReader(os.Stdin)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m, bad := mcp.Parse(bytes.TrimSpace(text))
		if bad != nil || m.Kind() != mcp.Request {
			continue
		}
		line(mcp.NewResponse(m.ID, jsontext.Value(results[m.Method])))
		if name, _ := mcp.Text(mcp.Find(m.Params, "name")); name == "tell" {
			for range 400 {
				line(mcp.NewRequest(mcp.ID{}, mcp.NotifyResourceUpdated, news))
			}
		}
	}
}

// TestWhoDoesNotReadDelaysNobody has a client subscribe to what one process
// tells all, and leave its stream unread.
func TestWhoDoesNotReadDelaysNobody(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g := newRigWith(t, func(c *gateway.Config) {
		c.Servers["talkative"] = gateway.Server{Config: upstream.Config{
			Command: self, Shared: true, Protocol: "legacy", StopTimeout: time.Second,
			Env: map[string]strictyaml.Secret{talkativeEnv: "on", "GORACE": "atexit_sleep_ms=0"},
		}}
	}, nil)
	a, b := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "admin", able)
	quick := func() time.Duration {
		t.Helper()
		from := time.Now()
		if _, answer := b.do("tools/call", `{"name":"talkative__quick"}`); answer != `{"content":[]}` {
			t.Fatalf("the other client's call: %s", answer)
		}
		return time.Since(from)
	}
	eventually(t, "the server is there", func() bool {
		_, answer := b.do("tools/list", `{}`)
		return strings.Contains(answer, "talkative__quick")
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\n\r\n", a.token, a.session)
	head := make([]byte, 12)
	if _, err := conn.Read(head); err != nil || string(head) != "HTTP/1.1 200" {
		t.Fatalf("GET: %q, %v", head, err)
	}
	if _, answer := a.do("resources/subscribe", `{"uri":"file:///a"}`); answer != `{}` {
		t.Fatalf("subscribe: %s", answer)
	}
	a.do("tools/call", `{"name":"talkative__tell"}`)
	for range 3 {
		if took := quick(); took > 10*time.Second { // a third of what one write may take
			t.Errorf("the other client's call took %s", took)
		}
	}
	if _, answer := a.do("tools/call", `{"name":"talkative__quick"}`); answer != `{"content":[]}` {
		t.Errorf("its own call: %s", answer)
	}
}
