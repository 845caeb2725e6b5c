package upstream

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
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
	m, err := p.Do(t.Context(), Call{Server: "alpha", Peer: testPeer("a"), Method: "tools/call", Params: jsontext.Value(params)})
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
		if want := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"gateway","version":"1.2.3"}}}`; s.body != want &&
			s.body != strings.Replace(want, `"capabilities":{}`, `"capabilities":`+anybody, 1) { // the gateway's own

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
	m, err := p.Do(t.Context(), Call{Server: "alpha", Peer: testPeer("a"), Method: "tools/call", Params: jsontext.Value(params)})
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
	if err != nil || m.Err().Code != mcp.CodeInvalidParams {
		t.Errorf("a mirrored argument of a wrong type gave %v, %v", m, err)
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
