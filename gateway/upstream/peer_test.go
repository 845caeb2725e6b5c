package upstream

import (
	"context"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// tester is a peer that keeps what it is told.
type tester struct {
	key          string
	era          mcp.Era
	capabilities string
	subject      Subject
	notes        chan *mcp.Message
	ask          func(ctx context.Context, m *mcp.Message) *mcp.Message // nil refuses
}

// testPeer is a peer of the legacy era that can do nothing.
func testPeer(key string) *tester {
	return &tester{key: key, era: mcp.Legacy, capabilities: "{}", notes: make(chan *mcp.Message, 1000)}
}

// ablePeer is a peer that answers everything, each method in its way.
func ablePeer(key string) *tester {
	p := testPeer(key)
	p.capabilities = `{"sampling":{},"elicitation":{},"roots":{"listChanged":true},"experimental":{"x":9007199254740993}}`
	p.ask = func(_ context.Context, m *mcp.Message) *mcp.Message { return answerAs(key, m) }
	return p
}

// answerAs is the answer of somebody to a request of a server.
func answerAs(who string, m *mcp.Message) *mcp.Message {
	results := map[string]string{
		"sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"` + who + `"}}`,
		"elicitation/create":     `{"action":"accept","content":{"who":"` + who + `"}}`,
		"roots/list":             `{"roots":[{"uri":"file:///` + who + `"}]}`,
	}
	return mcp.NewResponse(mcp.NumberID(-1), jsontext.Value(results[m.Method]))
}

func (p *tester) Key() string                  { return p.key }
func (p *tester) Era() mcp.Era                 { return p.era }
func (p *tester) Capabilities() jsontext.Value { return jsontext.Value(p.capabilities) }
func (p *tester) Subject() Subject             { return p.subject }
func (p *tester) Notify(_ string, m *mcp.Message) {
	p.notes <- m
}

func (p *tester) Ask(ctx context.Context, _ string, m *mcp.Message) *mcp.Message {
	if p.ask == nil {
		return reply(m)
	}
	return p.ask(ctx, m)
}

// told waits for the next notification of a method and returns its params.
func (p *tester) told(t *testing.T, method string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case m := <-p.notes:
			if m.Method == method {
				return string(m.Params)
			}
		case <-deadline:
			t.Fatalf("%s was not told of by %s", p.key, method)
		}
	}
}

// ofTool are the params of a tools/call whose only argument is text.
func ofTool(name, text string) jsontext.Value {
	return jsontext.Value(`{"name":` + string(mcp.String(name)) + `,"arguments":{"text":` + string(mcp.String(text)) + `}}`)
}

// TestDeclared: a server learns what a client of its own era can do, and
// nothing of any other.
func TestDeclared(t *testing.T) {
	able, modern, none, odd := ablePeer("a"), ablePeer("b"), testPeer("c"), testPeer("d")
	modern.era, none.capabilities, odd.capabilities = mcp.Modern, "", "[]"
	for _, tt := range []struct {
		peer Peer
		era  mcp.Era
		want string
	}{
		{able, mcp.Legacy, able.capabilities},
		{able, mcp.Modern, "{}"},
		{modern, mcp.Modern, modern.capabilities},
		{modern, mcp.Legacy, "{}"},
		{none, mcp.Legacy, "{}"},
		{odd, mcp.Legacy, "{}"},
		{&crowd{}, mcp.Legacy, "{}"},
		{nil, mcp.Modern, anybody}, // the gateway's own
		{onlooker{}, mcp.Legacy, anybody},
	} {
		if got := string(declared(tt.peer, tt.era)); got != tt.want {
			t.Errorf("declared(%v, %v) is %s, want %s", tt.peer, tt.era, got, tt.want)
		}
	}
}
