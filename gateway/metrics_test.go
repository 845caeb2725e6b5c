package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/meter"
)

// scraped is every series of ours and its value, as Prometheus reads it.
type scraped map[string]float64

func (s scraped) sum(name string) (sum float64) {
	for series, value := range s {
		if strings.HasPrefix(series, name+"{") {
			sum += value
		}
	}
	return sum
}

func (s scraped) count(name string) (n int) {
	for series := range s {
		if strings.HasPrefix(series, name+"{") {
			n++
		}
	}
	return n
}

// operators is a gateway with a listener for them.
type operators struct {
	*rig
	address string
}

func newOperators(t *testing.T, adjust func(*gateway.Config), hidden ...string) *operators {
	t.Helper()
	o := &operators{address: freeAddress(t)}
	o.rig = newRigWith(t, func(c *gateway.Config) {
		c.Admin.Listen = o.address
		adjust(c)
	}, hidden, bank())
	eventually(t, "the listener for operators", func() bool {
		resp, err := http.Get("http://" + o.address + "/healthz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil
	})
	return o
}

// ask sends the operators' listener a request; headers are names and values in
// turn, and Host is one of them.
func (o *operators) ask(method, path, body string, headers ...string) (int, string) {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), method, "http://"+o.address+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (o *operators) scrape() scraped {
	o.t.Helper()
	status, text := o.ask("GET", "/metrics", "")
	if status != http.StatusOK {
		o.t.Fatalf("metrics: %d %s", status, text)
	}
	s := scraped{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "regogate_") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			o.t.Fatalf("%q: %v", line, err)
		}
		s[line[:at]] = value
	}
	return s
}

// after scrapes once so many requests have been counted: a request is counted
// after its client has the answer.
func (o *operators) after(requests float64) (s scraped) {
	o.t.Helper()
	eventually(o.t, fmt.Sprint(requests, " requests are counted"), func() bool {
		s = o.scrape()
		return s.sum("regogate_requests_total") >= requests
	})
	return s
}

func TestMetrics(t *testing.T) {
	o := newOperators(t, func(*gateway.Config) {})
	before := o.scrape()
	if n := before.sum("regogate_requests_total"); n != 0 {
		t.Fatalf("%v requests before there was one", n)
	}
	m := modern(t, o.World, "/mcp", "developer")
	m.do("tools/list", "{}")
	m.do("tools/list", "{}")
	m.do("tools/call", `{"name":"bank__pay","arguments":{"amount":5}}`)
	m.do("tools/call", `{"name":"bank__nothing","arguments":{}}`)
	(&peer{t: t, url: o.URL + "/mcp", token: "x.y.z"}).post(call(1, "bank__pay"))
	old := connect(t, o.World, "/mcp", "developer")
	old.do("ping", "{}")
	old.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for _, path := range []string{"/healthz", "/readyz", "/.well-known/oauth-protected-resource/mcp"} {
		if resp, err := http.Get(o.URL + path); err != nil || resp.StatusCode != http.StatusOK || resp.Body.Close() != nil {
			t.Fatalf("%s: %v %v", path, resp, err)
		}
	}
	o.forbid("no")
	m.do("tools/call", `{"name":"bank__say","arguments":{"message":"no"}}`)
	const requests = 10 // with the one that tells the rig that the policy is another
	s := o.after(requests)
	for series, want := range map[string]float64{
		`requests_total{era="modern",method="tools/list",outcome="ok"}`:                2,
		`requests_total{era="modern",method="tools/call",outcome="ok"}`:                1,
		`requests_total{era="modern",method="tools/call",outcome="unknown_tool"}`:      1,
		`requests_total{era="modern",method="tools/call",outcome="denied"}`:            1,
		`requests_total{era="none",method="none",outcome="token_malformed"}`:           1,
		`requests_total{era="legacy",method="initialize",outcome="ok"}`:                1,
		`requests_total{era="legacy",method="ping",outcome="ok"}`:                      1,
		`requests_total{era="legacy",method="notifications/initialized",outcome="ok"}`: 1,
		`http_responses_total{status="401"}`:                                           1,
		`http_responses_total{status="202"}`:                                           1,
		`request_duration_seconds_count{method="tools/call"}`:                          3,
		`stage_duration_seconds_count{stage="upstream"}`:                               1,
		`decisions_total{gate="allow",outcome="allowed"}`:                              3,
		`decisions_total{gate="call",outcome="allowed"}`:                               1,
		`decisions_total{gate="call",outcome="denied"}`:                                1,
		`decision_reasons_total{gate="call",reason="by_key"}`:                          1,
		`visible_items_count{list="tools"}`:                                            2,
		`visible_items_bucket{list="tools",le="2"}`:                                    0,
		`visible_items_bucket{list="tools",le="5"}`:                                    2,
		`upstream_requests_total{outcome="ok",server="bank"}`:                          1,
		`upstream_duration_seconds_count{server="bank"}`:                               1,
		`upstream_up{server="bank"}`:                                                   1,
		`upstream_breaker_open{server="bank"}`:                                         0,
		`upstream_requests_in_flight{server="bank"}`:                                   0,
		`catalog_items{list="tools"}`:                                                  4,
		`issuer_usable{issuer="` + o.Config.Auth.Issuers[0].Issuer + `"}`:              1,
		`sessions`: 1, `streams_open`: 0, `ready`: 1, `part_ready{part="policy"}`: 1,
	} {
		if got, ok := s["regogate_"+series]; !ok || got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if s["regogate_stage_duration_seconds_count{stage=\"auth\"}"] < 7 || s.count("regogate_build_info") != 1 {
		t.Errorf("stages or build: %v", s)
	}
}

// Whatever clients, servers and policies make up, there are no more series for it.
func TestHostileMetrics(t *testing.T) {
	o := newOperators(t, func(c *gateway.Config) {
		const made = "package mcp.authz\nreasons contains input.tool.name\nreasons contains input.request.client.name\n"
		if err := os.WriteFile(filepath.Join(c.Policy.Dir, "made.rego"), []byte(made), 0o600); err != nil {
			t.Fatal(err)
		}
	}, "unregistered")
	old := connect(t, o.World, "/mcp", "developer")
	sent, n := 1.0, 0
	round := func() scraped {
		for range 150 {
			n++
			evil := fmt.Sprint("evil", n)
			m := modern(t, o.World, "/mcp", "developer", `"io.modelcontextprotocol/clientCapabilities":{}`)
			m.meta = strings.Replace(m.meta, `"name":"test"`, `"name":"`+evil+` \n\""`, 1)
			m.do("tools/call", `{"name":"bank__`+evil+`","arguments":{"`+evil+`":"`+evil+`"}}`)
			m.do(evil+"/list", "{}")
			old.do(evil, "{}")
			old.post(`{"jsonrpc":"2.0","method":"notifications/` + evil + `"}`)
			old.post(call(1, "x"), "Mcp-Session-Id", evil)
			old.post(call(1, "x"), "MCP-Protocol-Version", evil)
			old.post(call(1, "x"), "Origin", "https://"+evil+".example")
			old.post(`{"jsonrpc":"2.0","id":"` + evil + `"`)
			old.send("EVIL"+strconv.Itoa(n), "")
			for _, p := range []peer{
				{url: o.URL + "/mcp", token: evil},
				{url: o.URL + "/mcp/" + evil, token: m.token},
				{url: o.URL + "/" + evil, token: m.token},
			} {
				p.t = t
				p.post(call(1, evil))
			}
			sent += 12
		}
		return o.after(sent)
	}
	first := round()
	if got := first.sum("regogate_requests_total"); got != sent {
		t.Errorf("%v requests are counted of %v", got, sent)
	}
	if got := first.count("regogate_decision_reasons_total"); got != meter.MaxReasons+1 {
		t.Errorf("%d series of reasons, want %d and one for all others", got, meter.MaxReasons)
	}
	second := round()
	for series := range second {
		if _, known := first[series]; !known {
			t.Errorf("a new series: %s", series)
		}
		if strings.Contains(strings.ToLower(series), "evil") && !strings.HasPrefix(series, "regogate_decision_reasons_total") {
			t.Errorf("a label that a client made up: %s", series)
		}
	}
	if len(second) != len(first) || len(second) > 600 {
		t.Errorf("%d series, then %d", len(first), len(second))
	}
	methods := map[string]bool{}
	for series := range second {
		if _, rest, ok := strings.Cut(series, `method="`); ok {
			method, _, _ := strings.Cut(rest, `"`)
			methods[method] = true
		}
	}
	if len(methods) != 4 || !methods["other"] || !methods["none"] || !methods["tools/call"] || !methods["initialize"] {
		t.Errorf("methods: %v", methods)
	}
}
