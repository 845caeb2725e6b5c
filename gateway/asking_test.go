package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// TestTwoServersUseOneId has two servers ask under the same id at once, and
// answers the second first.
func TestTwoServersUseOneId(t *testing.T) {
	g := newRig(t, nil, asker("one"), asker("two"))
	p := legacy(t, g.World, "/mcp", "developer", able)
	one := p.open("tools/call", asking("one__ask", `7`, "sampling/createMessage", `{"messages":[],"maxTokens":1}`))
	first := one.message()
	two := p.open("tools/call", asking("two__ask", `7`, "sampling/createMessage", `{"messages":[],"maxTokens":2}`))
	second := two.message()
	if first.ID == second.ID || string(first.Params) != `{"messages":[],"maxTokens":1}` || string(second.Params) != `{"messages":[],"maxTokens":2}` {
		t.Fatalf("the client got %s and %s", first.Append(nil), second.Append(nil))
	}
	p.answer(second.ID, `{"role":"assistant","model":"two"}`)
	p.answer(first.ID, `{"role":"assistant","model":"one"}`)
	if got := said(t, one.message()); got != `{"role":"assistant","model":"one"}` {
		t.Errorf("the first server got %s", got)
	}
	if got := said(t, two.message()); got != `{"role":"assistant","model":"two"}` {
		t.Errorf("the second server got %s", got)
	}
}

// TestProgressOnARequestOfAServer goes back to that server under its own token.
func TestProgressOnARequestOfAServer(t *testing.T) {
	s := asker("asker")
	g := newRig(t, nil, s, asker("other"))
	p, other := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "developer", able)
	f := p.open("tools/call", asking("asker__ask", `1`, "sampling/createMessage", `{"messages":[],"maxTokens":1,"_meta":{"progressToken":"its own","x":1}}`))
	m := f.message()
	id := string(m.ID.Raw())
	if want := `{"messages":[],"maxTokens":1,"_meta":{"progressToken":` + id + `,"x":1}}`; string(m.Params) != want {
		t.Errorf("params %s, want %s", m.Params, want)
	}
	other.notify("notifications/progress", `{"progressToken":`+id+`,"progress":9}`)
	p.notify("notifications/progress", `{"progressToken":"its own","progress":8}`)
	p.notify("notifications/progress", `{"progressToken":99999,"progress":7}`)
	p.notify("notifications/progress", `{"progressToken":`+id+`,"progress":1,"message":"half"}`)
	eventually(t, "the server hears of the progress", func() bool { return len(s.Got("notifications/progress")) > 0 })
	p.answer(m.ID, `{"role":"assistant"}`)
	said(t, f.message())
	p.notify("notifications/progress", `{"progressToken":`+id+`,"progress":2}`)
	time.Sleep(50 * time.Millisecond) // nothing can be waited for
	got := s.Got("notifications/progress")
	if want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"its own","progress":1,"message":"half"}}`; len(got) != 1 || string(got[0].Body) != want {
		t.Errorf("the server got %s, want %s once", got, want)
	}
	if got := g.Servers["other"].Got("notifications/progress"); len(got) != 0 {
		t.Errorf("another server got %s", got)
	}
}

// TestAServerWithdrawsItsRequest tells the client under the id that it knows.
func TestAServerWithdrawsItsRequest(t *testing.T) {
	s := asker("asker")
	asked, told := make(chan struct{}), make(chan struct{})
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		if x.Method != mcp.MethodToolsCall {
			return nil, nil
		}
		go x.Ask(mcp.NumberID(5), "roots/list", jsontext.Value(`{}`))
		<-asked
		x.Notify("notifications/cancelled", jsontext.Value(`{"requestId":5,"reason":"found it"}`))
		<-told
		return text("done"), nil
	}
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	f := p.open("tools/call", `{"name":"asker__ask"}`)
	m := f.message()
	close(asked)
	f.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(m.ID.Raw()) + `,"reason":"nobody waits for the answer any more"}}`)
	p.answer(m.ID, `{"roots":[]}`) // too late, and for nobody
	close(told)
	if got := said(t, f.message()); got != "done" {
		t.Errorf("the call ended with %s", got)
	}
	for _, r := range s.Received() {
		if r.Method == "" {
			t.Errorf("the server got a response to what it withdrew: %s", r.Body)
		}
	}
}

// TestACancelledCallEndsWhatItsServerAsks cancels a call while its server waits
// for the client.
func TestACancelledCallEndsWhatItsServerAsks(t *testing.T) {
	s := asker("asker")
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	f := p.open("tools/call", asking("asker__ask", `1`, "roots/list", `{}`))
	m := f.message()
	p.notify("notifications/cancelled", `{"requestId":`+f.id+`,"reason":"enough"}`)
	f.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(m.ID.Raw()) + `,"reason":"nobody waits for the answer any more"}}`)
	f.want(`{"jsonrpc":"2.0","id":` + f.id + `,"error":{"code":-32603,"message":"the call was cancelled","data":{"server":"asker","reason":"backend_cancelled"}}}`)
	eventually(t, "the server hears that its call was cancelled", func() bool { return len(s.Got("notifications/cancelled")) == 1 })
}

// TestResponsesThatAnswerNothingAreDropped sends responses that nobody waits
// for, those to another session's requests among them.
func TestResponsesThatAnswerNothingAreDropped(t *testing.T) {
	s := asker("asker")
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	same, another := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "admin", able)
	f := p.open("tools/call", asking("asker__ask", `1`, "roots/list", `{}`))
	m := f.message()
	for _, liar := range []*peer{same, another} {
		liar.answer(m.ID, `{"roots":[{"uri":"file:///stolen"}]}`)
	}
	p.answer(mcp.NumberID(99), `{"roots":[]}`)
	id := strings.Trim(string(m.ID.Raw()), `"`)
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":"` + id + `","result":{"roots":[]}}`, // the id as another type
		`{"jsonrpc":"2.0","id":` + id + `00,"result":{}}`,
		`{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"x"}}`,
	} {
		if resp, text := p.post(body); resp.StatusCode != 202 || text != "" {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
	thief := &peer{t: t, url: p.url, token: another.token, session: p.session}
	if resp, _ := thief.post(`{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[]}}`); resp.StatusCode != 404 {
		t.Errorf("another principal in the session: %d", resp.StatusCode)
	}
	f.quiet("nothing has answered the request")
	p.answer(m.ID, `{"roots":[]}`)
	p.answer(m.ID, `{"roots":[{"uri":"file:///second"}]}`)
	if got := said(t, f.message()); got != `{"roots":[]}` {
		t.Errorf("the server got %s", got)
	}
	// In the modern era clients do not answer.
	body := `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`
	if resp, text := modern(t, g.World, "/mcp", "developer").post(body, "MCP-Protocol-Version", "2026-07-28"); resp.StatusCode != 400 || !strings.Contains(text, `"code":-32600`) {
		t.Errorf("a modern response: %d %s", resp.StatusCode, text)
	}
}

// TestThePolicyOfTheMomentDecides changes the policy between two requests of one
// call.
func TestThePolicyOfTheMomentDecides(t *testing.T) {
	g := newRig(t, nil, asker("asker"))
	p := legacy(t, g.World, "/mcp", "developer", able)
	f := p.open("tools/call", asking("asker__again", `1`, "roots/list", `{}`))
	m := f.message()
	g.hide("roots/list again")
	p.answer(m.ID, `{"roots":[]}`)
	if got, want := said(t, f.message()), `{"roots":[]} then error {"code":403,"message":"the policy does not allow this request to the client"}`; got != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
}

// TestServersAskOutsideACall judges such a request by the server, and sends it
// on the session's own stream.
func TestServersAskOutsideACall(t *testing.T) {
	s := asker("asker")
	sessions := make(chan string, 8)
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		if x.Method != mcp.MethodToolsCall {
			return nil, nil
		}
		sessions <- x.Session
		return text("done"), nil
	}
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	own := p.get("")
	p.do("tools/call", `{"name":"asker__ask"}`)
	session := <-sessions
	eventually(t, "the server's stream is open", func() bool { return s.Streams() >= 2 })
	answer := s.Put(session, mcp.NumberID(3), "roots/list", jsontext.Value(`{}`))
	m := own.message()
	if m == nil || m.Method != "roots/list" || string(m.Params) != `{}` {
		t.Fatalf("the client got %+v", m)
	}
	p.answer(m.ID, `{"roots":[{"uri":"file:///a"}]}`)
	if got := <-answer; string(got.Result) != `{"roots":[{"uri":"file:///a"}]}` {
		t.Errorf("the server got %s", got.Append(nil))
	}
	g.hide("roots/list server:asker")
	answer = s.Put(session, mcp.NumberID(4), "roots/list", jsontext.Value(`{}`))
	if got, want := string((<-answer).Error), `{"code":403,"message":"the policy does not allow this request to the client"}`; got != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
	own.quiet("the request was denied")
}

// TestClientsWithoutEventsAreAskedOnTheirOwnStream is for those that accept JSON
// alone.
func TestClientsWithoutEventsAreAskedOnTheirOwnStream(t *testing.T) {
	g := newRig(t, nil, asker("asker"))
	p := legacy(t, g.World, "/mcp", "developer", able)
	own := p.get("")
	answered := make(chan string, 1)
	go func() {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}`, asking("asker__ask", `1`, "roots/list", `{}`))
		_, text := p.post(body, "Accept", "application/json")
		answered <- text
	}()
	m := own.message()
	if m == nil || m.Method != "roots/list" {
		t.Fatalf("the client got %+v", m)
	}
	p.answer(m.ID, `{"roots":[]}`)
	if got := <-answered; !strings.Contains(got, `"text":"{\"roots\":[]}"`) {
		t.Errorf("answer %s", got)
	}
}
