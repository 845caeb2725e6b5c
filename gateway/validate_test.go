package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
)

// bank is a server of tools with a schema each.
func bank() *world.Server {
	define := func(name, schema string) jsontext.Value {
		return jsontext.Value(`{"name":"` + name + `","inputSchema":` + schema + `}`)
	}
	const amount = `{"type":"object","required":["amount"],"properties":{"amount":{"type":"integer","maximum":1000}}}`
	return &world.Server{
		Name: "bank", Era: mcp.Modern,
		Tools: []jsontext.Value{
			define("pay", amount), define("free", amount), define("broken", `{"type":"object","$ref":"http://127.0.0.1:1/schema"}`),
		},
	}
}

// Arguments that do not fit reach neither the policy's second question nor the
// server, in a way that a model can mend; what is hidden stays as unknown as what
// is not there.
func TestArgumentsAreValidated(t *testing.T) {
	s := bank()
	g := newRigWith(t, func(c *gateway.Config) {
		server := c.Servers["bank"]
		server.ValidateArguments, server.Validate = true, map[string]bool{"free": false}
		c.Servers["bank"] = server
	}, nil, s)
	const unfit = `{"content":[{"type":"text","text":"The call was not made, because its arguments do not fit the tool's inputSchema: RULE"}],"isError":true`
	for _, c := range []struct{ tool, arguments, rule string }{
		{"pay", `{"amount":5}`, ""},
		{"pay", `{"amount":null}`, "/amount must be of type integer, not null"},
		{"pay", `{"amount":"5"}`, "/amount must be of type integer, not string"},
		{"pay", `{"amount":5000}`, "/amount must keep to its maximum"},
		{"pay", `{}`, `the arguments must have \"amount\"`},
		{"free", `{"amount":"5"}`, ""},
		{"broken", `{"amount":"5"}`, ""},
	} {
		for era, p := range map[string]*peer{"legacy": legacy(t, g.World, "/mcp", "developer", able), "modern": modern(t, g.World, "/mcp", "developer")} {
			s.Forget()
			records := len(g.Records.All())
			status, answer := p.do("tools/call", `{"name":"bank__`+c.tool+`","arguments":`+c.arguments+`}`)
			want, arrived := strings.ReplaceAll(unfit, "RULE", c.rule), 0
			if c.rule == "" {
				arrived = 1
			} else if status != http.StatusOK || !strings.HasPrefix(answer, want) || (era == "modern") != strings.Contains(answer, `"resultType":"complete"`) {
				t.Errorf("%s %s %s: %d %s", era, c.tool, c.arguments, status, answer)
			}
			if got := len(s.Got("tools/call")); got != arrived {
				t.Errorf("%s %s %s: %d arrived, want %d: %s", era, c.tool, c.arguments, got, arrived, answer)
			}
			eventually(t, "the records", func() bool { return len(g.Records.All()) > records })
			for _, r := range g.Records.All()[records:] {
				if r.Rule == "call" && arrived == 0 {
					t.Errorf("%s %s %s: the policy was asked about the call", era, c.tool, c.arguments)
				}
			}
		}
	}
	g.hide("pay")
	p := modern(t, g.World, "/mcp", "developer")
	if _, answer := p.do("tools/call", `{"name":"bank__pay","arguments":{}}`); answer != `error {"code":-32602,"message":"Unknown tool: bank__pay"}` {
		t.Errorf("hidden: %s", answer)
	}
}

// Where the operator wants it, listed tools say whether a policy looks at the
// arguments of a call, and a policy that begins to is a change of the list.
func TestCallConditionsAreShown(t *testing.T) {
	g := newRigWith(t, func(c *gateway.Config) { c.ShowCallConditions = true }, nil, bank())
	p := legacy(t, g.World, "/mcp", "developer", able)
	count := func(value string) int {
		_, answer := p.do("tools/list", "{}")
		return strings.Count(answer, `"_meta":{"io.github.regogate/call_condition":`+value+`}`)
	}
	if got := count("true"); got != 3 {
		t.Errorf("%d of 3 tools say that there is a condition", got)
	}
	without := strings.ReplaceAll(strings.ReplaceAll(byKeys, "default call := false", ""), "call if", "_call if")
	g.rules.write("authz.rego", []byte(without))
	eventually(t, "the policy without a condition", func() bool { return count("false") == 3 })
	plain := newRig(t, nil, bank())
	if _, answer := legacy(t, plain.World, "/mcp", "developer", able).do("tools/list", "{}"); strings.Contains(answer, "call_condition") {
		t.Errorf("nobody wants it: %s", answer)
	}
}
