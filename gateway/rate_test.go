package gateway_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/limit"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
)

func perHour(n int) *limit.Limit { return &limit.Limit{Rate: limit.Rate{Count: n, Per: time.Hour}} }

// limited checks an answer of a limit, and that it says the same twice.
func limited(t *testing.T, what string, resp *http.Response, body, id, which string, most time.Duration) {
	t.Helper()
	head := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":429,"message":"too many requests of this ` + which + `: try again later","data":{"limit":"` + which + `","retry_after_ms":`
	rest, ok := strings.CutPrefix(body, head)
	ms, err := strconv.Atoi(strings.TrimSuffix(rest, "}}}"))
	seconds, headerErr := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusTooManyRequests || !ok || err != nil || headerErr != nil || ms <= 0 || ms > int(most.Milliseconds()) || seconds != (ms+999)/1000 {
		t.Errorf("%s: %d, Retry-After %q, %s", what, resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
}

// TestRequestsOfAPrincipal counts everything that one sends, whatever it is, and
// nothing that nobody sent.
func TestRequestsOfAPrincipal(t *testing.T) {
	const most = 8
	g := newRigWith(t, func(c *gateway.Config) { c.Limits.Rate.PerPrincipal = perHour(most) }, nil, shop())
	old := legacy(t, g.World, "/mcp", "developer", able) // one
	now := modern(t, g.World, "/mcp/shop", "developer")
	for range 3 {
		if resp, body := (&peer{t: t, url: old.url, token: old.token + "x"}).post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a bad token: %d %s", resp.StatusCode, body)
		}
	}
	old.do("tools/list", "{}")
	now.do("tools/call", `{"name":"open","arguments":{}}`)
	old.notify("notifications/initialized", "{}")
	old.post(`{`)
	old.get("").cut()
	old.do("no/method", "{}")
	if status, answer := now.do("tools/call", `{"name":"none","arguments":{}}`); status != http.StatusOK || !strings.Contains(answer, "Unknown tool: none") {
		t.Errorf("the last: %d %s", status, answer)
	}
	before := g.arrived()
	for _, p := range []*peer{old, now} {
		for _, method := range []string{"tools/list", "tools/call", "ping"} {
			body, headers := p.message("7", method, `{"name":"shop__open","arguments":{}}`)
			resp, text := p.post(body, headers...)
			limited(t, method, resp, text, "null", "principal", time.Hour/most) // the body has not been read
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		resp, body := old.send(method, "")
		limited(t, method, resp, body, "null", "principal", time.Hour/most)
	}
	if after := g.arrived(); len(after) != len(before) {
		t.Errorf("servers got %v", after[len(before):])
	}
	if resp, body := legacy(t, g.World, "/mcp", "admin", able).post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("somebody else: %d %s", resp.StatusCode, body)
	}
}

// TestClientsWithoutATokenAreOnePrincipal shares a limit between all of them.
func TestClientsWithoutATokenAreOnePrincipal(t *testing.T) {
	g := newRigWith(t, func(c *gateway.Config) {
		c.Auth.InsecureAnonymous = &auth.Anonymous{Claims: map[string]any{"sub": "anonymous"}}
		c.Limits.Rate.PerPrincipal = perHour(2)
	}, nil, shop())
	for i := range 3 {
		p := &peer{t: t, url: g.URL + "/mcp"}
		resp, body := p.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", fmt.Sprint("none", i))
		if i < 2 && resp.StatusCode != http.StatusNotFound {
			t.Errorf("request %d: %d %s", i, resp.StatusCode, body)
		}
		if i == 2 {
			limited(t, "one more", resp, body, "null", "principal", time.Hour/2)
		}
	}
}

// TestCallsOfATool counts the calls of one tool that go through, whoever makes
// them. Who must not see it learns nothing of that.
func TestCallsOfATool(t *testing.T) {
	g := newRigWith(t, func(c *gateway.Config) {
		c.Limits.Rate.PerTool = perHour(3)
		c.Limits.Rate.Tools = map[string]limit.Limit{"shop__shut": *perHour(1)}
	}, nil, shop())
	g.forbid("never")
	claims, err := world.Claims("developer")
	if err != nil {
		t.Fatal(err)
	}
	claims["hidden"], claims["sub"] = []string{"open"}, "somebody"
	blind, err := g.Mint(claims, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	aggregate, own := modern(t, g.World, "/mcp", "developer"), legacy(t, g.World, "/mcp/shop", "admin", able)
	hidden := modern(t, g.World, "/mcp", "developer")
	hidden.token = blind
	unseen := func() string {
		return look(t, hidden, "tools/call", `{"name":"shop__open","arguments":{}}`, "shop__open")
	}
	first := unseen()
	absent := look(t, hidden, "tools/call", `{"name":"shop__ofen","arguments":{}}`, "shop__ofen")

	for range 5 { // does not go through, and counts for nothing
		if _, answer := aggregate.do("tools/call", `{"name":"shop__open","arguments":{"message":"never"}}`); !strings.Contains(answer, `"code":403`) {
			t.Fatal(answer)
		}
	}
	for i, p := range []*peer{aggregate, own, aggregate} {
		name := map[*peer]string{aggregate: "shop__open", own: "open"}[p]
		if status, answer := p.do("tools/call", `{"name":"`+name+`","arguments":{}}`); status != http.StatusOK || !strings.Contains(answer, "shop ran open") {
			t.Errorf("call %d: %d %s", i, status, answer)
		}
	}
	before := g.arrived()
	for p, name := range map[*peer]string{aggregate: "shop__open", own: "open"} {
		body, headers := p.message("7", "tools/call", `{"name":"`+name+`","arguments":{}}`)
		resp, text := p.post(body, headers...)
		limited(t, "one more by "+p.url, resp, text, "7", "tool", time.Hour/3)
	}
	if _, answer := aggregate.do("tools/call", `{"name":"shop__open","arguments":{"message":"never"}}`); !strings.Contains(answer, `"code":403`) {
		t.Errorf("what is not allowed: %s", answer)
	}
	if after := g.arrived(); len(after) != len(before) {
		t.Errorf("servers got %v", after[len(before):])
	}
	if again := unseen(); again != first || again != absent {
		t.Errorf("to whom it is hidden it looks like\n%s\nbefore\n%s\nand one that is not there\n%s", again, first, absent)
	}
	for i := range 10 { // nobody offers these, so nothing counts them
		if _, answer := aggregate.do("tools/call", fmt.Sprintf(`{"name":"shop__n%d","arguments":{}}`, i%2)); !strings.Contains(answer, "Unknown tool") {
			t.Errorf("a tool that is not there: %s", answer)
		}
	}
	// Another tool has a limit of its own; lists and prompts have none.
	if _, answer := own.do("tools/call", `{"name":"shut","arguments":{}}`); !strings.Contains(answer, "shop ran shut") {
		t.Errorf("another tool: %s", answer)
	}
	body, headers := aggregate.message("8", "tools/call", `{"name":"shop__shut","arguments":{}}`)
	resp, text := aggregate.post(body, headers...)
	limited(t, "another tool", resp, text, "8", "tool", time.Hour)
	for range 5 {
		if status, answer := aggregate.do("tools/list", "{}"); status != http.StatusOK || !strings.Contains(answer, "shop__open") {
			t.Errorf("a list: %d %s", status, answer)
		}
		if status, answer := aggregate.do("prompts/get", `{"name":"shop__ask"}`); status != http.StatusOK || strings.HasPrefix(answer, "error") {
			t.Errorf("a prompt: %d %s", status, answer)
		}
	}
}

// TestOperatorsSeeLimits reads what they are told with Redis and without.
func TestOperatorsSeeLimits(t *testing.T) {
	server := redisserver.Start(t)
	address := freeAddress(t)
	g := newRigWith(t, func(c *gateway.Config) {
		c.Admin.Listen = address
		c.Limits.Rate = limit.Config{PerPrincipal: perHour(1), Redis: &registry.RedisConfig{Addrs: []string{server.Addr}, Timeout: 5 * time.Second}}
	}, nil, shop())
	p := modern(t, g.World, "/mcp", "developer")
	p.do("tools/list", "{}")
	body, headers := p.message("1", "tools/list", "{}")
	if resp, text := p.post(body, headers...); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more: %d %s", resp.StatusCode, text)
	}
	read := func(url string, wants ...string) {
		t.Helper()
		body := ""
		eventually(t, url+" answers", func() bool {
			resp, err := http.Get(url)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			body = string(text)
			return err == nil
		})
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("no %q in %s", want, body)
			}
		}
	}
	read("http://"+address+"/status", `"rate_limits":{"where":"redis","principal_refusals":1,"tool_refusals":0}`, `"status":"ready"`)
	read("http://"+address+"/metrics", `regogate_rate_limited_total{limit="principal"} 1`, `regogate_rate_limited_total{limit="tool"} 0`, "regogate_rate_limit_redis_problem 0")
	read(g.URL+"/readyz", `"limits":"ready"`)
	server.Kill()
	modern(t, g.World, "/mcp", "admin").do("tools/list", "{}")
	read("http://"+address+"/status", `"rate_limits":{"where":"local","problem":"the Redis of limits cannot be used: `, `"status":"degraded"`)
	read("http://"+address+"/metrics", "regogate_rate_limit_redis_problem 1")
	read(g.URL+"/readyz", `"limits":"degraded"`)
}

// TestCheckTriesLimits: the Redis, and that there are such tools.
func TestCheckTriesLimits(t *testing.T) {
	server := redisserver.Start(t)
	g := newRig(t, nil, shop())
	path := filepath.Join(t.TempDir(), "regogate.yaml")
	text := fmt.Sprintf(`listen: 127.0.0.1:0
auth: {insecure_anonymous: {claims: {sub: somebody}}}
servers: {shop: {url: %q}}
limits:
  rate:
    tools: {shop__open: {rate: 1/s}, shop__gone: {rate: 1/s}}
    redis: {addrs: [%q]}
`, g.Config.Servers["shop"].URL, server.Addr)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func() *gateway.Report {
		return gateway.Check(t.Context(), path, os.LookupEnv, nil, gateway.Options{
			Log: slog.New(slog.DiscardHandler), Policies: policies.FS, Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		})
	}
	r := check()
	if len(r.Problems) > 0 || len(r.Standings) != 1 || !slices.Equal(r.Standings[0].Strangers, []string{"gone"}) {
		t.Errorf("problems %v, standings %+v", r.Problems, r.Standings)
	}
	server.Kill()
	r = check()
	if len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0].String(), path+":7: limits.rate.redis: ") ||
		!strings.HasSuffix(r.Problems[0].String(), ": start it, or correct how it is reached") {
		t.Errorf("without Redis: %v", r.Problems)
	}
}
