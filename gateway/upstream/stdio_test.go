package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

func one(c Config) map[string]Config { return map[string]Config{"gamma": c} }

func TestStdioLegacy(t *testing.T) {
	c, record := doubleConfig(t)
	p := running(t, one(c), quick(nil))
	s := p.Current().Server("gamma")
	if !s.Up || s.Version != "2025-06-18" || s.Instructions != "be nice" || string(s.Info) != `{"name":"double","version":"1"}` {
		t.Fatalf("the server's state is %+v", s)
	}
	wantNames(t, s, "echo", "slow")

	// Every byte of the params arrives, but for line breaks and the reserved
	// names of the modern era (B007, B009).
	params := `{ "name":"echo","arguments":{"id":9007199254740993,"big":12345678901234567890123,"min":-9223372036854775808,"f":1.0,"e":1E2,"z":-0},"task":{"ttl":5},"x":null,"_meta":{"com.example/trace":"1","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/related-task":{"taskId":"t"},"io.modelcontextprotocol/clientCapabilities":{}} }`
	want := `{ "name":"echo","arguments":{"id":9007199254740993,"big":12345678901234567890123,"min":-9223372036854775808,"f":1.0,"e":1E2,"z":-0},"task":{"ttl":5},"x":null,"_meta":{"com.example/trace":"1","io.modelcontextprotocol/related-task":{"taskId":"t"}} }`
	m, err := p.Do(t.Context(), Call{Server: "gamma", Peer: testPeer("a"), Method: "tools/call", Params: jsontext.Value(params)})
	if got := must(t, m, err); got != want {
		t.Errorf("the server got the params\n%s\nwant\n%s", got, want)
	}
	broken := "{\n\"name\":\r\n\"echo\" , \"arguments\":{\"text\":\"a\\nb\"}\n}"
	m, err = p.Do(t.Context(), Call{Server: "gamma", Peer: testPeer("a"), Method: "tools/call", Params: jsontext.Value(broken)})
	if got := must(t, m, err); got != `{"name":"echo","arguments":{"text":"a\nb"}}` {
		t.Errorf("params of several lines arrived as %s", got)
	}
	m, err = callTool(t.Context(), p, "gamma", "a", "sorry", "{}")
	if err != nil || string(m.Error) != `{"code":-32000,"message":"quota","data":{"left":0}}` {
		t.Errorf("the server's own error came as %v, %v", m, err)
	}
	if n := countRecorded(t, record, `"method":"initialize"`); n != 2 {
		t.Errorf("initialize was sent %d times, want once for discovery and once for the principal", n)
	}
	if n := countRecorded(t, record, `"method":"server/discover"`); n != 1 {
		t.Errorf("server/discover was sent %d times; the verdict should be remembered", n)
	}
}

func TestStdioModern(t *testing.T) {
	c, record := doubleConfig(t, "modern")
	p := running(t, one(c), quick(nil))
	s := p.Current().Server("gamma")
	if !s.Up || s.Version != "2026-07-28" || s.Instructions != "modern" || string(s.Info) != `{"name":"double","version":"2"}` {
		t.Fatalf("the server's state is %+v", s)
	}
	m, err := callTool(t.Context(), p, "gamma", "a", "echo", `{"n":1}`)
	want := `{"name":"echo","arguments":{"n":1},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"gateway","version":"1.2.3"},"io.modelcontextprotocol/clientCapabilities":{}}}`
	if got := must(t, m, err); got != want {
		t.Errorf("the server got the params\n%s\nwant\n%s", got, want)
	}
	if n := countRecorded(t, record, `"method":"initialize"`); n != 0 {
		t.Errorf("a modern server was sent initialize %d times", n)
	}
	eventually(t, "the subscription", func() bool { return countRecorded(t, record, `"method":"subscriptions/listen"`) == 1 })
}

func TestStdioEra(t *testing.T) {
	for _, tt := range []struct {
		name     string
		traits   []string
		protocol string
		up       bool
		version  string
		problem  string
	}{
		{"unknown method", nil, "", true, "2025-06-18", ""},
		{"no answer to the probe", []string{"mute"}, "", true, "2025-06-18", ""},
		{"ends at the probe", []string{"fragile"}, "", true, "2025-06-18", ""},
		{"legacy by configuration", []string{"fragile"}, "legacy", true, "2025-06-18", ""},
		{"modern by configuration", []string{"modern"}, "modern", true, "2026-07-28", ""},
		{"legacy, though modern is configured", nil, "modern", false, "", "broken: it does not answer server/discover as a modern server does"},
		{"modern, of versions that are not ours", []string{"future"}, "", false, "", `broken: it speaks only protocol versions that we do not: ["2031-01-01"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, _ := doubleConfig(t, tt.traits...)
			c.Protocol, c.ConnectTimeout = tt.protocol, 6*time.Second
			s := running(t, one(c), quick(nil)).Current().Server("gamma")
			if s.Up != tt.up || s.Version != tt.version || s.Problem != tt.problem {
				t.Errorf("up %v, version %q, problem %q; want %v, %q, %q", s.Up, s.Version, s.Problem, tt.up, tt.version, tt.problem)
			}
		})
	}
}

// TestStdioNoise is B048.
func TestStdioNoise(t *testing.T) {
	var log journal
	c, _ := doubleConfig(t, "banner", "crlf", "asks")
	p := running(t, one(c), quick(&log))
	m, err := callTool(t.Context(), p, "gamma", "a", "twice", "{}")
	if got := must(t, m, err); got != `{"n":1}` {
		t.Errorf("the answer is %s, want the first with the right id", got)
	}
	m, err = callTool(t.Context(), p, "gamma", "a", "echo", `{}`)
	if got := must(t, m, err); got != `{"name":"echo","arguments":{}}` {
		t.Errorf("after that the answer is %s", got)
	}
	if strings.ContainsAny(log.String(), "\x1b\x07") {
		t.Error("the log holds raw control characters")
	}
	for _, want := range []string{"Server v1 started", `\\u{001B}[2K 50%`, "answered a request that is not under way"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
}

// TestStdioAnswersServer: we declare no capability, but answer pings.
func TestStdioAnswersServer(t *testing.T) {
	c, record := doubleConfig(t, "asks")
	running(t, one(c), quick(nil))
	for _, want := range []string{
		`{"jsonrpc":"2.0","id":"s1","result":{}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"the client does not support this method"}}`,
	} {
		eventually(t, want, func() bool { return countRecorded(t, record, want) == 1 })
	}
}

func TestStdioProgress(t *testing.T) {
	c, record := doubleConfig(t)
	p := running(t, one(c), quick(nil))
	var got []string
	m, err := p.Do(t.Context(), Call{
		Server: "gamma", Peer: testPeer("a"), Method: "tools/call",
		Params: jsontext.Value(`{"name":"progress","_meta":{"progressToken":"mine"}}`),
		Notify: func(m *mcp.Message) { got = append(got, string(m.Append(nil))) },
	})
	must(t, m, err)
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":0}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":2}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the notifications are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if countRecorded(t, record, `"mine"`) != 0 {
		t.Error("the client's progress token reached the server")
	}
}

// TestStdioSharedKeepsApart: what names no request may be about anybody's, so
// in a process that principals share nobody gets it.
func TestStdioSharedKeepsApart(t *testing.T) {
	c, _ := doubleConfig(t)
	c.Shared = true
	p := newPool(t, one(c), quick(nil))
	var methods []string
	m, err := p.Do(t.Context(), Call{
		Server: "gamma", Peer: testPeer("a"), Method: "tools/call",
		Params: jsontext.Value(`{"name":"progress","_meta":{"progressToken":1}}`),
		Notify: func(m *mcp.Message) { methods = append(methods, m.Method) },
	})
	must(t, m, err)
	if want := slices.Repeat([]string{progress}, 3); !slices.Equal(methods, want) {
		t.Errorf("the notifications are %q, want %q", methods, want)
	}
}

func TestStdioBadAnswers(t *testing.T) {
	c, _ := doubleConfig(t)
	c.MaxResponse = 64 << 10
	p := running(t, one(c), quick(nil))
	for tool, want := range map[string]string{
		"invalid": "its answer is not valid: duplicate member name",
		"large":   "its answer is longer than 65536 bytes",
	} {
		_, err := callTool(t.Context(), p, "gamma", "a", tool, "{}")
		wantKind(t, err, Broken, "gamma")
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", tool, err, want)
		}
	}
	m, err := callTool(t.Context(), p, "gamma", "a", "echo", "{}")
	must(t, m, err)
}

// TestStdioCancel: the server is told with our own id, in both ways in which a
// caller's time can end.
func TestStdioCancel(t *testing.T) {
	c, record := doubleConfig(t)
	p := running(t, one(c), quick(nil))
	pidOf(t, p, "a") // the process is there
	done := make(chan error, 1)
	call := func(n int, ctx context.Context, stop func()) error {
		go func() {
			_, err := callTool(ctx, p, "gamma", "a", "slow", "{}")
			done <- err
		}()
		eventually(t, "the call", func() bool { return countRecorded(t, record, `"name":"slow"`) == n })
		stop()
		return receive(t, done, "the end of the call")
	}
	ctx, stop := deadline(t)
	wantKind(t, call(1, ctx, stop), Timeout, "gamma")
	ctx, cancel := context.WithCancel(t.Context())
	wantKind(t, call(2, ctx, cancel), Canceled, "gamma")
	for _, want := range []string{
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"the request took too long"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"the client cancelled the request"}}`,
	} {
		eventually(t, want, func() bool { return countRecorded(t, record, want) == 1 })
	}
	if n := countRecorded(t, record, `"id":3,"method":"tools/call"`); n != 1 {
		t.Errorf("the call with id 3 was sent %d times", n)
	}
}

func pidOf(t *testing.T, p *Pool, principal string) int {
	t.Helper()
	m, err := callTool(t.Context(), p, "gamma", principal, "pid", "{}")
	var v struct{ PID int }
	if err := json.Unmarshal([]byte(must(t, m, err)), &v); err != nil {
		t.Fatal(err)
	}
	return v.PID
}

func TestStdioOnePerPrincipal(t *testing.T) {
	c, _ := doubleConfig(t)
	p := running(t, one(c), quick(nil))
	a, b := pidOf(t, p, "a"), pidOf(t, p, "b")
	if a == b || a != pidOf(t, p, "a") || b != pidOf(t, p, "b") {
		t.Errorf("two principals have the processes %d and %d", a, b)
	}
	c.Shared = true
	shared := running(t, one(c), quick(nil))
	if a, b := pidOf(t, shared, "a"), pidOf(t, shared, "b"); a != b {
		t.Errorf("a shared server has two processes, %d and %d", a, b)
	}
}

// TestStdioStartsOnce is B043.
func TestStdioStartsOnce(t *testing.T) {
	c, record := doubleConfig(t)
	p := newPool(t, one(c), quick(nil))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			m, err := callTool(t.Context(), p, "gamma", "a", "echo", "{}")
			if err != nil || m.Error != nil {
				t.Errorf("a call failed: %v %v", m, err)
			}
		})
	}
	hasty, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := callTool(hasty, p, "gamma", "a", "echo", "{}")
	wantKind(t, err, Canceled, "gamma")
	wg.Wait()
	if n := countRecorded(t, record, `"method":"initialize"`); n != 1 {
		t.Errorf("%d processes were initialized, want 1", n)
	}
}

func TestStdioListChanged(t *testing.T) {
	c, record := doubleConfig(t)
	o := quick(nil)
	o.Refresh = time.Hour
	p := running(t, one(c), o)
	if n := countRecorded(t, record, `"method":"tools/list"`); n != 1 {
		t.Fatalf("tools were listed %d times", n)
	}
	m, err := callTool(t.Context(), p, "gamma", "a", "change", "{}")
	must(t, m, err)
	eventually(t, "another look", func() bool { return countRecorded(t, record, `"method":"tools/list"`) == 2 })
}
