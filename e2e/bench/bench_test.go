package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func synthetics(t *testing.T) *toolset {
	t.Helper()
	tools, err := readTools(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

func TestSyntheticDefinitions(t *testing.T) {
	tools := synthetics(t)
	if tools.real != 0 || len(tools.definitions) != 507 || len(tools.byServer()) != 24 {
		t.Fatalf("got %s", tools)
	}
	sorted := slices.Sorted(slices.Values(tools.sizes))
	total := 0
	for _, s := range sorted {
		total += s
	}
	if middle := sorted[len(sorted)/2]; middle < 1000 || middle > 1200 {
		t.Errorf("median %d B, want about %d", middle, medianSize)
	}
	if mean := total / len(sorted); mean < 1700 || mean > 2100 {
		t.Errorf("mean %d B, want about %d", mean, meanSize)
	}
	if again := synthetics(t); !slices.Equal(again.sizes, tools.sizes) {
		t.Error("another time the definitions are others")
	}
}

func TestRealDefinitions(t *testing.T) {
	first := synthetics(t).entries[0]
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "real-tools.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := func(name, schema string) string {
		return `{"server": "` + first.Server + `", "name": "` + name + `", "title": null, "description": "d", "inputSchema": ` + schema + "}\n"
	}
	write(line(first.Name, `{"type": "object"}`) + line("not_in_the_catalogue", `{}`))
	tools, err := readTools(dir)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"NAME","description":"d","inputSchema":{"type":"object"}}`
	got, err := json.Marshal(tools.definitions[0])
	if err != nil || string(got) != strings.ReplaceAll(want, "NAME", first.Name) || tools.real != 1 {
		t.Errorf("%d real, the first is %s: %v", tools.real, got, err)
	}
	write(line(first.Name, "null"))
	if tools, err = readTools(dir); err != nil || tools.real != 0 {
		t.Errorf("a name without a definition: %d real, %v", tools.real, err)
	}
	write(line(first.Name, `{}`) + "{\n")
	if _, err = readTools(dir); err == nil || !strings.Contains(err.Error(), "real-tools.jsonl:2: ") {
		t.Errorf("a broken line: %v", err)
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values []int
		part   float64
		want   int
	}{
		{nil, 0.5, 0}, {[]int{7}, 0.99, 7}, {[]int{1, 2, 3}, 0.5, 2}, {[]int{1, 2, 3, 4}, 0.5, 2},
		{[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.95, 10}, {[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9, 9}, {[]int{1, 2}, 0, 1},
	} {
		if got := quantile(c.values, c.part); got != c.want {
			t.Errorf("%g of %v: got %d, want %d", c.part, c.values, got, c.want)
		}
	}
}

func TestSummarise(t *testing.T) {
	s := summarise([]run{
		{latencies: []time.Duration{30, 10, 20}, took: time.Second},
		{latencies: []time.Duration{40, 60, 50}, took: 2 * time.Second},
	})
	if s.Requests != 6 || s.Wrong != 0 || s.Median != 30 || s.P95 != 60 || s.PerSecond != 2 || !slices.Equal(s.Medians, []float64{20, 50}) {
		t.Errorf("got %+v", s)
	}
	if got, want := s.over(summary{Medians: []float64{10, 10, 10}}), (ratio{2, 2, 5}); got == nil || *got != want {
		t.Errorf("ratio: got %v, want %v", got, want)
	}
	if got := s.over(summary{}); got != nil {
		t.Errorf("ratio to nothing: %v", got)
	}
	if got := s.over(summary{Medians: []float64{10}, Wrong: 1}); got != nil {
		t.Errorf("ratio to wrong answers: %v", got)
	}
}

// A fast error is never taken for an answer.
func TestWrongAnswersCount(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4:
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}`)
		case 5:
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
		default:
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{}}]}}`)
		}
	}))
	defer server.Close()
	target, err := listTarget(server.URL, "", []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := target.prove(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := target.measure(t.Context(), 10, 1)
	if err != nil || r.wrong != 3 || len(r.latencies) != 7 || r.clean() == nil {
		t.Errorf("%d wrong, %d right, clean %v, %v; want 3 wrong and 7 right", r.wrong, len(r.latencies), r.clean(), err)
	}
	if s := summarise([]run{r}); s.Wrong != 3 || s.Requests != 10 {
		t.Errorf("got %+v", s)
	}
	asked.Store(2)
	for range 3 {
		if err := target.prove(t.Context()); err == nil {
			t.Error("a wrong answer was proven right")
		}
	}
	if other, err := listTarget(server.URL, "", []string{"a", "b"}); err != nil || other.prove(t.Context()) == nil {
		t.Errorf("a list that lacks a tool was proven right: %v", err)
	}
}

func TestProxyVerifies(t *testing.T) {
	f, err := startField(t.Context(), synthetics(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}()
	call := f.ask.call
	good, err := f.token(caller)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(good, ".")
	other, err := f.signer.Sign(map[string]any{"iss": f.issuer, "aud": "somebody else", "sub": "x", "exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, token string
		passes      bool
	}{{"good", good, true}, {"none", "", false}, {"changed", head + ".e30" + rest, false}, {"for another audience", other, false}} {
		target, err := call.to(f.proxies[toOneVerified], c.token, call.tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := target.prove(t.Context()); (err == nil) != c.passes || err != nil && !strings.Contains(err.Error(), "401") {
			t.Errorf("token %s: %v", c.what, err)
		}
	}
	if m, err := f.soak(t.Context(), []int{20, 60}, slog.New(slog.DiscardHandler)); err != nil || len(m.Points) != 3 || m.Points[2].Calls != 60 || m.Lost != 0 {
		t.Errorf("soak: %+v, %v", m, err)
	}
}

// Everything once, with right answers everywhere; how long it takes is nobody's
// business here. Lists that are evaluated anew are left out: a slow machine
// does not get through them within the gateway's deadline.
func TestWholeBench(t *testing.T) {
	const remembered = `call|list/./(direct|bare|proxy|regogate(, (decision|legacy|developer)|$))`
	file := filepath.Join(t.TempDir(), "out.json")
	var out, log bytes.Buffer
	err := bench(t.Context(), []string{"-rounds", "2", "-n", "4", "-concurrency", "1,3", "-run", remembered, "-json", file}, &out, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2*(7+8) {
		t.Errorf("%d rows, want 7 for calls and 8 for lists at each of 2 concurrencies", len(r.Rows))
	}
	for _, row := range r.Rows {
		if row.Wrong != 0 || len(row.Medians) != 2 || row.Median <= 0 || row.OverDirect == nil || row.OverFloor == nil {
			t.Errorf("%s, %d at once, %s: %+v", row.Op, row.AtOnce, row.Name, row.summary)
		}
		if !strings.Contains(out.String(), "\n| "+row.Name+" | ") {
			t.Errorf("%s is not in the table", row.Name)
		}
	}
}

func TestReport(t *testing.T) {
	u, err := url.Parse("http://h/")
	if err != nil {
		t.Fatal(err)
	}
	made := func(name string, as role, wrong int, latencies ...time.Duration) *contest {
		c := &contest{entrant: entrant{opCall, name, as, &target{url: u}}, atOnce: 16}
		c.runs = []run{{latencies: latencies, took: time.Second, wrong: wrong}}
		return c
	}
	r := &report{
		Machine: machine{Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Command: "bench", Go: "go1", OPA: "v1", System: "s", CPU: "c", Procs: 2},
		Tools:   "2 tools", Asked: "x calls y",
		Rows: rows([]*contest{
			made("direct", baseline, 0, 10*time.Microsecond, 10*time.Microsecond), made("floor", floor, 0, 20*time.Microsecond, 2*time.Millisecond),
			made("gate", subject, 0, 31*time.Microsecond, 31*time.Microsecond), made("broken", contender, 1, 1),
		}),
	}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	const want = `2026-01-02, go1, OPA v1, s, c, GOMAXPROCS 2

` + "`bench`" + `

2 tools. x calls y.

tools/call, 16 at once (1 rounds of 2)

| | median | p95 | p99 | per second | times direct | times proxy with JWT |
|---|--:|--:|--:|--:|--:|--:|
| direct | 10 µs | 10 µs | 10 µs | 2 | 1.00 (1.00–1.00) | 0.50 (0.50–0.50) |
| floor | 20 µs | 2.00 ms | 2.00 ms | 2 | 2.00 (2.00–2.00) | 1.00 (1.00–1.00) |
| gate | 31 µs | 31 µs | 31 µs | 2 | 3.10 (3.10–3.10) | 1.55 (1.55–1.55) |
| broken | 1 of 2 answers wrong | | | | | |

Targets, at the median

- tools/call, 16 at once, gate: 1.55 times proxy with JWT, want at most 1.5: missed
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if err := r.clean(); err == nil || err.Error() != "tools/call, 16 at once, broken: 1 of 2 answers were wrong" {
		t.Errorf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-concurrency 1,x", `-concurrency 1,x: "x" is not a number from 1 to 64, which is as many sessions as one principal has`},
		{"-concurrency 65", `-concurrency 65: "65" is not a number from 1 to 64, which is as many sessions as one principal has`},
		{"-rounds 0", "-rounds and -n must be at least 1"},
		{"-run (", "-run: error parsing regexp: missing closing ): `(`"},
		{"much", `unexpected argument "much"`},
		{"-tools testdata", "-tools testdata: no real-tools.jsonl with definitions of the catalogue's tools there"},
		{"-run nothing -short", "-run: nothing has such a name"},
	} {
		var out bytes.Buffer
		err := bench(context.Background(), strings.Fields(c.args), &out, io.Discard)
		if err == nil || err.Error() != c.want || out.Len() > 0 {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
}
