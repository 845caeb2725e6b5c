package gateway_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// needy is a server of the modern era that answers every use of its things with
// a wish for input, until a retry brings the state that it gave.
func needy(name string) *world.Server {
	s := &world.Server{
		Name: name, Era: mcp.Modern,
		Tools:     []jsontext.Value{tool("need"), tool("also")},
		Prompts:   []jsontext.Value{world.Prompt("need")},
		Resources: []jsontext.Value{world.Resource("need://x")},
	}
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		switch x.Method {
		case "tools/call", "prompts/get", "resources/read":
		default:
			return nil, nil
		}
		state, ok := mcp.Text(mcp.Find(x.Params, "requestState"))
		if !ok {
			return jsontext.Value(wish), nil
		}
		return text("state " + state + " with " + string(mcp.Find(x.Params, "inputResponses"))), nil
	}
	return s
}

const (
	state  = `é "state" of theirs`
	wanted = `"inputRequests":{"a b":{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{}}}},` +
		`"r":{"method":"roots/list","params":{}},"s":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9007199254740993}}}`
)

var wish = `{"resultType":"input_required",` + wanted + `,"requestState":` + string(mcp.String(state)) + `,"x":[1.0]}`

// given is the state in an answer, sealed.
func given(t *testing.T, answer string) string {
	t.Helper()
	found := regexp.MustCompile(`"requestState":"([A-Za-z0-9_-]{40,})"`).FindStringSubmatch(answer)
	if found == nil {
		t.Fatalf("no sealed state in %s", answer)
	}
	return found[1]
}

// uses are the three requests that may need input, on the aggregate route.
var uses = map[string]string{
	"tools/call": `"name":"needy__need","arguments":{"x":1}`, "prompts/get": `"name":"needy__need"`, "resources/read": `"uri":"need://x"`,
}

// TestInputIsAskedForAndBrought goes the whole way for all that can be used.
func TestInputIsAskedForAndBrought(t *testing.T) {
	g := newRig(t, nil, needy("needy"))
	p := modern(t, g.World, "/mcp", "developer")
	for method, params := range uses {
		status, answer := p.do(method, `{`+params+`}`)
		sealed := given(t, answer)
		if want := strings.Replace(wish, string(mcp.String(state)), `"`+sealed+`"`, 1); status != http.StatusOK || !strings.HasPrefix(answer, strings.TrimSuffix(want, "}")) {
			t.Errorf("%s: %d %s\nwant %s", method, status, answer, want)
		}
		responses := `{"a b":{"action":"accept","content":{"n":9007199254740993}},"other":{}}`
		_, answer = p.do(method, `{`+params+`,"inputResponses":`+responses+`,"requestState":"`+sealed+`"}`)
		if want := string(text("state " + state + " with " + responses)); !strings.HasPrefix(answer, strings.TrimSuffix(want, "}")) {
			t.Errorf("%s: %s\nwant %s", method, answer, want)
		}
		got := g.Servers["needy"].Got(method)
		if back, _ := mcp.Text(mcp.Find(mcp.Find(got[1].Body, "params"), "requestState")); len(got) != 2 || back != state {
			t.Errorf("%s: %d arrived, the last with the state %q", method, len(got), back)
		}
		// Responses without a state are for the server to judge.
		_, answer = p.do(method, `{`+params+`,"inputResponses":{"x":{}}}`)
		given(t, answer)
		g.Servers["needy"].Forget()
	}
}

// TestEachInputRequestIsJudged refuses one of three, at either gate.
func TestEachInputRequestIsJudged(t *testing.T) {
	g := newRig(t, nil, needy("needy"))
	p := modern(t, g.World, "/mcp", "developer")
	denied := regexp.MustCompile(`^error \{"code":403,"message":"the policy does not allow this call","data":\{"decision_id":"([^"]+)","reasons":\["by_key"\]\}\}$`)
	for _, close := range []func(){
		func() { g.hide("elicitation/create need") }, func() { g.hide("roots/list") }, func() { g.hide("sampling/createMessage need") },
		func() { g.forbid("roots/list need") }, func() { g.forbid("who?") },
	} {
		close()
		g.Records.Forget()
		status, answer := p.do("tools/call", `{"name":"needy__need"}`)
		found := denied.FindStringSubmatch(answer)
		if status != http.StatusOK || found == nil {
			t.Errorf("%d %s", status, answer)
			continue
		}
		eventually(t, "the decision is on record", func() bool {
			for _, r := range g.Records.All() {
				if r.ID == found[1] {
					return !r.Allowed && r.Thing().Name == "need"
				}
			}
			return false
		})
	}
	for method, params := range uses {
		g.hide("roots/list need", "roots/list need://x")
		if _, answer := p.do(method, `{`+params+`}`); denied.FindString(answer) == "" {
			t.Errorf("%s: %s", method, answer)
		}
		g.hide()
		if _, answer := p.do(method, `{`+params+`}`); given(t, answer) == "" {
			t.Errorf("%s: %s", method, answer)
		}
	}
}

// TestInputThatTheClientCannotGive fails the call, and shows nothing of the wish.
func TestInputThatTheClientCannotGive(t *testing.T) {
	g := newRig(t, nil, needy("needy"))
	for _, capabilities := range []string{`{}`, `{"sampling":{},"roots":{}}`, `{"elicitation":{"url":{}},"roots":{},"sampling":{}}`, `{"elicitation":{},"sampling":{}}`} {
		p := modern(t, g.World, "/mcp", "developer", `"io.modelcontextprotocol/clientCapabilities":`+capabilities)
		_, answer := p.do("tools/call", `{"name":"needy__need"}`)
		if !strings.HasPrefix(answer, `error {"code":-32603,"message":"server needy asks for `) || !strings.HasSuffix(answer, `"data":{"server":"needy","reason":"backend_broken"}}`) {
			t.Errorf("%s: %s", capabilities, answer)
		}
	}
	p := modern(t, g.World, "/mcp", "developer", `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{},"sampling":{}}`)
	_, answer := p.do("tools/call", `{"name":"needy__need"}`)
	given(t, answer)
}

// TestStatesAreBoundToTheirRequest brings a state where it is not from.
func TestStatesAreBoundToTheirRequest(t *testing.T) {
	g := newRig(t, nil, needy("needy"), needy("other"))
	p, another := modern(t, g.World, "/mcp", "developer"), modern(t, g.World, "/mcp", "payments")
	_, answer := p.do("tools/call", `{"name":"needy__need"}`)
	sealed := given(t, answer)
	for _, s := range g.Servers {
		s.Forget()
	}
	tampered := []byte(sealed)
	tampered[20] ^= 1
	const refused = `error {"code":-32602,"message":"params.requestState is not valid for this request any more: begin again without it"}`
	for what, ask := range map[string]struct {
		p              *peer
		method, params string
	}{
		"tampered":          {p, "tools/call", `{"name":"needy__need","requestState":"` + string(tampered) + `"}`},
		"longer":            {p, "tools/call", `{"name":"needy__need","requestState":"` + sealed + `-TAMPERED"}`},
		"shorter":           {p, "tools/call", `{"name":"needy__need","requestState":"` + sealed[:len(sealed)-1] + `"}`},
		"empty":             {p, "tools/call", `{"name":"needy__need","requestState":""}`},
		"the server's own":  {p, "tools/call", `{"name":"needy__need","requestState":` + string(mcp.String(state)) + `}`},
		"another principal": {another, "tools/call", `{"name":"needy__need","requestState":"` + sealed + `"}`},
		"another tool":      {p, "tools/call", `{"name":"needy__also","requestState":"` + sealed + `"}`},
		"another server":    {p, "tools/call", `{"name":"other__need","requestState":"` + sealed + `"}`},
		"another method":    {p, "prompts/get", `{"name":"needy__need","requestState":"` + sealed + `"}`},
		"a resource":        {p, "resources/read", `{"uri":"need://x","requestState":"` + sealed + `"}`},
	} {
		if status, answer := ask.p.do(ask.method, ask.params); status != http.StatusOK || answer != refused {
			t.Errorf("%s: %d %s", what, status, answer)
		}
	}
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived: %v", got)
	}
	// The same tool by its own name is the same tool.
	own := modern(t, g.World, "/mcp/needy", "developer")
	if _, answer := own.do("tools/call", `{"name":"need","requestState":"`+sealed+`"}`); !strings.Contains(answer, `of theirs with`) {
		t.Errorf("the same tool on its own route: %s", answer)
	}
}

// TestEveryRetryIsAuthorizedAgain takes the tool, and then this call of it, away
// between the request and its retry.
func TestEveryRetryIsAuthorizedAgain(t *testing.T) {
	g := newRig(t, nil, needy("needy"))
	p := modern(t, g.World, "/mcp", "developer")
	for method, params := range uses {
		_, answer := p.do(method, `{`+params+`}`)
		sealed := given(t, answer)
		g.Servers["needy"].Forget()
		retry := `{` + params + `,"requestState":"` + sealed + `","inputResponses":{}}`
		g.hide("need", "need://x")
		if _, answer := p.do(method, retry); !strings.HasPrefix(answer, `error {"code":-32602,"message":"Unknown `) && !strings.HasPrefix(answer, `error {"code":-32602,"message":"Resource not found"`) {
			t.Errorf("%s after it was hidden: %s", method, answer)
		}
		if method != "resources/read" { // which has no arguments to judge
			g.forbid(method + " need")
			if _, answer := p.do(method, retry); !strings.HasPrefix(answer, `error {"code":403,`) {
				t.Errorf("%s after it was forbidden: %s", method, answer)
			}
		}
		if got := g.arrived(); len(got) != 0 {
			t.Errorf("%s: arrived: %v", method, got)
		}
		g.hide()
		if _, answer := p.do(method, retry); !strings.Contains(answer, `of theirs with {}`) {
			t.Errorf("%s after it was allowed again: %s", method, answer)
		}
	}
}
