package decisionlog

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/logging"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	"github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/regogate/regogate/gateway/policy"
)

// What OPA's plugin makes of an event is the event, and its own masks, which have
// done their work, do nothing.
func TestService(t *testing.T) {
	masks := "package system.log\n\nmask contains \"/input/claims/email\"\n\nmask contains {\"op\": \"upsert\", \"path\": \"/input/arguments/list\", \"value\": array.concat(input.input.arguments.list, [0])}\n"
	_, config, err := OPAConfig(map[string]any{"mask_decision": "/system/log/mask"})
	if err != nil {
		t.Fatal(err)
	}
	plugin, kept := opaPlugin(t, masks, config)
	l := New(Options{Log: discard()})
	var own writer
	l.Attach("own", &own)
	l.Attach("opa", NewService(plugin))
	r := whole(t)
	r.Snapshot = snapshot(t, masks)
	r.Argue([]byte(`{"list":[1.50,12345678901234567890]}`))
	l.Record(r)
	closeLog(t, l)
	if len(kept.events) != 1 {
		t.Fatalf("%d events", len(kept.events))
	}
	e := kept.events[0]
	text, err := json.Marshal(&e)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := members(t, own.String()), members(t, string(text))
	for _, name := range []string{"decision_id", "trace_id", "span_id", "bundles", "path", "input", "result", "error", "requested_by", "timestamp", "metrics"} {
		if ours[name] == "" || ours[name] != theirs[name] {
			t.Errorf("%s is %s, was %s", name, theirs[name], ours[name])
		}
	}
	if e.Erased != nil || e.Masked != nil || e.Labels["app"] != "x" {
		t.Errorf("OPA's: %s", text)
	}
	if got := e.Custom; fmt.Sprint(got["erased"], got["masked"], got["request_id"], got["reasons"]) != "[/input/claims/email] [/input/arguments/list]r1[too_much]" {
		t.Errorf("custom: %v", got)
	}
	if !strings.Contains(ours["input"], `"list":[1.50,12345678901234567890,0]`) {
		t.Errorf("input: %s", ours["input"])
	}
}

func members(t *testing.T, text string) map[string]string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	out := map[string]string{}
	for name, value := range all {
		out[name] = compact(t, value)
	}
	return out
}

// fickle is a plugin that fails as often as it is told to.
type fickle struct {
	fail int
	got  []string
}

func (f *fickle) Log(_ context.Context, d *server.Info) error {
	if f.fail > 0 {
		f.fail--
		return errors.New("not running")
	}
	f.got = append(f.got, d.DecisionID)
	return nil
}

func TestServiceFails(t *testing.T) {
	lines := func() []byte {
		var b []byte
		for i := range 3 {
			one, _ := line(t, numbered(i))
			b = append(b, one...)
		}
		return b
	}()
	f := &fickle{fail: 2}
	s := NewService(f)
	for range 2 {
		if n, err := s.Write(lines); n != 0 || err == nil || err.Error() != "not running" {
			t.Errorf("%d, %v", n, err)
		}
	}
	if n, err := s.Write(lines); n != len(lines) || err != nil || fmt.Sprint(f.got) != "[0 1 2]" {
		t.Errorf("%d, %v, %v", n, err, f.got)
	}
	// An event that it never takes does not hold up the others.
	logged := make(messages, 100)
	f = &fickle{fail: serviceTries}
	l := New(Options{Log: slog.New(logged)})
	l.Attach("opa", NewService(f))
	for i := range 3 {
		l.Record(numbered(i))
	}
	closeLog(t, l)
	logged.expect(t, "decision records are lost: the sink does not take them", "records=1", "not running")
	if got := l.Stats().Sinks[0]; fmt.Sprint(f.got) != "[1 2]" || got != (SinkStats{Name: "opa", Written: 2, Dropped: 1, Failed: serviceTries - 1}) {
		t.Errorf("%v, %+v", f.got, got)
	}
}

// collecting is a server of decision logs that is down, slow or broken for its
// first requests.
type collecting struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	ids      []string
}

func collect(t *testing.T, broken int, how func(w http.ResponseWriter)) *collecting {
	c := &collecting{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.requests++; c.requests <= broken {
			how(w)
			return
		}
		var events []struct {
			DecisionID string `json:"decision_id"`
		}
		z, err := gzip.NewReader(r.Body)
		if err == nil {
			err = json.NewDecoder(z).Decode(&events)
		}
		if err != nil {
			t.Error(err)
		}
		for _, e := range events {
			c.ids = append(c.ids, e.DecisionID)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// TestUpload is OPA's plugin with a server that answers 500 at first, and one that
// hangs up: it gets every event once and in order.
func TestUpload(t *testing.T) {
	for name, how := range map[string]func(http.ResponseWriter){
		"500":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"hangs up": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := collect(t, 2, how)
			m, err := plugins.New(fmt.Appendf(nil, `{"services":{"c":{"url":%q}}}`, c.URL), "test", inmem.New(), plugins.Logger(logging.NewNoOpLogger()))
			if err != nil {
				t.Fatal(err)
			}
			_, config, err := OPAConfig(map[string]any{"service": "c", "reporting": map[string]any{"min_delay_seconds": 1, "max_delay_seconds": 1}})
			if err != nil {
				t.Fatal(err)
			}
			text, _ := json.Marshal(config)
			parsed, err := logs.NewConfigBuilder().WithBytes(text).WithServices([]string{"c"}).Parse()
			if err != nil {
				t.Fatal(err)
			}
			p := logs.New(parsed, m)
			m.Register("decision_logs", p)
			if err := m.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
			l := New(Options{Log: discard()})
			l.Attach("opa", NewService(p))
			for i := range 300 {
				l.Record(numbered(i))
			}
			closeLog(t, l)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			m.Stop(ctx) // flushes
			c.mu.Lock()
			defer c.mu.Unlock()
			if fmt.Sprint(c.ids) != fmt.Sprint(ids(300)) || c.requests < 3 {
				t.Errorf("%d requests, %d events: %.300s", c.requests, len(c.ids), c.ids)
			}
		})
	}
}

func TestOPAConfig(t *testing.T) {
	given := map[string]any{"service": "c", "mask_decision": "/mcp/log/hide"}
	paths, config, err := OPAConfig(given)
	if err != nil || paths != (policy.MaskPaths{Mask: "/mcp/log/hide"}) || given["mask_decision"] != "/mcp/log/hide" || given["drop_decision"] != nil {
		t.Errorf("%+v, %v, %v", paths, given, err)
	}
	if config["service"] != "c" || config["mask_decision"] != nowhere || config["drop_decision"] != nowhere {
		t.Errorf("%v", config)
	}
	if _, _, err := OPAConfig(map[string]any{"drop_decision": "/"}); err == nil || err.Error() != `decision_logs.drop_decision: "/" is no path of a rule: write it like /system/log/mask` {
		t.Errorf("%v", err)
	}
	if _, _, err := OPAConfig(map[string]any{"drop_decision": 1}); err == nil || err.Error() != "decision_logs.drop_decision: must be the path of a rule, such as /system/log/mask" {
		t.Errorf("%v", err)
	}
}
