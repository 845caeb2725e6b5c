package meter

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/regogate/regogate/gateway/mcp"
)

func sample() *Meter {
	return New(Sets{
		Methods: []string{"ping", "tools/call"}, Outcomes: []string{"ok", "denied"}, Verdicts: []string{"allowed", "denied"},
		Answers: []string{"ok", "timeout"}, Lists: []string{"tools"},
	})
}

// series are those of one metric, sorted, as Prometheus reads them.
func series(t *testing.T, m *Meter, name string) (list []string) {
	t.Helper()
	all := prometheus.NewPedanticRegistry()
	if err := all.Register(m); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 200 {
		t.Fatal(w.Body)
	}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, name) {
			list = append(list, strings.TrimSuffix(line, "\n"))
		}
	}
	return list
}

func collected(t *testing.T, m *Meter, name string, want ...string) {
	t.Helper()
	if got := series(t, m, name); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestClosedSets(t *testing.T) {
	m := sample()
	for _, r := range []Request{
		{Method: "ping", Era: mcp.Legacy, Outcome: "ok", Status: 200},
		{Method: "ping", Era: mcp.Modern, Outcome: "ok", Status: 200},
		{Method: "pong", Era: mcp.Modern, Outcome: "made up", Status: 200},
		{Method: "pang", Era: mcp.Modern, Outcome: "invented", Status: 404},
		{Outcome: "denied", Status: 0},
		{Era: 250, Outcome: "denied", Status: 70_000},
		{Era: 251, Outcome: "denied", Status: -1},
	} {
		m.Request(r)
	}
	collected(t, m, "regogate_requests_total",
		`regogate_requests_total{era="legacy",method="none",outcome="denied"} 1`,
		`regogate_requests_total{era="legacy",method="ping",outcome="ok"} 1`,
		`regogate_requests_total{era="modern",method="none",outcome="denied"} 1`,
		`regogate_requests_total{era="modern",method="other",outcome="other"} 2`,
		`regogate_requests_total{era="modern",method="ping",outcome="ok"} 1`,
		`regogate_requests_total{era="none",method="none",outcome="denied"} 1`,
	)
	collected(t, m, "regogate_http_responses_total",
		`regogate_http_responses_total{status="200"} 3`, `regogate_http_responses_total{status="404"} 1`,
		`regogate_http_responses_total{status="599"} 1`, `regogate_http_responses_total{status="none"} 2`,
	)
}

func TestStagesThatWereReached(t *testing.T) {
	m := sample()
	r := Request{Method: "tools/call", Outcome: "ok", Took: 2 * time.Millisecond}
	r.Stages[Policy] = 300 * time.Microsecond
	m.Request(r)
	m.Request(Request{Method: "tools/call", Outcome: "ok"}) // a stream
	collected(t, m, "regogate_stage_duration_seconds_count",
		`regogate_stage_duration_seconds_count{stage="auth"} 0`, `regogate_stage_duration_seconds_count{stage="policy"} 1`,
		`regogate_stage_duration_seconds_count{stage="registry"} 0`, `regogate_stage_duration_seconds_count{stage="upstream"} 0`,
	)
	const name = "regogate_request_duration_seconds"
	var want []string
	for _, b := range buckets {
		n := 0
		if b >= .002 {
			n = 1
		}
		want = append(want, fmt.Sprintf(`%s_bucket{method="tools/call",le="%v"} %d`, name, b, n))
	}
	want = append(want, name+`_bucket{method="tools/call",le="+Inf"} 1`, name+`_sum{method="tools/call"} 0.002`, name+`_count{method="tools/call"} 1`)
	collected(t, m, name, want...)
}

// What a policy says is told apart up to a number, and counted beyond.
func TestReasons(t *testing.T) {
	m := sample()
	for round := range 2 {
		for i := range MaxReasons + 50 {
			m.Decision(Call, "denied", []string{fmt.Sprint("reason_", i), fmt.Sprint("reason_", i/2)})
		}
		if n := len(series(t, m, "regogate_decision_reasons_total")); n != MaxReasons+1 {
			t.Errorf("round %d: %d series, want %d", round, n, MaxReasons+1)
		}
	}
	m.Decision(Allow, "unheard of", nil)
	m.Decision(List, "allowed", nil)
	var want []string
	for _, gate := range gateNames {
		for _, outcome := range []string{"allowed", "denied", "other"} {
			n := map[string]int{"allow other": 1, "call denied": 2 * (MaxReasons + 50), "list allowed": 1}[gate+" "+outcome]
			want = append(want, fmt.Sprintf("regogate_decisions_total{gate=%q,outcome=%q} %d", gate, outcome, n))
		}
	}
	collected(t, m, "regogate_decisions_total", want...)
}

func TestUpstream(t *testing.T) {
	m := sample()
	m.Upstream("git", "ok", time.Millisecond)
	m.Upstream("git", "timeout", time.Second)
	m.Upstream("stripe", "unheard of", time.Second)
	collected(t, m, "regogate_upstream_requests_total",
		`regogate_upstream_requests_total{outcome="ok",server="git"} 1`,
		`regogate_upstream_requests_total{outcome="other",server="stripe"} 1`,
		`regogate_upstream_requests_total{outcome="timeout",server="git"} 1`,
	)
	collected(t, m, "regogate_upstream_duration_seconds_sum",
		`regogate_upstream_duration_seconds_sum{server="git"} 1.001`, `regogate_upstream_duration_seconds_sum{server="stripe"} 1`)
}

func BenchmarkRequest(b *testing.B) {
	m := sample()
	r := Request{Method: "tools/call", Era: mcp.Modern, Outcome: "ok", Status: 200, Took: time.Millisecond}
	for s := range r.Stages {
		r.Stages[s] = 100 * time.Microsecond
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.InFlight.Inc()
			m.Decision(Allow, "allowed", nil)
			m.Decision(Call, "allowed", nil)
			m.Upstream("git", "ok", time.Millisecond)
			m.Request(r)
			m.InFlight.Dec()
		}
	})
}
