package gateway_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
)

// introduced is the instructions and capabilities in an introduction.
func introduced(t *testing.T, result string) (instructions, capabilities string) {
	t.Helper()
	instructions, _ = mcp.Text(mcp.Find(jsontext.Value(result), "instructions"))
	return instructions, string(mcp.Find(jsontext.Value(result), "capabilities"))
}

func initialized(t *testing.T, p *peer) string {
	t.Helper()
	_, body := p.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	m, err := mcp.Parse([]byte(body))
	if err != nil || m.Result == nil {
		t.Fatalf("initialize: %s", body)
	}
	return string(m.Result)
}

// TestServersAreIntroducedToThoseWhoMayKnow shows capabilities and instructions
// of those servers alone that the policy shows.
func TestServersAreIntroducedToThoseWhoMayKnow(t *testing.T) {
	full, bare := shop(), &world.Server{Name: "bare", Tools: []jsontext.Value{tool("open")}, Instructions: " Be brief. "}
	full.Tells, full.Instructions = true, "Ask first."
	g := newRig(t, nil, full, bare)
	const (
		all  = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}`
		few  = `{"tools":{"listChanged":true}}`
		both = "Server bare (its tools and prompts begin with bare__):\nBe brief.\n\nServer shop (its tools and prompts begin with shop__):\nAsk first."
	)
	check := func(path, instructions, capabilities string) {
		t.Helper()
		p := modern(t, g.World, path, "developer")
		_, discovered := p.do("server/discover", `{}`)
		l := &peer{t: t, url: p.url, token: p.token}
		for era, result := range map[string]string{"modern": discovered, "legacy": initialized(t, l)} {
			if i, c := introduced(t, result); i != instructions || c != capabilities {
				t.Errorf("%s %s: instructions %q, capabilities %s\nwant %q, %s", era, path, i, c, instructions, capabilities)
			}
			if instructions == "" && strings.Contains(result, "instructions") {
				t.Errorf("%s %s: %s", era, path, result)
			}
		}
	}
	check("/mcp", both, all)
	check("/mcp/shop", "Ask first.", all)
	check("/mcp/bare", "Be brief.", few)
	check("/mcp/none", "", few)
	// What it may see is declared all the same, or no client would ask for it.
	const seen = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{}}`
	g.hide("server:shop")
	check("/mcp", "Server bare (its tools and prompts begin with bare__):\nBe brief.", seen)
	check("/mcp/shop", "", seen)
	things := []string{"ask", "lid", "shop://a/open", "shop://a/shut", "shop://open/{id}", "shop://shut/{id}"}
	g.hide(append([]string{"server:shop"}, things...)...)
	check("/mcp", "Server bare (its tools and prompts begin with bare__):\nBe brief.", few)
	check("/mcp/shop", "", few)
	g.hide(append([]string{"developer-agent server:shop", "server:bare"}, things...)...)
	check("/mcp", "", few)
	check("/mcp/bare", "", few)
}

// names reads one member of every entry of a list, over all pages.
func names(t *testing.T, p *peer, method, list, member string) (out []string) {
	t.Helper()
	for params := `{}`; ; {
		_, answer := p.do(method, params)
		entries, err := mcp.Elements(mcp.Find(jsontext.Value(answer), list))
		if err != nil {
			t.Fatalf("%s: %s", method, answer)
		}
		for _, e := range entries {
			name, _ := mcp.Text(mcp.Find(e, member))
			out = append(out, name)
		}
		cursor := mcp.Find(jsontext.Value(answer), "nextCursor")
		if cursor == nil {
			return out
		}
		params = `{"cursor":` + string(cursor) + `}`
	}
}

// TestOneURIOnTwoServers goes to the first server, by name, that the policy
// allows it on, and is listed once.
func TestOneURIOnTwoServers(t *testing.T) {
	offers := func(name string) *world.Server {
		return &world.Server{
			Name: name, Tools: []jsontext.Value{tool("open")}, Prompts: []jsontext.Value{world.Prompt("ask")},
			Resources: []jsontext.Value{world.Resource("x://both")}, Templates: []jsontext.Value{world.Template("x://t/{id}")},
		}
	}
	g := newRig(t, nil, offers("alpha"), offers("beta"))
	p := modern(t, g.World, "/mcp", "developer")
	reads := func(uri string) string {
		t.Helper()
		_, answer := p.do("resources/read", `{"uri":"`+uri+`"}`)
		return regexp.MustCompile(`(alpha|beta) has|-32602`).FindString(answer)
	}
	lists := func(path string) string {
		t.Helper()
		p := modern(t, g.World, path, "developer")
		return fmt.Sprint(names(t, p, "resources/list", "resources", "uri"), names(t, p, "resources/templates/list", "resourceTemplates", "uriTemplate"),
			names(t, p, "prompts/list", "prompts", "name"), names(t, p, "tools/list", "tools", "name"))
	}
	if got := lists("/mcp"); got != "[x://both] [x://t/{id}] [alpha__ask beta__ask] [alpha__open beta__open]" {
		t.Errorf("lists %s", got)
	}
	if got := lists("/mcp/beta"); got != "[x://both] [x://t/{id}] [ask] [open]" {
		t.Errorf("beta's lists %s", got)
	}
	if got := reads("x://both") + ", " + reads("x://t/1"); got != "alpha has, alpha has" {
		t.Errorf("reads %s", got)
	}
	g.hide("alpha:x://both", "alpha:x://t/1")
	if got := reads("x://both") + ", " + reads("x://t/1") + ", " + reads("x://t/2"); got != "beta has, beta has, alpha has" {
		t.Errorf("with alpha's hidden: reads %s", got)
	}
	if got := lists("/mcp"); !strings.HasPrefix(got, "[x://both] ") {
		t.Errorf("with alpha's hidden: lists %s", got)
	}
	if got := lists("/mcp/alpha"); !strings.HasPrefix(got, "[] ") {
		t.Errorf("with alpha's hidden: its lists %s", got)
	}
	g.hide("alpha:x://both", "beta:x://both")
	if got := reads("x://both"); got != "-32602" {
		t.Errorf("with both hidden: reads %s", got)
	}
	if got := lists("/mcp"); !strings.HasPrefix(got, "[] ") {
		t.Errorf("with both hidden: lists %s", got)
	}
	// A prompt goes to its server under its own name.
	if _, answer := p.do("prompts/get", `{"name":"beta__ask","arguments":{"topic":"x"}}`); !strings.Contains(answer, `"text":"beta says ask"`) {
		t.Errorf("prompt: %s", answer)
	}
}

// TestCursorsAreOfOneList brings cursors where they are not from.
func TestCursorsAreOfOneList(t *testing.T) {
	s := shop()
	s.Tools = append(s.Tools, tool("x1"), tool("x2"))
	g := newRigWith(t, func(c *gateway.Config) { c.PageSize = 1 }, nil, s)
	lists := map[string][2]string{
		"tools/list": {"tools", "name"}, "prompts/list": {"prompts", "name"},
		"resources/list": {"resources", "uri"}, "resources/templates/list": {"resourceTemplates", "uriTemplate"},
	}
	next := regexp.MustCompile(`"nextCursor":("[^"]+")`)
	const stale = `error {"code":-32602,"message":"the cursor is not valid for this list any more: start again without one"}`
	p, another := modern(t, g.World, "/mcp", "developer"), modern(t, g.World, "/mcp", "payments")
	cursors := map[string]string{}
	for method, l := range lists {
		if got := names(t, p, method, l[0], l[1]); len(got) < 2 {
			t.Errorf("%s over pages: %v", method, got)
		}
		_, answer := p.do(method, `{}`)
		found := next.FindStringSubmatch(answer)
		if found == nil || !strings.Contains(answer, `"cacheScope":"private"`) {
			t.Fatalf("%s: %s", method, answer)
		}
		cursors[method] = found[1]
	}
	refuse := func(what string, p *peer, method, cursor string) {
		t.Helper()
		if status, answer := p.do(method, `{"cursor":`+cursor+`}`); status != 200 || answer != stale {
			t.Errorf("%s: %s: %d %s", what, method, status, answer)
		}
	}
	for method := range lists {
		for other := range lists {
			if other != method {
				refuse("of "+other, p, method, cursors[other])
			}
		}
		refuse("another principal", another, method, cursors[method])
		refuse("another route", modern(t, g.World, "/mcp/shop", "developer"), method, cursors[method])
		refuse("empty", p, method, `""`)
		refuse("made up", p, method, `"AAAA"`)
		if _, answer := p.do(method, `{"cursor":`+cursors[method]+`}`); strings.HasPrefix(answer, "error") {
			t.Errorf("%s: its own cursor: %s", method, answer)
		}
	}
	g.hide("nothing of this")
	for method := range lists {
		refuse("after a change of the policy", p, method, cursors[method])
	}
}
