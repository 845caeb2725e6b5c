package cases

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// newDouble starts a backend over HTTP or SSE.
func newDouble(t *testing.T, spec Backend) *web {
	t.Helper()
	b, err := newWeb("alpha", &arrivals{})
	if err != nil {
		t.Fatal(err)
	}
	b.become(spec)
	t.Cleanup(func() {
		b.down()
		b.forget()
	})
	return b
}

// ask sends one HTTP request and returns status, headers and body.
func ask(t *testing.T, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

const (
	hello   = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
	addOne  = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"inc"}}`
	answers = `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"%"}]}}`
)

func TestDoubleInsistsOnItsSessions(t *testing.T) {
	b := newDouble(t, Backend{Version: "2025-06-18", Tools: []Tool{{Name: "inc", Count: "add"}}})
	url := b.url() + path
	var ids []string
	for range 2 {
		_, h, _ := ask(t, "POST", url, hello)
		ids = append(ids, h.Get("Mcp-Session-Id"))
	}
	if ids[0] == "" || ids[0] == ids[1] || b.sessions.count() != 2 {
		t.Fatalf("the sessions are %q", ids)
	}
	call := func(want int, header ...string) string {
		t.Helper()
		status, _, body := ask(t, "POST", url, addOne, header...)
		if status != want {
			t.Errorf("%q: status %d, want %d", header, status, want)
		}
		return body
	}
	session := func(id string) []string {
		return []string{"Mcp-Session-Id", id, "MCP-Protocol-Version", "2025-06-18"}
	}
	call(400)
	call(404, session("nobody")...)
	call(400, "Mcp-Session-Id", ids[0], "MCP-Protocol-Version", "2025-11-25")
	call(400, "Mcp-Session-Id", ids[0])
	call(200, session(ids[0])...)
	for id, want := range map[string]string{ids[0]: "2", ids[1]: "1"} {
		if got := call(200, session(id)...); got != strings.Replace(answers, "%", want, 1) {
			t.Errorf("session %s answers %s", id, got)
		}
	}
	if b.calls("inc") != 3 || b.log.total("alpha/inc") != 7 || b.log.total("alpha/initialize") != 2 {
		t.Errorf("%d calls ran of %d", b.calls("inc"), b.log.total("alpha/inc"))
	}
	if status, _, _ := ask(t, "DELETE", url, "", session(ids[0])...); status != 200 {
		t.Errorf("DELETE: status %d", status)
	}
	call(404, session(ids[0])...)
	b.forget()
	b.become(Backend{Version: "2025-06-18", Gone: "401"})
	call(401, session(ids[1])...)
}

func TestReplies(t *testing.T) {
	large := Reply{Type: "application/json", Encoding: "gzip", Fill: 3 << 20}
	for name, c := range map[string]struct {
		reply            Reply
		accept, encoding string
		status           int
		want             string
	}{
		"plain":     {reply: Reply{Type: "application/json"}, status: 200, want: "ANSWER"},
		"a stream":  {status: 200, want: "data: ANSWER\n\n"},
		"bytes":     {reply: Reply{Status: 400, Chunks: []string{"caf\u00c3", "\u00a9 $ID"}}, status: 400, want: "café 7"},
		"gzip":      {reply: Reply{Encoding: "gzip", Chunks: []string{"a", "b"}}, status: 200, encoding: "gzip", want: "ab"},
		"x-gzip":    {reply: Reply{Encoding: "x-gzip"}, status: 200, encoding: "x-gzip", want: "data: ANSWER\n\n"},
		"claimed":   {reply: Reply{Encoding: "br"}, status: 200, encoding: "br", want: "data: ANSWER\n\n"},
		"asked":     {reply: Reply{Encoding: "asked"}, accept: "gzip", status: 200, encoding: "gzip", want: "data: ANSWER\n\n"},
		"the worst": {reply: Reply{Encoding: "asked"}, accept: "gzip, br", status: 200, encoding: "br", want: "data: ANSWER\n\n"},
		"a bomb":    {reply: large, status: 200, encoding: "gzip", want: "ANSWER" + strings.Repeat(" ", 3<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			if err := h.open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.reply.write(w, r, "7", "ANSWER") })); err != nil {
				t.Fatal(err)
			}
			defer h.down()
			status, header, body := ask(t, "GET", h.url(), "", "Accept-Encoding", c.accept)
			if strings.HasSuffix(c.encoding, "gzip") {
				zip, err := gzip.NewReader(strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(zip)
				if err != nil || len(body) > 100+len(data)/100 {
					t.Errorf("%d bytes stand for %d: %v", len(body), len(data), err)
				}
				body = string(data)
			}
			if status != c.status || header.Get("Content-Encoding") != c.encoding || body != c.want {
				t.Errorf("%d %q %.80q, want %d %q %.80q", status, header.Get("Content-Encoding"), body, c.status, c.encoding, c.want)
			}
		})
	}
}

func TestPages(t *testing.T) {
	s := newScript("alpha", Backend{
		Tools: []Tool{{Name: "a"}, {Name: "b"}},
		Pages: map[string]Page{"first": {Tools: []string{"a"}, Next: `"x$N"`}, "": {Error: `{"code":-1}`}, "x1": {Tools: []string{"b"}}},
	})
	for params, want := range map[string]string{
		`{}`:              `{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"nextCursor":"x1"}`,
		`{"cursor":"x1"}`: `{"tools":[{"name":"b","inputSchema":{"type":"object"}}]}`,
		`{"cursor":""}`:   `{"code":-1}`,
		`{"cursor":"x2"}`: `{"code":-32602,"message":"Unknown cursor"}`,
	} {
		m, bad := mcp.ParseBackend([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` + params + `}`))
		if bad != nil {
			t.Fatal(bad)
		}
		if result, failure := s.list(m); result+failure != want {
			t.Errorf("%s: %s%s, want %s", params, result, failure, want)
		}
	}
}

// A double of the older transport answers over its stream, before or after it
// has taken the request.
func TestDoubleOfTwoConnections(t *testing.T) {
	for _, first := range []string{"", "answer"} {
		b := newDouble(t, Backend{Transport: "sse", SSE: SSE{Endpoint: "/m?session=$SESSION", First: first}, Tools: []Tool{{Name: "inc", Count: "add"}}})
		s, r := openStream(b.addr, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if s == nil {
			t.Fatal(r.err)
		}
		endpoint := awaitEvents(t, s, 1)[0]
		if status, _, _ := ask(t, "POST", b.url()+endpoint, addOne); status != 202 {
			t.Errorf("status %d", status)
		}
		if got := awaitEvents(t, s, 2)[1]; got != strings.Replace(answers, "%", "1", 1) {
			t.Errorf("the answer is %s", got)
		}
		if err := b.notify(`{"x":1}`); err != nil || awaitEvents(t, s, 3)[2] != `{"x":1}` {
			t.Errorf("notify: %v", err)
		}
		b.forget()
		<-s.done
		if status, _, _ := ask(t, "POST", b.url()+endpoint, addOne); status != 404 || !s.ended() {
			t.Errorf("after the end: status %d", status)
		}
		if status, _, _ := ask(t, "POST", b.url()+path, hello); status != 405 {
			t.Errorf("a POST to the stream: status %d", status)
		}
		s.close()
	}
}

func awaitEvents(t *testing.T, s *stream, n int) []string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if got := s.events(); len(got) >= n {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events did not come: %q", n, s.events())
		}
	}
}

func TestProxyDropsWhatIsIdle(t *testing.T) {
	const idle = 300 * time.Millisecond
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	p, err := newProxy(idle)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.point(echo.Addr().String())
	c, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	began := time.Now()
	for time.Since(began) < 2*idle { // kept by what comes and goes
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := in.ReadByte(); err != nil {
			t.Fatalf("dropped after %s of traffic: %v", time.Since(began), err)
		}
		time.Sleep(idle / 10)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := in.ReadByte(); err == nil || os.IsTimeout(err) {
		t.Errorf("an idle connection was not dropped: %v", err)
	}
}

func TestCancelledNamesItsCall(t *testing.T) {
	list := &arrivals{}
	in := func(session string) http.Header { return http.Header{"Mcp-Session-Id": {session}} }
	add := func(session, body string) {
		list.add(arrived{backend: "alpha", header: in(session), body: []byte(body)})
	}
	add("a", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow"}}`)
	add("b", `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"slow"}}`)
	for session, ids := range map[string][]string{"a": {"5", `"5"`, "6"}, "b": {"5", "6"}} {
		for _, id := range ids {
			add(session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
			got := list.since(list.count() - 1)[0].of
			if names := session+id == "a5" || session+id == "b6"; names != (got == "alpha/slow") {
				t.Errorf("%s in session %s names %q", id, session, got)
			}
		}
	}
}

func TestComments(t *testing.T) {
	body := ": one\n\ndata: x\r\n:\n\ndata: : no\n\nid: 1\ndata\n\n"
	if n := comments([]byte(body)); n != 2 {
		t.Errorf("%d comments, want 2", n)
	}
	if got := eventData([]byte(body)); !slices.EqualFunc(got, []string{"x", ": no"}, func(a []byte, b string) bool { return bytes.Equal(a, []byte(b)) }) {
		t.Errorf("the events are %q", got)
	}
}

// Each expectation that a case may have of its world must be able to fail.
func TestWrongExpectationsAreFound(t *testing.T) {
	file, err := os.ReadFile("testdata/runner/wrong.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Load(fstest.MapFS{"wrong.yaml": &fstest.MapFile{Data: file}})
	if err != nil {
		t.Fatal(err)
	}
	c := all[0]
	dir := func() (string, error) { return os.MkdirTemp(t.TempDir(), "") }
	problems := c.Run(t.Context(), Env{Keys: &Keyring{}, Dir: dir})
	for _, s := range c.Steps {
		says, wrong := s.Vars["says"]
		told := func(p string) bool { return strings.Contains(p, " "+s.Name+": ") && strings.Contains(p, says) }
		if wrong && !slices.ContainsFunc(problems, told) {
			t.Errorf("nobody says of step %s: %s", s.Name, says)
		}
	}
	for _, p := range problems {
		if strings.Contains(p, "right") {
			t.Error(p)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(problems, "\n"))
	}
}
