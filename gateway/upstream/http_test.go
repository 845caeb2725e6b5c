package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry/strictyaml"
)

func alpha(d *webDouble) map[string]Config { return map[string]Config{"alpha": d.config()} }

func TestWebLegacy(t *testing.T) {
	d := newWebDouble(t, nil)
	p := running(t, alpha(d), quick(nil))
	s := p.Current().Server("alpha")
	if !s.Up || s.Version != "2025-06-18" || s.Instructions != "be kind" || string(s.Capabilities) != `{"tools":{}}` {
		t.Fatalf("the state is %+v", s)
	}
	wantNames(t, s, "read", "write")
	params := `{ "name":"read", "arguments":{"id":9007199254740993,"big":12345678901234567890123,"f":1.0,"e":1E2,"z":-0,"d":0.1000000000000000055},"task":{"ttl":5},"_meta":{"com.example/trace":"1","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/logLevel":"debug"} }`
	want := `{ "name":"read", "arguments":{"id":9007199254740993,"big":12345678901234567890123,"f":1.0,"e":1E2,"z":-0,"d":0.1000000000000000055},"task":{"ttl":5},"_meta":{"com.example/trace":"1"} }`
	m, err := p.Do(t.Context(), Call{Server: "alpha", Principal: "a", Method: "tools/call", Params: jsontext.Value(params)}, nil)
	if got := must(t, m, err); got != want {
		t.Errorf("params and result are\n%s\nwant\n%s", got, want)
	}
	call := d.posts("tools/call")[0]
	for key, want := range map[string]string{
		"Mcp-Protocol-Version": "2025-06-18", "Mcp-Session-Id": "session-2", "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "Accept-Encoding": "gzip", "User-Agent": "gateway/1.2.3",
	} {
		if got := call.header.Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	for _, s := range d.posts("initialize") {
		if s.header.Get("Mcp-Session-Id") != "" || s.header.Get("Mcp-Protocol-Version") != "" {
			t.Errorf("initialize came with %v", s.header)
		}
		if want := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"gateway","version":"1.2.3"}}}`; s.body != want {
			t.Errorf("initialize is %s", s.body)
		}
	}
}

// TestWebResultsPassUnchanged is B009 and B010.
func TestWebResultsPassUnchanged(t *testing.T) {
	for _, result := range []string{
		`{"content":[{"type":"futuretype","blob":{"k":1}}],"isError":false,"x-extra":true,"big":9007199254740993}`,
		`{ "content" : [] , "structuredContent":{"a":1.0} }`,
		`{"content":[{"type":"text","text":"quota exceeded"}],"structuredContent":{"code":"RATE"},"isError":true}`,
		`{"content":[{"type":"text","text":"caf\u00e9 \ud800 <b> & \u2028"}]}`,
		`{"resultType":"input_required","inputRequests":{},"requestState":"s"}`,
		`[]`, `null`,
	} {
		for _, modern := range []bool{false, true} {
			d := newWebDouble(t, func(d *webDouble) {
				d.modern = modern
				d.call = func(w http.ResponseWriter, s seen) { answer(w, s, result) }
			})
			p := newPool(t, alpha(d), quick(nil))
			m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
			if got := must(t, m, err); got != result {
				t.Errorf("the result %s came as %s", result, got)
			}
		}
	}
}

// TestWebModern: stateless, with our own _meta and headers.
func TestWebModern(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		d.modern = true
		d.tools = `{"tools":[{"name":"query","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}},
			{"name":"bad","inputSchema":{"type":"object","properties":{"p":{"type":"number","x-mcp-header":"P"}}}}]}`
	})
	var log journal
	p := running(t, alpha(d), quick(&log))
	s := p.Current().Server("alpha")
	wantNames(t, s, "query")
	if !strings.Contains(log.String(), `tool \"bad\" is left out: its inputSchema: x-mcp-header`) {
		t.Errorf("the log does not tell of the bad tool:\n%s", log.String())
	}
	params := `{"name":"query","arguments":{"region":"S\u00fcd","deep":{"n":42}},"_meta":{"progressToken":"p","x":1,"io.modelcontextprotocol/clientInfo":{"name":"client","version":"0"},"io.modelcontextprotocol/logLevel":"info"}}`
	m, err := p.Do(t.Context(), Call{Server: "alpha", Principal: "a", Method: "tools/call", Params: jsontext.Value(params)}, nil)
	want := `{"name":"query","arguments":{"region":"S\u00fcd","deep":{"n":42}},"_meta":{"progressToken":1,"x":1,"io.modelcontextprotocol/clientInfo":{"name":"gateway","version":"1.2.3"},"io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`
	got := must(t, m, err)
	call := d.posts("tools/call")[0]
	want = strings.Replace(want, `"progressToken":1`, `"progressToken":`+string(call.message.ID.Raw()), 1)
	if got != want {
		t.Errorf("the params are\n%s\nwant\n%s", got, want)
	}
	for key, want := range map[string]string{
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "query",
		"Mcp-Param-Region": "=?base64?U8O8ZA==?=", "Mcp-Param-N": "42", "Mcp-Session-Id": "",
	} {
		if got := call.header.Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if n := len(d.posts("initialize")); n != 0 {
		t.Errorf("a modern server was sent initialize %d times", n)
	}
	// An argument that has no header form is the client's fault.
	m, err = callTool(t.Context(), p, "alpha", "a", "query", `{"region":{}}`)
	if err != nil || readError(m.Error).Code != mcp.CodeInvalidParams {
		t.Errorf("a mirrored argument of a wrong type gave %v, %v", m, err)
	}
}

func TestWebEra(t *testing.T) {
	plain := func(status int, kind, body string) func(*webDouble) {
		return func(d *webDouble) {
			d.first = func(w http.ResponseWriter, s seen) bool {
				if s.message == nil || s.message.Method != discover {
					return false
				}
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(status)
				io.WriteString(w, strings.ReplaceAll(body, "ID", string(s.message.ID.Raw())))
				return true
			}
		}
	}
	discovery := `{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2025-11-25"],"capabilities":{}}}`
	refusal := `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}}`
	future := `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2031-01-01"]}}}`
	headers := `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"no"}}`
	for _, tt := range []struct {
		name     string
		script   func(*webDouble)
		protocol string
		version  string // "" is down
		problem  string
	}{
		{"legacy", nil, "", "2025-06-18", ""},
		{"modern", func(d *webDouble) { d.modern = true }, "", "2026-07-28", ""},
		{"400 without a body", plain(400, "", ""), "", "2025-06-18", ""},
		{"404", plain(404, "text/plain", "not found"), "", "2025-06-18", ""},
		{"405", plain(405, "text/html", "<html>"), "", "2025-06-18", ""},
		{"406", plain(406, "application/json", `{"error":"x"}`), "", "2025-06-18", ""},
		{"500", plain(500, "text/plain", "oops"), "", "2025-06-18", ""},
		{"200 with an unknown method", plain(200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`), "", "2025-06-18", ""},
		{"200 with HTML", plain(200, "text/html", "<html>"), "", "2025-06-18", ""},
		{"202", plain(202, "", ""), "", "2025-06-18", ""},
		{"discovers legacy versions only", plain(200, "application/json", discovery), "", "2025-06-18", ""},
		{"supports legacy versions only", plain(400, "application/json", refusal), "", "2025-06-18", ""},
		{"supports unknown versions only", plain(400, "application/json", future), "", "", `broken: it speaks only protocol versions that we do not: ["2031-01-01"]`},
		{"modern, and objects to our headers", plain(400, "application/json", headers), "", "", "broken: server/discover was refused with code -32020: no"},
		{"401", plain(401, "text/plain", ""), "", "", "unavailable: it answered with HTTP status 401: it turns the gateway's credentials away"},
		{"503", plain(503, "text/html", "<html>"), "", "", "unavailable: it answered with HTTP status 503"},
		{"legacy by configuration", func(d *webDouble) { d.modern = true }, "legacy", "", "broken: initialize was refused with code -32022: unsupported"},
		{"modern by configuration", nil, "modern", "", "broken: it does not answer server/discover as a modern server does"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newWebDouble(t, tt.script)
			c := d.config()
			c.Protocol = tt.protocol
			s := running(t, map[string]Config{"alpha": c}, quick(nil)).Current().Server("alpha")
			if s.Version != tt.version || s.Up != (tt.version != "") || s.Problem != tt.problem {
				t.Errorf("up %v, version %q, problem %q; want version %q, problem %q", s.Up, s.Version, s.Problem, tt.version, tt.problem)
			}
		})
	}
}

// TestWebEraChanges: a server that is replaced by one of the other era.
func TestWebEraChanges(t *testing.T) {
	var modern atomic.Bool
	modern.Store(true)
	d := newWebDouble(t, nil)
	d.first = func(w http.ResponseWriter, s seen) bool {
		if modern.Load() {
			d.serveModern(w, s)
		}
		return modern.Load()
	}
	p := running(t, alpha(d), quick(nil))
	if v := p.Current().Server("alpha").Version; v != "2026-07-28" {
		t.Fatalf("version is %q", v)
	}
	modern.Store(false)
	until(t, p, "the legacy version", func(s *State) bool { return s.Server("alpha").Version == "2025-06-18" })
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
}

// TestWebVersion is B023: each server gets the version that it negotiated.
func TestWebVersion(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		d := newWebDouble(t, func(d *webDouble) { d.version = version })
		p := running(t, alpha(d), quick(nil))
		m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
		must(t, m, err)
		if got := p.Current().Server("alpha").Version; got != version {
			t.Errorf("version is %q, want %q", got, version)
		}
	}
	for _, version := range []string{"", "2099-01-01", "2026-07-28"} {
		d := newWebDouble(t, func(d *webDouble) { d.version = version })
		s := running(t, alpha(d), quick(nil)).Current().Server("alpha")
		if s.Up || !strings.Contains(s.Problem, "a protocol version that we do not speak") {
			t.Errorf("%q: up %v, problem %q", version, s.Up, s.Problem)
		}
	}
}

// TestWebRestart is B028.
func TestWebRestart(t *testing.T) {
	d := newWebDouble(t, nil)
	p := newPool(t, alpha(d), quick(nil))
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)

	d.restart()
	m, err = callTool(t.Context(), p, "alpha", "a", "read", `{"once":1}`)
	must(t, m, err)
	if n := len(d.posts("initialize")); n != 2 {
		t.Errorf("initialize was sent %d times, want once more", n)
	}
	if last := d.posts("tools/call"); last[len(last)-1].header.Get("Mcp-Session-Id") != "session-2" {
		t.Errorf("the call was sent again with %v", last[len(last)-1].header)
	}

	d.restart()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			m, err := callTool(t.Context(), p, "alpha", "a", "read", `{"twenty":1}`)
			if err != nil || m.Error != nil {
				t.Errorf("a call after the restart failed: %v %v", m, err)
			}
		})
	}
	wg.Wait()
	if n := len(d.posts("initialize")); n != 3 {
		t.Errorf("initialize was sent %d times, want once more for 20 calls", n)
	}
	sent := d.got(func(s seen) bool { return strings.Contains(s.body, "twenty") })
	if len(sent) > 40 {
		t.Errorf("20 calls were sent %d times", len(sent))
	}
}

// TestWebRefusesSession: what comes instead of 404, and when nothing helps.
func TestWebRefusesSession(t *testing.T) {
	var status atomic.Int32
	d := newWebDouble(t, nil)
	d.first = func(w http.ResponseWriter, s seen) bool {
		id := s.header.Get("Mcp-Session-Id")
		if code := int(status.Load()); code != 0 && id != "" && !d.has(id) {
			w.WriteHeader(code)
			return true
		}
		return false
	}
	p := newPool(t, alpha(d), quick(nil))
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
	for _, tt := range []struct {
		status int
		kind   Kind // 0 is success
	}{{400, 0}, {401, Unavailable}, {503, Unavailable}, {404, 0}} {
		d.restart()
		status.Store(int32(tt.status))
		m, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
		if tt.kind == 0 {
			must(t, m, err)
			continue
		}
		wantKind(t, err, tt.kind, "alpha")
		status.Store(404)
		m, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
		must(t, m, err)
	}
	// A 400 of a session that lives is the server's answer.
	d.call = func(w http.ResponseWriter, s seen) { fail(w, s, 400, -32602, "bad arguments", "") }
	inits := len(d.posts("initialize"))
	m, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
	if err != nil || readError(m.Error).Message != "bad arguments" {
		t.Errorf("the answer is %v, %v", m, err)
	}
	if n := len(d.posts("initialize")); n != inits {
		t.Errorf("initialize was sent %d times more", n-inits)
	}
	// Every session is gone at once.
	d.call = func(w http.ResponseWriter, s seen) { http.Error(w, "gone", http.StatusNotFound) }
	_, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
	wantKind(t, err, Unavailable, "alpha")
	if n := len(d.posts("initialize")); n != inits+1 {
		t.Errorf("initialize was sent %d times more, want once", n-inits)
	}
}

// TestWebKeepsItsOwn is B066.
func TestWebKeepsItsOwn(t *testing.T) {
	stolen := newWebDouble(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		d := newWebDouble(t, nil)
		d.call = func(w http.ResponseWriter, s seen) {
			w.Header().Set("Location", stolen.URL+"/elsewhere?secret=1")
			w.WriteHeader(status)
		}
		c := d.config()
		c.Headers = map[string]strictyaml.Secret{"X-Backend-Key": "k", "Authorization": "Bearer own"}
		p := newPool(t, map[string]Config{"alpha": c}, quick(nil))
		_, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
		wantKind(t, err, Unavailable, "alpha")
		if want := "set the url to where it leads: " + stolen.URL + "/elsewhere"; !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d: %v, want %q", status, err, want)
		}
		for _, s := range d.got(func(seen) bool { return true }) {
			if s.header.Get("X-Backend-Key") != "k" || s.header.Get("Authorization") != "Bearer own" {
				t.Errorf("%s came without our credentials: %v", s.body, s.header)
			}
			for key := range s.header {
				switch key {
				case "Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent",
					"X-Backend-Key", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method":
				default:
					t.Errorf("an unexpected header %s was sent", key)
				}
			}
		}
	}
	if n := len(stolen.got(func(seen) bool { return true })); n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.Bytes()
}

// TestWebCompressed is B017.
func TestWebCompressed(t *testing.T) {
	result := `{"content":[{"type":"text","text":"zipped"}]}`
	for _, tt := range []struct {
		name string
		call func(w http.ResponseWriter, s seen)
		want string // of the error; "" is success
	}{
		{"JSON", func(w http.ResponseWriter, s seen) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped(`{"jsonrpc":"2.0","id":` + string(s.message.ID.Raw()) + `,"result":` + result + `}`))
		}, ""},
		{"stream that stays open", func(w http.ResponseWriter, s seen) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprintf(z, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", s.message.ID.Raw(), result)
			z.Flush()
			w.(http.Flusher).Flush()
			time.Sleep(300 * time.Millisecond)
		}, ""},
		{"br", func(w http.ResponseWriter, s seen) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "\x1b\x00")
		}, "its answer has the Content-Encoding br, which was not asked for"},
		{"bomb", func(w http.ResponseWriter, s seen) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped(strings.Repeat(" ", 8<<20)))
		}, "its answer is longer than 1048576 bytes"},
		{"bomb in a stream", func(w http.ResponseWriter, s seen) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped("data: " + strings.Repeat("x", 8<<20)))
		}, "an event of its answer is longer than 1048576 bytes"},
		{"not gzip", func(w http.ResponseWriter, s seen) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, result)
		}, "read its answer: gzip: invalid header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newWebDouble(t, func(d *webDouble) { d.call = tt.call })
			c := d.config()
			c.MaxResponse = 1 << 20
			p := newPool(t, map[string]Config{"alpha": c}, quick(nil))
			m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
			if tt.want == "" {
				if got := must(t, m, err); got != result {
					t.Errorf("the result is %s", got)
				}
				return
			}
			wantKind(t, err, Broken, "alpha")
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}

// TestWebCancel: by message in the legacy era, by closing the connection in
// the modern one.
func TestWebCancel(t *testing.T) {
	for _, modern := range []bool{false, true} {
		arrived, gone := make(chan struct{}, 2), make(chan struct{}, 2)
		d := newWebDouble(t, func(d *webDouble) { d.modern = modern })
		d.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte(`"tools/call"`)) {
				arrived <- struct{}{}
				<-r.Context().Done()
				gone <- struct{}{}
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			d.ServeHTTP(w, r)
		})
		p := newPool(t, alpha(d), quick(nil))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		_, err := callTool(ctx, p, "alpha", "a", "read", "{}")
		wantKind(t, err, Canceled, "alpha")
		receive(t, gone, "the end of the connection")

		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = callTool(ctx, p, "alpha", "a", "read", "{}")
		cancel()
		wantKind(t, err, Timeout, "alpha")
		receive(t, gone, "the end of the connection")
		p.Close()
		var got []string
		for _, s := range d.posts("notifications/cancelled") {
			got = append(got, s.body)
		}
		slices.Sort(got)
		want := []string{
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the client cancelled the request"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"the request took too long"}}`,
		}
		if modern {
			want = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("modern %v: the server was told\n%s\nwant\n%s", modern, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestWebClosesSessions: the server is told when a session is over.
func TestWebClosesSessions(t *testing.T) {
	d := newWebDouble(t, nil)
	c := d.config()
	c.IdleTimeout = 50 * time.Millisecond
	p := running(t, map[string]Config{"alpha": c}, quick(nil))
	for _, principal := range []string{"a", "b", "a"} {
		m, err := callTool(t.Context(), p, "alpha", principal, "read", "{}")
		must(t, m, err)
	}
	if n := len(d.posts("initialize")); n != 3 {
		t.Errorf("%d sessions were opened, want one for each of discovery, a and b", n)
	}
	eventually(t, "the end of idle sessions", func() bool {
		return len(d.got(func(s seen) bool { return s.method == http.MethodDelete })) >= 2
	})
	p.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sessions) != 0 {
		t.Errorf("the sessions %v are still open", d.sessions)
	}
}
