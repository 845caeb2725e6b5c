package gateway_test

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

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
			define("pay", amount), define("say", amount), define("free", amount), define("broken", `{"type":"object","$ref":"http://127.0.0.1:1/schema"}`),
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

// Whatever the arguments of a hidden tool are, it is as unknown as one that is not
// there, also where its schema says no, the policy would ask for a scope, or a
// header would have to repeat an argument; and no log has what they were.
func TestUnfitArgumentsTellNothing(t *testing.T) {
	log, unfit := &lines{}, 0
	s := bank()
	s.Tools = append(s.Tools, jsontext.Value(`{"name":"told","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`))
	g := &rig{t: t, rules: newRules(t, "pay", "nay", "told", "bold")}
	g.rules.write("authz.rego", []byte(byKeys+"\nscopes contains \"pay:write\" if input.arguments\n"))
	g.World = start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		Servers:   []*world.Server{s},
		Log:       slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Adjust: func(c *gateway.Config) {
			c.Policy.Dir, c.Policy.Deadline = g.rules.dir, 10*time.Second
			server := c.Servers["bank"]
			server.ValidateArguments = true
			c.Servers["bank"] = server
		},
	})
	for _, arguments := range []string{
		`,"arguments":{"amount":5}`, `,"arguments":{"amount":"hunter2"}`, `,"arguments":{"amount":5000,"hunter2":{}}`, ``, `,"arguments":null`, `,"arguments":["hunter2"]`,
		`,"arguments":{"amount":1e999999999}`, `,"arguments":{"a":5}`, `,"arguments":{"a":"hunter2"},"task":{}`, `,"arguments":{"amount":"` + strings.Repeat("9", 1<<20) + `"}`,
	} {
		for path, prefix := range map[string]string{"/mcp": "bank__", "/mcp/bank": ""} {
			for era, p := range map[string]*peer{"legacy": legacy(t, g.World, path, "developer", able), "modern": modern(t, g.World, path, "developer")} {
				for hidden, absent := range map[string]string{"pay": "nay", "told": "bold"} {
					hidden, absent = prefix+hidden, prefix+absent
					got := look(t, p, "tools/call", `{"name":"`+hidden+`"`+arguments+`}`, hidden)
					want := look(t, p, "tools/call", `{"name":"`+absent+`"`+arguments+`}`, absent)
					if got != want || strings.HasPrefix(arguments, `,"arguments":{`) && !strings.Contains(got, "Unknown tool: NAME") {
						t.Errorf("%s %s %s %.60s: hidden\n%s\nabsent\n%s", era, path, hidden, arguments, got, want)
					}
				}
				if _, answer := p.do("tools/call", `{"name":"`+prefix+`say"`+arguments+`}`); strings.Contains(answer, "The call was not made") {
					unfit++
				}
			}
		}
	}
	eventually(t, "all calls are in the log", func() bool { return strings.Count(log.String(), `"outcome":"invalid_arguments"`) == unfit })
	if text := log.String(); unfit < 20 || strings.Contains(text, "hunter2") {
		t.Errorf("%d calls did not fit; the log:\n%s", unfit, text)
	}
}

// A tool that can be seen says first what is wrong with the arguments, and asks for
// a scope only where they fit.
func TestFitArgumentsComeBeforeScopes(t *testing.T) {
	g := newRigWith(t, func(c *gateway.Config) {
		server := c.Servers["bank"]
		server.ValidateArguments = true
		c.Servers["bank"] = server
	}, nil, bank())
	g.rules.write("authz.rego", []byte(byKeys+"\nscopes contains \"pay:write\" if input.arguments\n"))
	g.forbid("pay")
	p := modern(t, g.World, "/mcp", "developer")
	for arguments, want := range map[string]string{`{"amount":5}`: "403 insufficient_scope", `{"amount":"5"}`: "200 isError"} {
		body, headers := p.message("1", "tools/call", `{"name":"bank__pay","arguments":`+arguments+`}`)
		resp, text := p.post(body, headers...)
		got := strconv.Itoa(resp.StatusCode)
		if strings.Contains(resp.Header.Get("WWW-Authenticate"), `insufficient_scope", scope="pay:write"`) {
			got += " insufficient_scope"
		}
		if strings.Contains(text, `"isError":true`) {
			got += " isError"
		}
		if got != want {
			t.Errorf("%s: %s, want %s: %s", arguments, got, want, text)
		}
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
	if got := count("true"); got != 4 {
		t.Errorf("%d of 4 tools say that there is a condition", got)
	}
	without := strings.ReplaceAll(strings.ReplaceAll(byKeys, "default call := false", ""), "call if", "_call if")
	g.rules.write("authz.rego", []byte(without))
	eventually(t, "the policy without a condition", func() bool { return count("false") == 4 })
	plain := newRig(t, nil, bank())
	if _, answer := legacy(t, plain.World, "/mcp", "developer", able).do("tools/list", "{}"); strings.Contains(answer, "call_condition") {
		t.Errorf("nobody wants it: %s", answer)
	}
}
