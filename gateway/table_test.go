package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// The methods of the revisions' schemas, by era: ClientRequest and
// ClientNotification of 2025-11-25 and, with the extension for tasks, of
// 2026-07-28. cancelled, in the latter, is for stdio alone.
var (
	legacyRequests = []string{
		"ping", "initialize", "completion/complete", "logging/setLevel", "prompts/get", "prompts/list", "resources/list",
		"resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe", "tools/call", "tools/list",
		"tasks/get", "tasks/result", "tasks/list", "tasks/cancel",
	}
	modernRequests = []string{
		"server/discover", "completion/complete", "prompts/get", "prompts/list", "resources/list", "resources/templates/list",
		"resources/read", "subscriptions/listen", "tools/call", "tools/list", "tasks/get", "tasks/update", "tasks/cancel",
	}
	legacyNotifications = []string{
		"notifications/cancelled", "notifications/progress", "notifications/initialized", "notifications/roots/list_changed",
	}
	// What only servers send, in either era.
	ofServers = []string{
		"sampling/createMessage", "elicitation/create", "roots/list",
		"notifications/message", "notifications/resources/updated", "notifications/resources/list_changed",
		"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/elicitation/complete",
		"notifications/tasks/status", "notifications/tasks", "notifications/subscriptions/acknowledged",
	}
	// What is no method of any revision.
	ofNobody = []string{
		"tools/Call", "TOOLS/CALL", "tools/call ", " tools/call", "tools//call", "tools/call/", "/tools/call", "tools/call\x00", "tools\u2215call",
		"tools.call", "rpc.discover", "rpc.tools/call", "tools/delete", "tools", "x", "", "server/Discover", "resources/write", "tasks/delete",
		"notifications/x", "initialise", "tools/list?x=1", "tools%2Fcall", "logging/setlevel", "subscriptions/unlisten",
	}
)

// broad is what makes sense as params of any request.
const broad = `{"name":"open","uri":"shop://a/open","taskId":"1","level":"info","cursor":"x","arguments":{},` +
	`"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":"b"},"notifications":{},` +
	`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"},"messages":[],"maxTokens":1,"message":"x","requestedSchema":{}}`

// TestEveryMethodIsOnTheTable sends every method of both eras, and what is no
// method, under a policy that allows everything.
func TestEveryMethodIsOnTheTable(t *testing.T) {
	g := newRig(t, nil, withTasks("shop", mcp.Modern), withTasks("till", mcp.Legacy))
	clients := map[string]*peer{"legacy": legacy(t, g.World, "/mcp/till", "admin", able), "modern": modern(t, g.World, "/mcp/shop", "admin")}
	all := slices.Concat(legacyRequests, modernRequests, legacyNotifications, ofServers, ofNobody)
	slices.Sort(all)
	for era, p := range clients {
		known := map[string][]string{"legacy": legacyRequests, "modern": modernRequests}[era]
		absent := map[string]int{"legacy": http.StatusOK, "modern": http.StatusNotFound}[era]
		for _, method := range slices.Compact(all) {
			g.Servers["shop"].Forget()
			g.Servers["till"].Forget()
			f := p.open(method, broad)
			status := f.status
			if slices.Contains(known, method) {
				if text := f.next(); status != http.StatusOK || strings.Contains(text, "-32601") {
					t.Errorf("%s %q: %d %s", era, method, status, text)
				}
				f.cut()
				continue
			}
			if method == "" { // not even a message
				absent := http.StatusBadRequest
				if text := f.next(); status != absent || strings.Contains(text, `"result"`) {
					t.Errorf("%s %q: %d %s", era, method, status, text)
				}
				continue
			}
			want := `{"jsonrpc":"2.0","id":` + f.id + `,"error":{"code":-32601,"message":` + quoted("Method not found: "+method) + `}}`
			// A header cannot say all of these, and then the body does not agree with it.
			if text := f.next(); (status != absent || text != want) && !(era == "modern" && status == http.StatusBadRequest && strings.Contains(text, "-32020")) {
				t.Errorf("%s %q: %d %s\nwant %d %s", era, method, status, text, absent, want)
			}
			// The client has left a request before this one, and its server may hear of that now.
			got := slices.DeleteFunc(g.arrived(), func(method string) bool { return method == "notifications/cancelled" })
			if len(got) != 0 {
				t.Errorf("%s %q: arrived at the backends: %v", era, method, got)
			}
		}
	}
}

func quoted(s string) string {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestNotificationsOfTheTableAloneAreTaken sends all methods as notifications:
// they are accepted, and reach nobody unless the table says so.
func TestNotificationsOfTheTableAloneAreTaken(t *testing.T) {
	s := shop()
	s.Era = 1 // the legacy one, where servers take notifications
	g := newRig(t, nil, s)
	l, m := legacy(t, g.World, "/mcp", "admin", able), modern(t, g.World, "/mcp", "admin")
	if _, answer := l.do("tools/call", `{"name":"shop__open"}`); !strings.Contains(answer, `"content"`) {
		t.Fatalf("no conversation with the backend: %s", answer)
	}
	g.Servers["shop"].Forget()
	for _, method := range slices.Concat(legacyRequests, modernRequests, legacyNotifications, ofServers, ofNobody) {
		if method == "" || method == "notifications/roots/list_changed" {
			continue
		}
		if method != "initialize" {
			l.notify(strings.Trim(quoted(method), `"`), broad)
		}
		body, headers := m.message("1", method, broad)
		resp, text := m.post(strings.Replace(body, `"id":1,`, "", 1), headers...)
		if (resp.StatusCode != http.StatusAccepted || text != "") && (resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "-32020")) {
			t.Errorf("modern %q: %d %s", method, resp.StatusCode, text)
		}
	}
	time.Sleep(50 * time.Millisecond) // nothing can be waited for
	if got := g.arrived(); len(got) != 0 {
		t.Errorf("arrived at the backend: %v", got)
	}
	l.notify("notifications/roots/list_changed", `{}`)
	eventually(t, "the backend hears of the roots", func() bool { return len(s.Got("notifications/roots/list_changed")) == 1 })
}

// TestMethodsOfOneEraAreNotOfTheOther pins down what each era lacks.
func TestMethodsOfOneEraAreNotOfTheOther(t *testing.T) {
	g := newRig(t, nil, &world.Server{Name: "shop", Tools: []jsontext.Value{tool("open")}})
	l, m := legacy(t, g.World, "/mcp", "admin", able), modern(t, g.World, "/mcp", "admin")
	for _, method := range []string{"server/discover", "subscriptions/listen", "tasks/update"} {
		if status, answer := l.do(method, broad); status != http.StatusOK || answer != `error {"code":-32601,"message":"Method not found: `+method+`"}` {
			t.Errorf("legacy %s: %d %s", method, status, answer)
		}
	}
	for _, method := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/result", "tasks/list"} {
		if status, answer := m.do(method, broad); status != http.StatusNotFound || answer != `error {"code":-32601,"message":"Method not found: `+method+`"}` {
			t.Errorf("modern %s: %d %s", method, status, answer)
		}
	}
}
