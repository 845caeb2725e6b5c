package upstream

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// TestStream is the backend's half of B015 and B067: what servers send as an
// answer, and what comes of it.
func TestStream(t *testing.T) {
	const result = `{"content":[{"type":"text","text":"café"}]}`
	const good = `{"jsonrpc":"2.0","id":ID,"result":` + result + `}`
	for _, tt := range []struct {
		name   string
		pieces []string
		open   bool   // the stream stays open after that
		want   string // of the error; "" is success
	}{
		{"plain", []string{"data: " + good + "\n\n"}, false, ""},
		{"stays open", []string{"data: " + good + "\n\n"}, true, ""},
		{"split", []string{
			"event: message\r", "\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\r\n",
			"data: \"result\":{\"content\":[{\"type\":\"text\",\"text\":\"caf\xc3", "\xa9\"}]}}\r\n\r", "\n",
		}, true, ""},
		{"CR only, no space, comments, other fields", []string{": hello\rid: 1\rretry: 5\revent: ping\rdata:{}\r\r:x\rdata:" + good + "\r\r"}, true, ""},
		{"no blank line at the end", []string{"data: " + good}, false, ""},
		{"byte order mark", []string{"\ufeffdata: " + good + "\n\n"}, false, ""},
		{"noise before", []string{
			"data: garbage\n\n", "data: [" + good + "]\n\n",
			"data: {\"jsonrpc\":\"2.0\",\"id\":987,\"result\":{\"tools\":[]}}\n\n",
			"data: {\"jsonrpc\":\"2.0\",\"id\":\"ID\",\"result\":{\"wrong\":\"type\"}}\n\n",
			"data: " + good + "\n\n",
		}, false, ""},
		{"two answers", []string{"data: " + good + "\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"second\":1}}\n\n"}, false, ""},
		{"an id that is a float", []string{`data: {"jsonrpc":"2.0","id":ID.0,"result":` + result + "}\n\n"}, false, ""},
		{"ends without an answer", []string{": hello\n\n"}, false, "its stream ended without an answer"},
		{"empty", nil, false, "its stream ended without an answer"},
		{"an answer with duplicate names", []string{`data: {"jsonrpc":"2.0","id":ID,"result":{"a":1,"a":2}}` + "\n\n"}, true, "its answer is not valid: duplicate member name"},
		{"an answer that is not UTF-8", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":\"\xff\"}\n\n"}, true, "its answer is not valid"},
		{"too long", []string{"data: " + strings.Repeat("x", 1<<20)}, true, "an event of its answer is longer than 65536 bytes"},
		{"JSON after all", []string{good}, false, "its stream ended without an answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over := make(chan struct{})
			d := newWebDouble(t, func(d *webDouble) {
				d.call = func(w http.ResponseWriter, s seen) {
					send := stream(w, s)
					for _, piece := range tt.pieces {
						send(piece)
						time.Sleep(2 * time.Millisecond) // a read of its own for each piece
					}
					if tt.open {
						<-over // a call that waits for its end hangs
					}
				}
			})
			t.Cleanup(func() { close(over) })
			c := d.config()
			c.MaxResponse = 64 << 10
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

// TestBody is what may come instead of a stream.
func TestBody(t *testing.T) {
	for _, tt := range []struct {
		name, kind, body string
		status           int
		want             string // of the error; "" is the answer "ok"
	}{
		{"JSON", "application/json", `{"jsonrpc":"2.0","id":ID,"result":"ok"}`, 200, ""},
		{"other spelling", "Application/JSON ; charset=UTF-8", ` {"jsonrpc":"2.0","id":ID,"result":"ok"} `, 200, ""},
		{"error without an id", "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"ok"}}`, 400, ""},
		{"error with status 500", "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"ok"}}`, 500, ""},
		{"error with status 404 is a session's end", "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"ok"}}`, 404, "a new session was gone at once"},
		{"result with status 500", "application/json", `{"jsonrpc":"2.0","id":ID,"result":"ok"}`, 500, "HTTP status 500"},
		{"error with status 503", "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"ok"}}`, 503, "HTTP status 503"},
		{"another id", "application/json", `{"jsonrpc":"2.0","id":999,"result":"ok"}`, 200, "something else than the response"},
		{"its id as text", "application/json", `{"jsonrpc":"2.0","id":"ID","result":"ok"}`, 200, "something else than the response"},
		{"a request", "application/json", `{"jsonrpc":"2.0","id":ID,"method":"ping"}`, 200, "something else than the response"},
		{"batch", "application/json", `[{"jsonrpc":"2.0","id":ID,"result":"ok"}]`, 200, "batches are not supported"},
		{"stream announced as JSON", "application/json", "data: {}\n\n", 200, "its answer is not valid"},
		{"HTML", "text/html", `<html>`, 200, "content of type text/html"},
		{"text", "text/plain", `{"jsonrpc":"2.0","id":ID,"result":"ok"}`, 200, "content of type text/plain"},
		{"no type", "", ``, 202, "HTTP status 202 and no content"},
		{"hostile type", "text/\u202ehtml", `x`, 200, `\u{202E}`},
		{"too long", "application/json", `"` + strings.Repeat("x", 64<<10) + `"`, 200, "longer than 65536 bytes"},
		{"HTML error", "text/html", "<html>secret</html>", 500, "HTTP status 500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newWebDouble(t, func(d *webDouble) {
				d.call = func(w http.ResponseWriter, s seen) {
					w.Header()["Content-Type"] = []string{tt.kind}
					if tt.kind == "" {
						w.Header()["Content-Type"] = nil
					}
					w.WriteHeader(tt.status)
					io.WriteString(w, strings.ReplaceAll(tt.body, "ID", string(s.message.ID.Raw())))
				}
			})
			c := d.config()
			c.MaxResponse = 64 << 10
			p := newPool(t, map[string]Config{"alpha": c}, quick(nil))
			m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
			if tt.want == "" {
				if err != nil || string(m.Result) != `"ok"` && m.Err().Message != "ok" {
					t.Errorf("the answer is %v, %v", m, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("the answer is %s", m.Append(nil))
			}
			wantKind(t, err, err.(*Error).Kind, "alpha")
			if !strings.Contains(err.Error(), tt.want) || strings.ContainsAny(err.Error(), "\u202e") {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}

// TestStreamNotifies: what the request's own stream brings before the answer.
func TestStreamNotifies(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		d.call = func(w http.ResponseWriter, s seen) {
			send := stream(w, s)
			send(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1,"big":9007199254740993}}` + "\n\n")
			send(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"other","progress":2}}` + "\n\n")
			send(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}` + "\n\n")
			send(`data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n\n")
			send(`data: {"jsonrpc":"2.0","id":"s1","method":"ping"}` + "\n\n")
			send(`data: {"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}` + "\n\n")
			send(`data: {"jsonrpc":"2.0","id":ID,"result":{}}` + "\n\n")
		}
	})
	p := newPool(t, alpha(d), quick(nil))
	var got []string
	m, err := p.Do(t.Context(), Call{
		Server: "alpha", Peer: testPeer("a"), Method: "tools/call",
		Params: jsontext.Value(`{"name":"read","_meta":{"progressToken":9007199254740993}}`),
		Notify: func(m *mcp.Message) { got = append(got, string(m.Append(nil))) },
	})
	must(t, m, err)
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9007199254740993,"progress":1,"big":9007199254740993}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the notifications are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, want := range []string{
		`{"jsonrpc":"2.0","id":"s1","result":{}}`,
		`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"the client does not support this method"}}`,
	} {
		sent := d.got(func(s seen) bool { return s.body == want })
		if len(sent) != 1 || sent[0].header.Get("Mcp-Session-Id") != "session-1" {
			t.Errorf("%s was sent %d times", want, len(sent))
		}
	}
}

// TestStreamResumes: a legacy server may close a stream and be asked for the
// rest of it.
func TestStreamResumes(t *testing.T) {
	var cuts atomic.Int32
	d := newWebDouble(t, nil)
	d.call = func(w http.ResponseWriter, s seen) {
		stream(w, s)("id: a_0\nretry: 20\ndata:\n\nid: a_1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"n\":1}}\n\n")
	}
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.method != http.MethodGet || s.header.Get("Last-Event-Id") == "" {
			return false
		}
		send := stream(w, s)
		switch cuts.Add(1) {
		case 1:
			send("id: a_2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"n\":2}}\n\n")
		case 2:
		case 3:
			send("id: a_3\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"done\":true}}\n\n")
		}
		return true
	}
	p := newPool(t, alpha(d), quick(nil))
	notes := 0
	began := time.Now()
	m, err := p.Do(t.Context(), Call{Server: "alpha", Peer: testPeer("a"), Method: "tools/call", Params: jsontext.Value(`{"name":"read"}`),
		Notify: func(*mcp.Message) { notes++ }})
	if got := must(t, m, err); got != `{"done":true}` || notes != 2 {
		t.Errorf("the result is %s after %d notifications", got, notes)
	}
	if d := time.Since(began); d < 3*20*time.Millisecond {
		t.Errorf("three resumptions took %s; the server asked for 20 ms before each", d)
	}
	var ids []string
	for _, s := range d.got(func(s seen) bool { return s.method == http.MethodGet }) {
		if id := s.header.Get("Last-Event-Id"); id != "" { // else it is the session's own stream
			ids = append(ids, id)
		}
	}
	if want := []string{"a_1", "a_2", "a_2"}; !slices.Equal(ids, want) {
		t.Errorf("the stream was resumed from %q, want %q", ids, want)
	}
	// A stream from which nothing new comes is not resumed for ever.
	cuts.Store(10)
	_, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
	wantKind(t, err, Broken, "alpha")
}

// TestWatch: changes that a server tells of on a stream of their own.
func TestWatch(t *testing.T) {
	for _, modern := range []bool{false, true} {
		change := make(chan struct{})
		var listed atomic.Int32
		d := newWebDouble(t, func(d *webDouble) { d.modern = modern })
		d.first = func(w http.ResponseWriter, s seen) bool {
			watching := s.method == http.MethodGet
			if s.message != nil {
				switch s.message.Method {
				case "initialize":
					w.Header().Set("Mcp-Session-Id", d.open())
					answer(w, s, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}}}`)
					return true
				case discover:
					if modern {
						answer(w, s, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`)
					}
					return modern
				case "tools/list":
					listed.Add(1)
				case listen:
					watching = true
					if want := `"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`; !strings.Contains(s.body, want) {
						t.Errorf("%s is not in %s", want, s.body)
					}
				}
			}
			if watching {
				send := stream(w, s)
				send(": hello\n\n")
				for range change {
					send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
				}
			}
			return watching
		}
		o := quick(nil)
		o.Refresh = time.Hour
		p := running(t, alpha(d), o)
		for want := int32(2); want <= 3; want++ {
			change <- struct{}{} // taken by a watcher
			eventually(t, "another look", func() bool { return listed.Load() == want })
		}
		close(change)
		p.Close()
	}
}
