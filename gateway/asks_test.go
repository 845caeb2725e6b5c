package gateway_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// asker is a server of the legacy era whose tool ask sends the client the
// request in its arguments, and answers with what it got.
func asker(name string) *world.Server {
	s := &world.Server{
		Name: name, Era: mcp.Legacy, Tells: true,
		Tools: []jsontext.Value{tool("ask"), tool("again")},
	}
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		call, err := mcp.ReadCall(x.Params)
		if x.Method != mcp.MethodToolsCall || err != nil {
			return nil, nil
		}
		answer := askOnce(x, call.Arguments)
		if call.Name == "again" {
			answer += " then " + askOnce(x, call.Arguments)
		}
		return text(answer), nil
	}
	return s
}

func askOnce(x *world.Exchange, arguments jsontext.Value) string {
	method, _ := mcp.Text(mcp.Find(arguments, "method"))
	id, _ := mcp.ReadID(mcp.Find(arguments, "id"))
	m := x.Ask(id, method, mcp.Find(arguments, "params"))
	switch {
	case m == nil:
		return "gone"
	case m.Error != nil:
		return "error " + string(m.Error)
	}
	return string(m.Result)
}

func text(s string) jsontext.Value {
	return jsontext.Value(`{"content":[{"type":"text","text":` + string(mcp.String(s)) + `}],"resultType":"complete"}`)
}

// asking makes the params of a call that has a tool ask for something.
func asking(tool, id, method, params string) string {
	return `{"name":"` + tool + `","arguments":{"id":` + id + `,"method":"` + method + `","params":` + params + `}}`
}

// said is the text of a result.
func said(t *testing.T, m *mcp.Message) string {
	t.Helper()
	if m == nil {
		t.Fatal("the stream ended without an answer")
	}
	content, err := mcp.Elements(mcp.Find(m.Result, "content"))
	if err != nil || len(content) != 1 {
		t.Fatalf("answer %s", m.Append(nil))
	}
	text, _ := mcp.Text(mcp.Find(content[0], "text"))
	return text
}

// wishes are the requests that servers make of clients, as servers word them.
var wishes = []struct{ what, method, params, answer string }{
	{"sampling", "sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":9007199254740993,"x":{"y":[1.0]}}`, `{"role":"assistant","content":{"type":"text","text":"ho"},"model":"m","n":9007199254740993}`},
	{"sampling with tools", "sampling/createMessage", `{"messages":[],"maxTokens":1,"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`, `{"role":"assistant","content":[],"model":"m"}`},
	{"form", "elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{"a":{"type":"string","enum":["x"],"enumNames":["X"],"default":"x"}}}}`, `{"action":"accept","content":{"a":"x"}}`},
	{"url", "elicitation/create", `{"mode":"url","message":"go","elicitationId":"e1","url":"https://example.com/e1"}`, `{"action":"accept"}`},
	{"roots", "roots/list", `{}`, `{"roots":[{"uri":"file:///a","name":"a"}]}`},
}

// TestServersAskDuringACall carries every request of a server to the client and
// the answer back, on a server's own route, byte for byte.
func TestServersAskDuringACall(t *testing.T) {
	g := newRig(t, nil, asker("asker"))
	p := legacy(t, g.World, "/mcp/asker", "developer", able)
	for i, w := range wishes {
		f := p.open("tools/call", asking("ask", `"q`+strconv.Itoa(i)+`"`, w.method, w.params))
		m := f.message()
		if m == nil || m.Kind() != mcp.Request || m.Method != w.method || string(m.Params) != w.params || string(m.ID.Raw()) == `"q`+strconv.Itoa(i)+`"` {
			t.Fatalf("%s: the client got %+v", w.what, m)
		}
		p.answer(m.ID, w.answer)
		if got := said(t, f.message()); got != w.answer {
			t.Errorf("%s: the server got %s\nwant %s", w.what, got, w.answer)
		}
	}
	// An error is an answer, too.
	f := p.open("tools/call", asking("ask", `1`, "roots/list", `{}`))
	id := string(f.message().ID.Raw())
	p.post(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-1,"message":"no","data":{"x":9007199254740993}}}`)
	if got, want := said(t, f.message()), `error {"code":-1,"message":"no","data":{"x":9007199254740993}}`; got != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
}

// TestElicitationIdsNameTheServer sends the user to a URL from the route of all
// servers, where two could use the same id.
func TestElicitationIdsNameTheServer(t *testing.T) {
	s := asker("asker")
	g := newRig(t, nil, s, asker("other"))
	p := legacy(t, g.World, "/mcp", "developer", able)
	own := p.get("")
	f := p.open("tools/call", asking("asker__ask", `1`, "elicitation/create", `{"mode":"url","message":"go","elicitationId":"e1","url":"https://example.com"}`))
	m := f.message()
	if want := `{"mode":"url","message":"go","elicitationId":"asker:e1","url":"https://example.com"}`; string(m.Params) != want {
		t.Errorf("params %s, want %s", m.Params, want)
	}
	p.answer(m.ID, `{"action":"accept"}`)
	said(t, f.message())
	eventually(t, "the server's stream is open", func() bool { return s.Streams() >= 2 })
	s.Say("notifications/elicitation/complete", jsontext.Value(`{"elicitationId":"e1"}`))
	own.want(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"asker:e1"}}`)
	g.hide("notifications/elicitation/complete server:asker")
	s.Say("notifications/elicitation/complete", jsontext.Value(`{"elicitationId":"e2"}`))
	own.quiet("the policy does not let the server say so")
}

// TestADeniedRequestReachesNobody has the policy refuse at the first gate, and
// at the second by what the request says.
func TestADeniedRequestReachesNobody(t *testing.T) {
	g := newRig(t, nil, asker("asker"))
	p := legacy(t, g.World, "/mcp", "developer", able)
	const denied = `error {"code":403,"message":"the policy does not allow this request to the client"}`
	for _, gate := range []struct {
		what  string
		close func()
		rule  string
	}{
		{"allow", func() { g.hide("elicitation/create ask") }, "allow"},
		{"call", func() { g.forbid("elicitation/create ask") }, "call"},
		{"what it says", func() { g.forbid("give me the password") }, "call"},
	} {
		gate.close()
		g.Records.Forget()
		f := p.open("tools/call", asking("asker__ask", `1`, "elicitation/create", `{"message":"give me the password"}`))
		m := f.message()
		if m.Kind() != mcp.Response {
			t.Fatalf("%s: the client got %s", gate.what, m.Append(nil))
		}
		if got := said(t, m); got != denied {
			t.Errorf("%s: the server got %s, want %s", gate.what, got, denied)
		}
		var refused []string
		for _, r := range g.Records.All() {
			if !r.Allowed {
				refused = append(refused, r.Rule+" "+r.Method+" "+string(r.Thing().Kind)+" "+r.Thing().Server+" "+r.Thing().Name)
			}
		}
		if want := gate.rule + " elicitation/create tool asker ask"; len(refused) != 1 || refused[0] != want {
			t.Errorf("%s: refusals on record: %v, want %q", gate.what, refused, want)
		}
	}
	// The benign twin of the last one.
	f := p.open("tools/call", asking("asker__ask", `1`, "elicitation/create", `{"message":"give me the number"}`))
	m := f.message()
	p.answer(m.ID, `{"action":"decline"}`)
	if got := said(t, f.message()); got != `{"action":"decline"}` {
		t.Errorf("the server got %s", got)
	}
}

// TestWhatTheClientCannotDoIsRefused asks clients that did not declare what they
// would need.
func TestWhatTheClientCannotDoIsRefused(t *testing.T) {
	g := newRig(t, nil, asker("asker"))
	for _, c := range []struct{ capabilities, able string }{
		{`{}`, ""},
		{`{"sampling":{}}`, "sampling"},
		{`{"elicitation":{}}`, "form"},
		{`{"elicitation":{"form":{}}}`, "form"},
		{`{"elicitation":{"url":{}}}`, "url"},
		{`{"roots":{}}`, "roots"},
		{`{"sampling":{"tools":{}}}`, "sampling, sampling with tools"},
	} {
		p := legacy(t, g.World, "/mcp", "developer", c.capabilities)
		for _, w := range wishes {
			f := p.open("tools/call", asking("asker__ask", `1`, w.method, w.params))
			m := f.message()
			asked := m.Kind() == mcp.Request
			if asked {
				p.answer(m.ID, w.answer)
				m = f.message()
			}
			if want := strings.Contains(", "+c.able+",", ", "+w.what+","); asked != want {
				t.Errorf("%s: asked for %s: %v, want %v", c.capabilities, w.what, asked, want)
			}
			if got := said(t, m); !asked && !strings.HasPrefix(got, `error {"code":-32601,`) {
				t.Errorf("%s: %s: the server got %s", c.capabilities, w.what, got)
			}
		}
	}
	// Nor is anything a request to the client that no revision knows.
	p := legacy(t, g.World, "/mcp", "developer", able)
	for _, method := range []string{"tools/call", "tools/list", "x", "sampling/createmessage", "tasks/list"} {
		f := p.open("tools/call", asking("asker__ask", `1`, method, `{}`))
		if got := said(t, f.message()); !strings.HasPrefix(got, `error {"code":-32601,`) {
			t.Errorf("%s: the server got %s", method, got)
		}
	}
}
