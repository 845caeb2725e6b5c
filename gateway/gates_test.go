package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestTheSecondGateSeesTheArguments of prompts and completions as it does of
// tools, each with a benign twin.
func TestTheSecondGateSeesTheArguments(t *testing.T) {
	s := shop()
	g := newRig(t, nil, s)
	g.forbid("secret")
	for _, ask := range []struct{ method, params string }{
		{"tools/call", `{"name":"shop__open","arguments":{"message":"WORD"}}`},
		{"prompts/get", `{"name":"shop__ask","arguments":{"topic":"WORD"}}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"shop__ask"},"argument":{"name":"topic","value":"WORD"}}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"shop://open/{id}"},"argument":{"name":"id","value":"WORD"}}`},
	} {
		for era, p := range map[string]*peer{"legacy": legacy(t, g.World, "/mcp", "developer", able), "modern": modern(t, g.World, "/mcp", "developer")} {
			s.Forget()
			status, answer := p.do(ask.method, strings.ReplaceAll(ask.params, "WORD", "secret"))
			if status != http.StatusOK || !strings.HasPrefix(answer, `error {"code":403,"message":"the policy does not allow this call","data":{"decision_id":"`) {
				t.Errorf("%s %s: %d %s", era, ask.method, status, answer)
			}
			if got := s.Got(ask.method); len(got) != 0 {
				t.Errorf("%s %s: arrived: %s", era, ask.method, got[0].Body)
			}
			if _, answer := p.do(ask.method, strings.ReplaceAll(ask.params, "WORD", "public")); strings.HasPrefix(answer, "error") {
				t.Errorf("%s %s: the benign twin: %s", era, ask.method, answer)
			}
			if got := s.Got(ask.method); len(got) != 1 {
				t.Errorf("%s %s: %d of the benign twin arrived", era, ask.method, len(got))
			}
		}
	}
}

// TestCompletingIsAllowedByItself hides what completes from whom may use it, and
// what may be completed from whom may not.
func TestCompletingIsAllowedByItself(t *testing.T) {
	s := shop()
	g := newRig(t, nil, s)
	p := modern(t, g.World, "/mcp", "developer")
	prompt := `{"ref":{"type":"ref/prompt","name":"shop__ask"},"argument":{"name":"topic","value":"x"}}`
	template := `{"ref":{"type":"ref/resource","uri":"shop://open/{id}"},"argument":{"name":"id","value":"x"}}`
	for _, hidden := range [][]string{
		{"completion/complete"}, {"prompts/get", "resources/read"}, {"prompts/get ask", "resources/read shop://open/{id}"},
		{"completion/complete ask", "completion/complete shop://open/{id}"},
	} {
		g.hide(hidden...)
		if _, answer := p.do("completion/complete", prompt); answer != `error {"code":-32602,"message":"Unknown prompt: shop__ask"}` {
			t.Errorf("%v: %s", hidden, answer)
		}
		if _, answer := p.do("completion/complete", template); answer != `error {"code":-32602,"message":"Resource not found","data":{"uri":"shop://open/{id}"}}` {
			t.Errorf("%v: %s", hidden, answer)
		}
	}
	if got := s.Got("completion/complete"); len(got) != 0 {
		t.Errorf("%d arrived", len(got))
	}
}
