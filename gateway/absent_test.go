package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// shop offers what is hidden from everybody and what is not, of every kind.
func shop() *world.Server {
	return &world.Server{
		Name:      "shop",
		Tools:     []jsontext.Value{tool("open"), tool("shut")},
		Prompts:   []jsontext.Value{world.Prompt("ask"), world.Prompt("lid")},
		Resources: []jsontext.Value{world.Resource("shop://a/open"), world.Resource("shop://a/shut")},
		Templates: []jsontext.Value{world.Template("shop://open/{id}"), world.Template("shop://shut/{id}")},
	}
}

// look is everything that a client sees of an answer, but for the name that it
// asked for.
func look(t *testing.T, p *peer, method, params, name string) string {
	t.Helper()
	body, headers := p.message("1", method, params)
	resp, text := p.post(body, headers...)
	if text == "" {
		t.Fatalf("%s %s: an empty answer", method, params)
	}
	var seen bytes.Buffer
	if err := resp.Header.Write(&seen); err != nil {
		t.Fatal(err)
	}
	varying := regexp.MustCompile(`(?m)^(X-Request-Id|Date): .*\r\n`)
	quoted := regexp.QuoteMeta(name)
	return fmt.Sprintf("%d\n%s\n%d\n%s", resp.StatusCode, varying.ReplaceAllString(seen.String(), ""), len(text),
		regexp.MustCompile(quoted).ReplaceAllString(text, "NAME"))
}

// question is one way to ask for a name.
type question struct {
	method string
	params func(name string) string
	// By route: names of equal length, the first of which something is behind.
	names map[string][]string
	// want is the answer to them all, in the legacy and in the modern era.
	legacy, modern string
	records        string // methods of the decision records that each makes
}

func member(name string) func(string) string {
	return func(value string) string { return `{"` + name + `":"` + value + `"}` }
}

const (
	unknownTool   = `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: NAME"}}`
	unknownPrompt = `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown prompt: NAME"}}`
	noResource    = `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"Resource not found","data":{"uri":"NAME"}}}`
	badResource   = `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Resource not found","data":{"uri":"NAME"}}}`
)

func questions() []question {
	uris := map[string][]string{
		"/mcp":      {"shop://a/shut", "shop://shut/1", "shop://a/none", "shap://a/shut"},
		"/mcp/shop": {"shop://a/shut", "shop://shut/1"},
		"/mcp/none": {"shop://a/shut", "shop://shut/1", "shop://a/open"},
	}
	templates := map[string][]string{
		"/mcp":      {"shop://shut/{id}", "shop://none/{id}"},
		"/mcp/shop": {"shop://shut/{id}", "shop://none/{id}"},
		"/mcp/none": {"shop://shut/{id}", "shop://open/{id}"},
	}
	prompts := map[string][]string{
		"/mcp":      {"shop__lid", "shop__non", "shap__lid", "shopp_lid"},
		"/mcp/shop": {"lid", "non"},
		"/mcp/none": {"lid", "ask"},
	}
	return []question{
		{method: "tools/call", params: member("name"), legacy: unknownTool, modern: unknownTool, records: "tools/call", names: map[string][]string{
			"/mcp":      {"shop__shut", "shop__none", "shap__shut", "none__open", "shop__Shut"},
			"/mcp/shop": {"shut", "none", "SHUT"},
			"/mcp/none": {"shut", "open"},
		}},
		{method: "prompts/get", params: member("name"), legacy: unknownPrompt, modern: unknownPrompt, records: "prompts/get", names: prompts},
		{method: "resources/read", params: member("uri"), legacy: noResource, modern: badResource, records: "resources/read", names: uris},
		{method: "resources/subscribe", params: member("uri"), legacy: noResource, records: "resources/subscribe", names: uris},
		{method: "completion/complete", params: func(n string) string {
			return `{"ref":{"type":"ref/prompt","name":"` + n + `"},"argument":{"name":"topic","value":"x"}}`
		}, legacy: unknownPrompt, modern: unknownPrompt, records: "prompts/get", names: prompts},
		{method: "completion/complete", params: func(n string) string {
			return `{"ref":{"type":"ref/resource","uri":"` + n + `"},"argument":{"name":"id","value":"x"}}`
		}, legacy: noResource, modern: badResource, records: "resources/read", names: templates},
	}
}

// TestHiddenAndAbsentLookTheSame asks for things that the policy hides, that no
// backend offers and that are on a server that is not there, in every way that
// there is to ask. Nothing tells them apart, and no backend hears of it.
func TestHiddenAndAbsentLookTheSame(t *testing.T) {
	g := newRig(t, []string{
		"shut", "lid", "shop://a/shut", "shop://shut/1", "shop://shut/{id}",
		// What is not there is hidden, too: it is judged like all the rest.
		"none", "Shut", "SHUT", "non", "shop://a/none", "shop://none/{id}", "shap://a/shut",
	}, shop())
	for _, path := range []string{"/mcp", "/mcp/shop", "/mcp/none"} {
		for era, p := range map[string]*peer{
			"legacy": legacy(t, g.World, path, "developer", able), "modern": modern(t, g.World, path, "developer"),
		} {
			for _, q := range questions() {
				want := q.legacy
				if era == "modern" {
					want = q.modern
				}
				if want != "" {
					g.same(p, q, path, era, want)
				}
			}
		}
	}
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived at the backends: %v", got)
	}
}

func (g *rig) same(p *peer, q question, path, era, want string) {
	g.t.Helper()
	var first string
	for _, name := range q.names[path] {
		g.Records.Forget()
		got := look(g.t, p, q.method, q.params(name), name)
		if first == "" {
			first = got
			if text := got[strings.LastIndexByte(got, '\n')+1:]; text != want {
				g.t.Errorf("%s %s %s: %s\nwant %s", era, path, q.method, text, want)
			}
		}
		if got != first {
			g.t.Errorf("%s %s %s: %s looks different:\n%s\n%s", era, path, q.method, name, got, first)
		}
		eventually(g.t, "the decision is on record", func() bool { return len(g.Records.All()) > 0 })
		var asked []string
		for _, r := range g.Records.All() {
			asked = append(asked, r.Method)
			if r.Rule != "allow" || r.List != nil {
				g.t.Errorf("%s %s %s: record %+v", era, path, name, r)
			}
		}
		if text := strings.Join(asked, " "); text != q.records {
			g.t.Errorf("%s %s %s %s: records of %s, want %s", era, path, q.method, name, text, q.records)
		}
	}
}

// TestAbsentStaysAbsent asks for what is not there under a policy that allows
// everything.
func TestAbsentStaysAbsent(t *testing.T) {
	g := newRig(t, nil, shop())
	for _, era := range []string{"legacy", "modern"} {
		for path, asks := range map[string][][2]string{
			"/mcp": {
				{"tools/call", `{"name":"shop__none"}`}, {"tools/call", `{"name":"shap__open"}`}, {"tools/call", `{"name":"open"}`}, {"tools/call", `{"name":""}`},
				{"prompts/get", `{"name":"shop__none"}`}, {"prompts/get", `{"name":"ask"}`},
				{"resources/read", `{"uri":"shop://none"}`}, {"resources/read", `{"uri":"SHOP://a/open"}`}, {"resources/read", `{"uri":""}`},
				{"completion/complete", `{"ref":{"type":"ref/prompt","name":"shop__none"},"argument":{"name":"a","value":"b"}}`},
				{"completion/complete", `{"ref":{"type":"ref/resource","uri":"shop://none/{id}"},"argument":{"name":"a","value":"b"}}`},
			},
			"/mcp/shop": {
				{"tools/call", `{"name":"shop__open"}`}, {"prompts/get", `{"name":"shop__ask"}`},
				{"completion/complete", `{"ref":{"type":"ref/resource","uri":"shop://none/{id}"},"argument":{"name":"a","value":"b"}}`},
			},
			"/mcp/none": {
				{"tools/call", `{"name":"open"}`}, {"prompts/get", `{"name":"ask"}`}, {"resources/read", `{"uri":"shop://a/open"}`},
			},
		} {
			p := modern(t, g.World, path, "admin")
			if era == "legacy" {
				p = legacy(t, g.World, path, "admin", able)
			}
			for _, ask := range asks {
				status, answer := p.do(ask[0], ask[1])
				if !strings.HasPrefix(answer, `error {"code":-32602,"message":"Unknown `) &&
					!strings.HasPrefix(answer, `error {"code":-32602,"message":"Resource not found"`) &&
					!strings.HasPrefix(answer, `error {"code":-32002,"message":"Resource not found"`) || status != http.StatusOK {
					t.Errorf("%s %s %s %s: %d %s", era, path, ask[0], ask[1], status, answer)
				}
			}
		}
	}
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived at the backends: %v", got)
	}
}

// TestUnlistedResourcesAreForTheRouteOfTheirServer reads what no list has.
func TestUnlistedResourcesAreForTheRouteOfTheirServer(t *testing.T) {
	g := newRig(t, []string{"shop://linked/shut"}, shop(), &world.Server{Name: "bare", Tools: []jsontext.Value{tool("open")}})
	own := modern(t, g.World, "/mcp/shop", "developer")
	if _, answer := own.do("resources/read", `{"uri":"shop://linked/open"}`); !strings.Contains(answer, `"text":"shop has shop://linked/open"`) {
		t.Errorf("an unlisted resource: %s", answer)
	}
	if _, answer := own.do("resources/read", `{"uri":"shop://linked/shut"}`); !strings.HasPrefix(answer, `error {"code":-32602`) {
		t.Errorf("a hidden unlisted resource: %s", answer)
	}
	if got := g.Servers["shop"].Got("resources/read"); len(got) != 1 {
		t.Errorf("%d reads arrived, want 1", len(got))
	}
	// A server without resources is not asked for any.
	bare := modern(t, g.World, "/mcp/bare", "developer")
	if _, answer := bare.do("resources/read", `{"uri":"bare://x"}`); !strings.HasPrefix(answer, `error {"code":-32602`) {
		t.Errorf("a resource of a server that has none: %s", answer)
	}
	if got := g.Servers["bare"].Got("resources/read"); len(got) != 0 {
		t.Errorf("%d reads arrived at the server that has none", len(got))
	}
}

// TestADeniedResourceIsNotAcknowledged listens to what is allowed, hidden and
// not there.
func TestADeniedResourceIsNotAcknowledged(t *testing.T) {
	s := shop()
	s.Tells = true
	g := newRig(t, []string{"shop://a/shut", "resources/subscribe shop://open/2"}, s)
	for _, path := range []string{"/mcp", "/mcp/shop"} {
		f := modern(t, g.World, path, "developer").open("subscriptions/listen",
			`{"notifications":{"resourceSubscriptions":["shop://a/open","shop://a/shut","shop://open/1","shop://open/2"]}}`)
		f.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":["shop://a/open","shop://open/1"]},"_meta":{"io.modelcontextprotocol/subscriptionId":` + f.id + `}}}`)
		f.cut()
	}
	for _, r := range s.Got("subscriptions/listen") {
		if strings.Contains(string(r.Body), "shut") || strings.Contains(string(r.Body), "open/2") {
			t.Errorf("arrived: %s", r.Body)
		}
	}
	f := modern(t, g.World, "/mcp/none", "developer").open("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["shop://a/open"]}}`)
	f.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":` + f.id + `}}}`)
}

// TestMadeUpTasksLookTheSame asks for tasks by ids that nobody was given. Where
// no server of the client's era has tasks there is no such method.
func TestMadeUpTasksLookTheSame(t *testing.T) {
	g := newRig(t, nil, withTasks("shop", mcp.Modern), withTasks("till", mcp.Legacy))
	offered := []string{"legacy /mcp", "modern /mcp", "modern /mcp/shop"}
	for _, path := range []string{"/mcp", "/mcp/shop", "/mcp/none"} {
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/update"} {
			for era, p := range map[string]*peer{
				"legacy": legacy(t, g.World, path, "developer", able), "modern": modern(t, g.World, path, "developer"),
			} {
				if era == "legacy" && method == "tasks/update" || era == "modern" && method == "tasks/result" {
					continue
				}
				for _, id := range []string{"task-1", strings.Repeat("A", 64), ""} {
					status, answer := p.do(method, `{"taskId":"`+id+`"}`)
					want, code := `error {"code":-32602,"message":"Unknown task: `+id+`"}`, http.StatusOK
					if !slices.Contains(offered, era+" "+path) {
						want = `error {"code":-32601,"message":"Method not found: ` + method + `"}`
						if era == "modern" {
							code = http.StatusNotFound
						}
					}
					if status != code || answer != want {
						t.Errorf("%s %s %s: %d %s, want %s", era, path, method, status, answer, want)
					}
				}
			}
		}
	}
	for path, want := range map[string]string{
		"/mcp": `{"tasks":[]}`, "/mcp/till": `{"tasks":[]}`,
		"/mcp/shop": `error {"code":-32601,"message":"Method not found: tasks/list"}`,
		"/mcp/none": `error {"code":-32601,"message":"Method not found: tasks/list"}`,
	} {
		if _, answer := legacy(t, g.World, path, "developer", able).do("tasks/list", `{}`); answer != want {
			t.Errorf("%s tasks/list: %s, want %s", path, answer, want)
		}
	}
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived at the backends: %v", got)
	}
}
