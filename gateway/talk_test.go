package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

var lastID atomic.Int64

// able is every capability that a client of the legacy era can have.
const able = `{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`

// legacy opens a session with the given capabilities.
func legacy(t *testing.T, w *world.World, path, persona, capabilities string) *peer {
	t.Helper()
	p := &peer{t: t, url: w.URL + path, token: token(t, w, persona)}
	return p.initialize(capabilities)
}

func (p *peer) initialize(capabilities string) *peer {
	p.t.Helper()
	resp, body := p.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` +
		capabilities + `,"clientInfo":{"name":"test","version":"1"}}}`)
	if p.session = resp.Header.Get("Mcp-Session-Id"); resp.StatusCode != 200 || p.session == "" {
		p.t.Fatalf("initialize: %d %s", resp.StatusCode, body)
	}
	return p
}

// modern is a client of the modern era with the given capabilities, all where
// there are none given.
func modern(t *testing.T, w *world.World, path, persona string, meta ...string) *peer {
	t.Helper()
	p := &peer{t: t, url: w.URL + path, token: token(t, w, persona)}
	p.meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}`
	if len(meta) == 0 {
		meta = []string{`"io.modelcontextprotocol/clientCapabilities":` + able}
	}
	p.meta += "," + strings.Join(meta, ",")
	return p
}

// message makes a request of the peer's era.
func (p *peer) message(id, method, params string) (body string, headers []string) {
	p.t.Helper()
	if p.meta != "" {
		edited, err := mcp.EditMeta(jsontext.Value(params), sets(p.t, "{"+p.meta+"}")...)
		if err != nil {
			p.t.Fatal(err)
		}
		params = string(edited)
		headers = []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", strings.Trim(method, "\x00")}
		member := map[string]string{
			"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
			"tasks/get": "taskId", "tasks/cancel": "taskId", "tasks/update": "taskId",
		}[method]
		if name, ok := mcp.Text(mcp.Find(edited, member)); ok {
			headers = append(headers, "Mcp-Name", mcp.EncodeHeader(name))
		}
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":` + string(mcp.String(method)) + `,"params":` + params + `}`, headers
}

func sets(t *testing.T, object string) (list []mcp.Set) {
	t.Helper()
	members, err := mcp.Members(jsontext.Value(object))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		list = append(list, mcp.Set(m))
	}
	return list
}

// do sends a request and returns the answer: its result or error as JSON.
func (p *peer) do(method, params string) (status int, answer string) {
	p.t.Helper()
	f := p.open(method, params)
	defer f.cut()
	for {
		m := f.message()
		if m == nil {
			p.t.Fatalf("%s %s: no answer, status %d", method, params, f.status)
		}
		if m.Kind() != mcp.Response {
			continue
		}
		if m.Error != nil {
			return f.status, "error " + string(m.Error)
		}
		return f.status, string(m.Result)
	}
}

// open sends a request and returns its response, to be read as it comes.
func (p *peer) open(method, params string) *flow {
	p.t.Helper()
	id := fmt.Sprint(lastID.Add(1))
	body, headers := p.message(id, method, params)
	f := p.flow(http.MethodPost, body, headers...)
	f.id = id
	return f
}

// get opens the session's own stream, or resumes one.
func (p *peer) get(lastEventID string) *flow {
	p.t.Helper()
	if lastEventID == "" {
		return p.flow(http.MethodGet, "")
	}
	return p.flow(http.MethodGet, "", "Last-Event-Id", lastEventID)
}

// flow is a response that is read message by message.
type flow struct {
	t      *testing.T
	id     string // of the request
	status int
	header http.Header
	events chan mcp.Event // closed at its end
	cut    context.CancelFunc
	last   string // id of the last event that was read
}

func (p *peer) flow(method, body string, headers ...string) *flow {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	resp, err := http.DefaultClient.Do(p.request(method, body, headers...).WithContext(ctx))
	if err != nil {
		cancel()
		p.t.Fatal(err)
	}
	f := &flow{t: p.t, status: resp.StatusCode, header: resp.Header, events: make(chan mcp.Event, 1000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(f.events)
		defer resp.Body.Close()
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			data := make([]byte, 0, 512)
			buf := make([]byte, 4096)
			for {
				n, err := resp.Body.Read(buf)
				data = append(data, buf[:n]...)
				if err != nil {
					break
				}
			}
			if len(data) > 0 {
				f.events <- mcp.Event{Data: data}
			}
			return
		}
		events := mcp.NewEventReader(resp.Body, 16<<20)
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			f.events <- e
		}
	}()
	f.cut = func() { cancel(); <-ended }
	p.t.Cleanup(f.cut)
	return f
}

var errQuiet = errors.New("nothing came")

// next returns the data of the next event that has any; "" at the end.
func (f *flow) next() string {
	f.t.Helper()
	text, err := f.within(20 * time.Second)
	if err != nil {
		f.t.Fatal(err)
	}
	return text
}

func (f *flow) within(d time.Duration) (string, error) {
	late := time.After(d)
	for {
		select {
		case e, open := <-f.events:
			if !open {
				return "", nil
			}
			if e.ID != "" {
				f.last = e.ID
			}
			if len(e.Data) > 0 {
				return string(e.Data), nil
			}
		case <-late:
			return "", errQuiet
		}
	}
}

// quiet fails where something comes within a moment.
func (f *flow) quiet(why string) {
	f.t.Helper()
	if text, err := f.within(200 * time.Millisecond); err == nil {
		f.t.Errorf("%s: got %q", why, text)
	}
}

// message is next, parsed; nil at the end.
func (f *flow) message() *mcp.Message {
	f.t.Helper()
	text := f.next()
	if text == "" {
		return nil
	}
	m, err := mcp.Parse([]byte(text))
	if err != nil {
		f.t.Fatalf("%s: %v", text, err)
	}
	return m
}

// want fails where the next message is another one.
func (f *flow) want(text string) {
	f.t.Helper()
	if got := f.next(); got != text {
		f.t.Errorf("got  %s\nwant %s", got, text)
	}
}

// answer sends a response to a request of the server's.
func (p *peer) answer(id mcp.ID, result string) {
	p.t.Helper()
	resp, body := p.post(string(mcp.NewResponse(id, jsontext.Value(result)).Append(nil)))
	if resp.StatusCode != http.StatusAccepted || body != "" {
		p.t.Errorf("a response: %d %s", resp.StatusCode, body)
	}
}

func (p *peer) notify(method, params string) {
	p.t.Helper()
	resp, body := p.post(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
	if resp.StatusCode != http.StatusAccepted || body != "" {
		p.t.Errorf("%s: %d %s", method, resp.StatusCode, body)
	}
}
