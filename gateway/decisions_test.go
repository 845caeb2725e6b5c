package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// disk is a sink that can be full.
type disk struct {
	full atomic.Bool
	mu   sync.Mutex
	bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	if d.full.Load() {
		return 0, errors.New("no space left on device")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Buffer.Write(p)
}

func (d *disk) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.String()
}

// loggedRig is a rig whose decisions go to a disk.
func loggedRig(t *testing.T, failClosed bool) (*rig, *disk, *decisionlog.Log) {
	t.Helper()
	d := &disk{}
	l := decisionlog.New(decisionlog.Options{Log: slog.New(slog.DiscardHandler), FailClosed: failClosed})
	l.Attach("disk", d)
	t.Cleanup(func() { // when the world has ended
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	rules := newRules(t)
	w := start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		Servers:   []*world.Server{shop()}, Record: func(*gateway.Config) decisionlog.Recorder { return l },
		Adjust: func(c *gateway.Config) { c.Policy.Dir, c.Policy.Deadline = rules.dir, 10*time.Second },
	})
	return &rig{w, t, rules}, d, l
}

const unlogged = `error {"code":503,"message":"the gateway cannot decide now: decision_log_unavailable","data":{"reasons":["decision_log_unavailable"]}}`

// asks are all ways to have something decided.
func asks() [][2]string {
	return [][2]string{
		{"tools/list", `{}`}, {"prompts/list", `{}`}, {"resources/list", `{}`}, {"resources/templates/list", `{}`},
		{"tools/call", `{"name":"shop__open","arguments":{}}`}, {"tools/call", `{"name":"x"}`}, {"prompts/get", `{"name":"shop__ask"}`},
		{"resources/read", `{"uri":"shop://a/open"}`}, {"resources/read", `{"uri":"x"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"shop__ask"},"argument":{"name":"a","value":"b"}}`},
	}
}

// TestNothingWithoutARecord has the disk full for a while: whatever has to be on
// record is refused before any backend hears of it, and afterwards everything
// that was decided is on record.
func TestNothingWithoutARecord(t *testing.T) {
	g, d, l := loggedRig(t, true)
	p := modern(t, g.World, "/mcp", "developer")
	if _, answer := p.do("tools/call", `{"name":"shop__open","arguments":{}}`); !strings.Contains(answer, "shop ran open") {
		t.Fatalf("a call: %s", answer)
	}
	if err := l.Flush(t.Context()); err != nil { // or the call before may be what finds out
		t.Fatal(err)
	}
	d.full.Store(true)
	// What finds this out is decided and waits.
	if _, answer := p.do("tools/call", `{"name":"shop__open","arguments":{}}`); !strings.Contains(answer, "shop ran open") {
		t.Fatalf("a call: %s", answer)
	}
	eventually(t, "the log is known to fail", func() bool { return l.Stats().Sinks[0].Failing })
	decided, before := len(g.Records.All()), fmt.Sprint(g.arrived())
	for _, ask := range asks() {
		if _, answer := p.do(ask[0], ask[1]); answer != unlogged {
			t.Errorf("%s %s: %s", ask[0], ask[1], answer)
		}
	}
	legacy := &peer{t: t, url: g.URL + "/mcp", token: p.token}
	resp, body := legacy.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if legacy.session = resp.Header.Get("Mcp-Session-Id"); legacy.session == "" {
		t.Errorf("initialize: %d %s", resp.StatusCode, body)
	}
	if _, body := legacy.post(call(1, "shop__open")); !strings.Contains(body, `"code":503`) {
		t.Errorf("of the legacy era: %s", body)
	}
	if got := len(g.Records.All()); got != decided || fmt.Sprint(g.arrived()) != before {
		t.Errorf("%d decisions, %d before; arrived: %v", got, decided, g.arrived())
	}
	d.full.Store(false)
	eventually(t, "the log works again", func() bool { return !l.Stats().Sinks[0].Failing })
	for _, ask := range asks() {
		if _, answer := p.do(ask[0], ask[1]); answer == unlogged {
			t.Errorf("%s %s is still refused", ask[0], ask[1])
		}
	}
	if _, body := legacy.post(call(1, "shop__open")); !strings.Contains(body, "shop ran open") {
		t.Errorf("of the legacy era: %s", body)
	}
	g.logHolds(d, l)
}

// logHolds compares the log with what was recorded: once each, in order.
func (g *rig) logHolds(d *disk, l *decisionlog.Log) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := l.Flush(ctx); err != nil {
		g.t.Fatal(err)
	}
	want, got := g.Records.All(), strings.Split(strings.TrimSpace(d.text()), "\n")
	if len(got) < len(want) {
		g.t.Fatalf("%d lines, %d records", len(got), len(want))
	}
	for i, r := range want {
		if !strings.Contains(got[i], `"decision_id":"`+r.ID+`"`) {
			g.t.Errorf("line %d is not of record %s: %s", i, r.ID, got[i])
		}
	}
}

// TestDecidedWithoutALog is the default: a sink that fails is nothing that the
// clients feel, and what waits is written later.
func TestDecidedWithoutALog(t *testing.T) {
	g, d, l := loggedRig(t, false)
	d.full.Store(true)
	p := modern(t, g.World, "/mcp", "developer")
	for range 3 {
		for _, ask := range asks() {
			if _, answer := p.do(ask[0], ask[1]); answer == unlogged {
				t.Errorf("%s %s is refused", ask[0], ask[1])
			}
		}
	}
	eventually(t, "the log is known to fail", func() bool { return l.Stats().Sinks[0].Failing })
	d.full.Store(false)
	g.logHolds(d, l)
}

// TestEventsOfACall looks at what a call leaves behind: both gates, the input as
// each judged it, where it belongs in the caller's trace, and never a token.
func TestEventsOfACall(t *testing.T) {
	g, d, l := loggedRig(t, false)
	p := modern(t, g.World, "/mcp/shop", "developer")
	body, headers := p.message("1", "tools/call", `{"name":"open","arguments":{"password":"s3cr3t"}}`)
	before := len(g.Records.All())
	resp, answer := p.post(body, append(headers, "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")...)
	if resp.StatusCode != 200 || !strings.Contains(answer, "shop ran open") {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	eventually(t, "the call is on record", func() bool { return len(g.Records.All()) == before+2 })
	g.logHolds(d, l)
	lines := strings.Split(strings.TrimSpace(d.text()), "\n")
	for i, rule := range []string{"allow", "call"} {
		text := lines[before+i]
		var e struct {
			Path, Trace_ID, Span_ID string
			Result                  bool
			Erased                  []string
			Bundles                 map[string]struct{ Revision string }
			Input                   struct {
				Method string
				Claims map[string]any
				Tool   struct {
					Server, Name string
					Definition   map[string]any
				}
				Request map[string]any
			}
			Custom  map[string]any
			Metrics map[string]int64
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if e.Path != "mcp/authz/"+rule || !e.Result || e.Trace_ID != "0af7651916cd43dd8448eb211c80319c" || e.Span_ID != "b7ad6b7169203331" ||
			len(e.Erased) != i || e.Input.Claims["sub"] == nil || e.Input.Tool.Name != "open" || e.Input.Tool.Definition["sha256"] == nil ||
			e.Input.Request["id"] != resp.Header.Get("X-Request-Id") || e.Input.Request["route"] != "/mcp/shop" ||
			e.Bundles["policy"].Revision != g.Records.All()[0].PolicyRevision() || e.Custom["registry_revision"] == nil || e.Metrics["timer_total_ns"] == 0 {
			t.Errorf("%s: %s", rule, text)
		}
	}
	if strings.Contains(d.text(), "s3cr3t") || strings.Contains(d.text(), p.token) {
		t.Error("the log holds an argument or the token")
	}
}

// TestDecisionsGoThroughOPA has OPA's decision log plugin upload what was decided:
// all of it, masked once, and to the end although the gateway stops at once.
func TestDecisionsGoThroughOPA(t *testing.T) {
	var mu sync.Mutex
	got := map[string]map[string]any{}
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var events []map[string]any
		z, err := gzip.NewReader(r.Body)
		if err == nil {
			err = json.NewDecoder(z).Decode(&events)
		}
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			got[fmt.Sprint(e["decision_id"])] = e
		}
	}))
	defer collector.Close()
	rules := newRules(t)
	rules.write("mask.rego", []byte("package system.log\n\nmask contains \"/input/claims\"\n"))
	var d *gateway.Decisions
	w, err := world.Start(t.Context(), world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		Servers:   []*world.Server{shop()},
		Adjust: func(c *gateway.Config) {
			c.Policy.Dir, c.Policy.Deadline = rules.dir, 10*time.Second
			c.Policy.OPA = map[string]any{
				"services":      map[string]any{"collector": map[string]any{"url": collector.URL}},
				"decision_logs": map[string]any{"service": "collector"}, // after minutes, or at the end
			}
		},
		Record: func(c *gateway.Config) decisionlog.Recorder {
			var err error
			if d, err = gateway.OpenDecisions(c, "v1", &bytes.Buffer{}, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			return d
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := modern(t, w, "/mcp", "developer")
	for range 20 {
		if _, answer := p.do("tools/call", `{"name":"shop__open","arguments":{"a":1}}`); !strings.Contains(answer, "shop ran open") {
			t.Fatalf("a call: %s", answer)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := errors.Join(w.Close(), d.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
	for _, r := range w.Records.All() {
		e, _ := json.Marshal(got[r.ID])
		var input map[string]any
		if in, ok := got[r.ID]["input"].(map[string]any); ok {
			input = in
		}
		if input["method"] == nil || input["claims"] != nil || (input["arguments"] != nil) != (r.Rule == "call") || !strings.Contains(string(e), `"erased":["/input/claims"]`) {
			t.Errorf("of %s: %s", r.Rule, e)
		}
	}
	if len(w.Records.All()) < 40 {
		t.Errorf("%d records", len(w.Records.All()))
	}
}

// TestOpenDecisions is the configuration of the log.
func TestOpenDecisions(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open := func(adjust func(*gateway.Config)) (*gateway.Decisions, *gateway.Config, error) {
		c := &gateway.Config{}
		c.Defaults()
		adjust(c)
		d, err := gateway.OpenDecisions(c, "v1", &bytes.Buffer{}, slog.New(slog.DiscardHandler))
		return d, c, err
	}
	for want, adjust := range map[string]func(*gateway.Config){
		"decision_log.file: open the decision log: open " + dir + ": is a directory: correct the path, or who may write there": func(c *gateway.Config) { c.DecisionLog.File = dir },
		"decision_log.mask: " + dir + "/none.rego cannot be read: no such file or directory: correct the path":                 func(c *gateway.Config) { c.DecisionLog.Mask = dir + "/none.rego" },
		"decision_log.mask: " + dir + "/a.rego:1: package mask cannot mask: rename it to system.log": func(c *gateway.Config) {
			c.DecisionLog.Mask = write("a.rego", "package mask\n")
		},
		"decision_log.mask: " + dir + "/b.rego has neither of the rules mask and drop: add one, or remove the setting": func(c *gateway.Config) {
			c.DecisionLog.Mask = write("b.rego", "package system.log\n\nmasks contains 1\n")
		},
		"decision_log.mask: " + dir + "/c.rego:3: var x is unsafe": func(c *gateway.Config) {
			c.DecisionLog.Mask = write("c.rego", "package system.log\n\nmask contains x\n")
		},
		"policy.opa.decision_logs.mask_decision: must be the path of a rule, such as /system/log/mask": func(c *gateway.Config) {
			c.Policy.OPA = map[string]any{"decision_logs": map[string]any{"mask_decision": 1}}
		},
	} {
		if _, _, err := open(adjust); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	file := filepath.Join(dir, "log")
	given := map[string]any{"decision_logs": map[string]any{"console": true}}
	d, c, err := open(func(c *gateway.Config) {
		c.DecisionLog.File, c.DecisionLog.Mask = file, write("d.rego", "package system.log\n\ndrop if input.path == \"mcp/authz/call\"\n")
		c.Policy.OPA = given
	})
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := policy.NewSubject(jsontext.Value(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"call", "allow"} {
		d.Record(&decisionlog.Record{ID: "of " + rule, Rule: rule, Question: policy.Question{Method: "tools/call", Subject: nobody}})
	}
	if err := d.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), `"version":"v1"`) || !strings.Contains(string(text), "of allow") {
		t.Errorf("%s, %v", text, err)
	}
	masked := c.Policy.OPA["decision_logs"].(map[string]any)
	if masked["console"] != true || masked["mask_decision"] == nil || given["decision_logs"].(map[string]any)["mask_decision"] != nil {
		t.Errorf("OPA gets %v of %v", masked, given)
	}
}
