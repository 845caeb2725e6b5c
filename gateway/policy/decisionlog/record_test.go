package decisionlog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/regogate/regogate/gateway/policy"
)

// whole is a record with everything there.
func whole() *Record {
	return &Record{
		ID: "d1", Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)), RequestID: "r1",
		Labels: map[string]string{"version": "1.0"},
		Rule:   "call", Method: "tools/call", Thing: policy.Name{policy.KindTool, "stripe", "create_refund"},
		Issuer: "https://idp.example.test", Subject: "agent-1", Client: policy.Client{"agent", "2"}, Address: "192.0.2.1:5", Route: "/mcp",
		Code: policy.CodeError, Err: errors.New("authz.rego:3: eval_builtin_error: div"),
		Explanation:    policy.Explanation{Reasons: []string{"too_much"}, Private: []string{`"Too much"`}, Scopes: []string{"pay"}, Err: errors.New("scopes: x")},
		PolicyRevision: "abc", RegistryRevision: "7",
		Stages: []Stage{{"auth", 3}, {"call", 20 * time.Microsecond}, {"auth", 4}},
	}
}

func line(t *testing.T, r *Record) string {
	t.Helper()
	b, err := r.appendLine(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRecordLine(t *testing.T) {
	const want = `{"labels":{"version":"1.0"},"decision_id":"d1","timestamp":"2026-01-02T02:04:05.000000006Z","path":"mcp/authz/call",` +
		`"input":{"method":"tools/call","claims":{"iss":"https://idp.example.test","sub":"agent-1"},"tool":{"server":"stripe","name":"create_refund"},` +
		`"request":{"client":{"name":"agent","version":"2"},"route":"/mcp"}},"result":false,"error":"authz.rego:3: eval_builtin_error: div",` +
		`"requested_by":"192.0.2.1:5","bundles":{"policy":{"revision":"abc"}},"metrics":{"timer_auth_ns":7,"timer_call_ns":20000},` +
		`"request_id":"r1","registry_revision":"7","code":"policy_error","reasons":["too_much"],"private_reasons":["\"Too much\""],"scopes":["pay"],"reasons_error":"scopes: x"}` + "\n"
	if got := line(t, whole()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestListLine(t *testing.T) {
	r := &Record{ID: "d1", Rule: "allow", Method: "tools/list", Allowed: true, List: &ListSeen{Total: 4, Allowed: []policy.Name{{policy.KindTool, "b", "y"}, {policy.KindTool, "a", "x"}, {policy.KindTool, "b", "w"}}}}
	const want = `{"decision_id":"d1","timestamp":"0001-01-01T00:00:00Z","path":"mcp/authz/allow","input":{"method":"tools/list","claims":{}},` +
		`"result":{"total":4,"allowed":3,"tools":{"a":["x"],"b":["w","y"]}}}` + "\n"
	if got := line(t, r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.List.Allowed = nil
	if got := line(t, r); !strings.Contains(got, `"result":{"total":4,"allowed":0}`) {
		t.Errorf("nothing allowed: %s", got)
	}
}

func TestRecordLineOfEachKind(t *testing.T) {
	for want, name := range map[string]policy.Name{
		`"claims":{},"tool":{"server":"a","name":"b"}}`:             {policy.KindTool, "a", "b"},
		`"claims":{},"resource":{"server":"a","uri":"b:c/{d}"}}`:    {policy.KindResource, "a", "b:c/{d}"},
		`"claims":{},"prompt":{"server":"a","name":"b"}}`:           {policy.KindPrompt, "a", "b"},
		`"claims":{},"server":{"name":"a"}}`:                        {policy.KindServer, "a", ""},
		`"claims":{},"tool":{"server":"","name":""}}`:               {Kind: policy.KindTool},
		`"input":{"method":"m","claims":{}},"result":false}` + "\n": {},
	} {
		if got := line(t, &Record{Method: "m", Thing: name}); !strings.Contains(got, want) {
			t.Errorf("%v: got %s, want %s", name, got, want)
		}
	}
}

func TestListLineOfEachKind(t *testing.T) {
	r := &Record{Method: "m", List: &ListSeen{Total: 9, Allowed: []policy.Name{
		{policy.KindResource, "b", "y:{z}"}, {policy.KindServer, "b", ""}, {policy.KindPrompt, "a", "p"}, {policy.KindResource, "b", "w:"}, {policy.KindServer, "a", ""}, {policy.KindTool, "a", "p"},
	}}}
	const want = `"result":{"total":9,"allowed":6,"tools":{"a":["p"]},"resources":{"b":["w:","y:{z}"]},"prompts":{"a":["p"]},"servers":["a","b"]}}` + "\n"
	if got := line(t, r); !strings.HasSuffix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A name that does not read as it is written must not mislead whoever reads the
// log; its value stays the same.
func TestRecordShowsWhatItHolds(t *testing.T) {
	r := &Record{ID: "d1", Rule: "allow", Thing: policy.Name{policy.KindTool, "a", "r\u0435ad\u202e\u200b\x7f\U000e0041é日"}}
	got := line(t, r)
	if !strings.Contains(got, "\"name\":\"r\u0435ad"+`\u202e\u200b\u007f\udb40\udc41`+"é日\"") {
		t.Errorf("got %+q", got)
	}
	var back struct {
		Input struct {
			Tool struct {
				Name string `json:"name"`
			} `json:"tool"`
		} `json:"input"`
	}
	if err := json.Unmarshal([]byte(got), &back); err != nil || back.Input.Tool.Name != r.Thing.Name {
		t.Errorf("read back: %q, %v", back.Input.Tool.Name, err)
	}
}

// Whoever asks chooses names and texts; a record stays small and one line.
func TestRecordIsBounded(t *testing.T) {
	long := strings.Repeat("é\n\xff", 1_000_000)
	r := whole()
	r.RequestID, r.Method, r.Thing = long, long, policy.Name{policy.KindTool, long, long}
	r.Issuer, r.Subject, r.Client, r.Address, r.Route = long, long, policy.Client{long, long}, long, long
	r.Err, r.Explanation.Err = errors.New(long), errors.New(long)
	got := line(t, r)
	if len(got) > 20_000 || strings.Count(got, "\n") != 1 || !strings.Contains(got, "…") {
		t.Errorf("%d bytes, %d lines", len(got), strings.Count(got, "\n"))
	}
	for kind, most := range map[policy.Kind]int{policy.KindTool: 20_000, policy.KindResource: 40_000, policy.KindPrompt: 20_000, policy.KindServer: 20_000} {
		r.Thing.policy.Kind = kind
		if got := line(t, r); len(got) > most || strings.Count(got, "\n") != 1 {
			t.Errorf("on a %s: %d bytes, %d lines", kind, len(got), strings.Count(got, "\n"))
		}
	}
	uri := "file:///" + strings.Repeat("a/", 2_000) + "secret"
	if got := line(t, &Record{Thing: policy.Name{policy.KindResource, "files", uri}}); !strings.Contains(got, `"uri":"`+uri+`"`) {
		t.Errorf("a long URI is cut: %.600s", got)
	}
	list := &Record{List: &ListSeen{Total: 10_000}}
	for range 10_000 {
		list.List.Allowed = append(list.List.Allowed, policy.Name{policy.KindTool, "server", "a_tool_name"})
	}
	if got := line(t, list); !strings.Contains(got, `"result":{"total":10000,"allowed":10000,"truncated":true}`) {
		t.Errorf("a long list: %.300s", got)
	}
}

func TestDecisionID(t *testing.T) {
	if a, b := NewDecisionID(), NewDecisionID(); a == b || len(a) != 36 {
		t.Errorf("%s, %s", a, b)
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{{"éé", 4, "éé"}, {"éé", 3, "é…"}, {"éé", 2, "é…"}, {"éé", 1, "…"}, {"", 0, ""}} {
		if got := shorten(c.in, c.max); got != c.want {
			t.Errorf("shorten(%q, %d) is %q, want %q", c.in, c.max, got, c.want)
		}
	}
}
