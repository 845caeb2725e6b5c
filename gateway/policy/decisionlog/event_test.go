package decisionlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/plugins/logs"

	"github.com/regogate/regogate/gateway/policy"
)

const inputOfCall = `{"claims":{"email":"a@example.test","iss":"https://idp.example.test","limit":12345678901234567890,"nested":{"list":[{"a":1},{"b":[1,2,3]}]},"sub":"agent-1","tools":["get"]},` +
	`"method":"tools/call","request":{"client":{"name":"agent","version":"2"},"id":"r1","remote_addr":"192.0.2.1:5","route":"/mcp"},` +
	`"tool":{"exposed_name":"stripe__get","labels":{"team":"pay"},"name":"get","registered":true,"server":"stripe"}}`

// whole is a record with everything there.
func whole(t testing.TB) *Record {
	r := call(t, snapshot(t, ""), `{"amount":1}`)
	r.Code, r.Err = policy.CodeError, errors.New("authz.rego:3: eval_builtin_error: div")
	r.Explanation = policy.Explanation{Reasons: []string{"too_much"}, Private: []string{`"Too much"`}, Scopes: []string{"pay"}, Err: errors.New("scopes: x")}
	r.TraceID, r.SpanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	r.Stages = []Stage{{"auth", 7}, {"call", 20 * time.Microsecond}}
	return r
}

func TestLine(t *testing.T) {
	r := whole(t)
	want := `{"labels":{"version":"1.0"},"decision_id":"d1","trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331",` +
		`"bundles":{"policy":{"revision":"` + r.PolicyRevision() + `"}},"path":"mcp/authz/call","input":` + inputOfCall + `,"result":false,"erased":["/input/arguments"],` +
		`"error":{"code":"policy_error","message":"authz.rego:3: eval_builtin_error: div"},"requested_by":"192.0.2.1:5","timestamp":"2026-01-02T02:04:05.000000006Z",` +
		`"metrics":{"timer_auth_ns":7,"timer_call_ns":20000},` +
		`"custom":{"request_id":"r1","registry_revision":"7","code":"policy_error","reasons":["too_much"],"private_reasons":["\"Too much\""],"scopes":["pay"],"reasons_error":"scopes: x"}}` + "\n"
	if got, failed := line(t, r); got != want || failed {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// What is judged without arguments has none to erase.
	r.Rule, r.Arguments = "allow", nil
	if got, _ := line(t, r); strings.Contains(got, "erased") || !strings.Contains(got, `"path":"mcp/authz/allow","input":`+inputOfCall) {
		t.Errorf("allow: %s", got)
	}
}

// Whoever reads OPA's events reads these: every member is one of EventV1, and has
// its type.
func TestLineIsAnEventOfOPA(t *testing.T) {
	known := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[logs.EventV1]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = f.Type
	}
	r := whole(t)
	r.Snapshot = snapshot(t, "package system.log\n\nmask contains {\"op\": \"upsert\", \"path\": \"/input/claims/email\", \"value\": \"x\"}\n\nmask contains \"/input/arguments\"\n")
	got, _ := line(t, r)
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(got), &members); err != nil {
		t.Fatal(err)
	}
	for name, value := range members {
		typ, ok := known[name]
		if !ok {
			t.Errorf("%s is no member of OPA's event", name)
			continue
		}
		if typ.Kind() == reflect.Interface { // error
			typ = reflect.TypeFor[map[string]any]()
		}
		if err := json.Unmarshal(value, reflect.New(typ).Interface()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"labels", "decision_id", "trace_id", "span_id", "bundles", "path", "input", "result", "erased", "masked", "error", "requested_by", "timestamp", "metrics", "custom"} {
		if members[name] == nil {
			t.Errorf("%s is missing: %s", name, got)
		}
	}
}

// A mask sees the event that OPA's plugin would show it.
func TestMaskSeesTheEvent(t *testing.T) {
	r := whole(t)
	e := newEncoder(map[string]string{"version": "1.0"}, newMasking(policy.MaskPaths{}, nil))
	document, err := r.Document(r.Arguments)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.seen(&event{Record: r, result: []byte("false")}, document)
	if err != nil {
		t.Fatal(err)
	}
	var input any
	if input, err = ast.JSON(document); err != nil {
		t.Fatal(err)
	}
	var result any = false
	theirs := logs.EventV1{
		Labels: map[string]string{"version": "1.0"}, DecisionID: "d1", TraceID: r.TraceID, SpanID: r.SpanID,
		Bundles: map[string]logs.BundleInfoV1{"policy": {Revision: r.PolicyRevision()}}, Path: "mcp/authz/call", Input: &input, Result: &result,
		Error: &problem{json.RawMessage(`{"code":"policy_error","message":"authz.rego:3: eval_builtin_error: div"}`)}, RequestedBy: "192.0.2.1:5", Timestamp: r.Time.UTC(),
		Metrics: map[string]any{"timer_auth_ns": 7, "timer_call_ns": 20000},
		Custom: map[string]any{"request_id": "r1", "registry_revision": "7", "code": "policy_error", "reasons": []any{"too_much"},
			"private_reasons": []any{`"Too much"`}, "scopes": []any{"pay"}, "reasons_error": "scopes: x"},
	}
	want, err := theirs.AST()
	if err != nil {
		t.Fatal(err)
	}
	if got.Compare(want) != 0 {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestLineOfEachKind(t *testing.T) {
	tool := toolItem(t, "a", "b")
	resource, _ := policy.NewResourceItem(policy.Resource{Server: "a", URI: "b:c"})
	template, _ := policy.NewResourceItem(policy.Resource{Server: "a", URITemplate: "b:{c}"})
	prompt, _ := policy.NewPromptItem(policy.Prompt{Server: "a", Name: "b", ExposedName: "a__b"})
	server, _ := policy.NewServerItem(policy.Server{Name: "a"})
	for _, c := range []struct {
		item *policy.Item
		name policy.Name
		want string // of the event, where nothing can be masked
	}{
		{tool, policy.Name{Kind: policy.KindTool, Server: "a", Name: "b"}, `{"method":"m","tool":{"name":"b","server":"a"}}`},
		{resource, policy.Name{Kind: policy.KindResource, Server: "a", Name: "b:c"}, `{"method":"m","resource":{"server":"a","uri":"b:c"}}`},
		{template, policy.Name{Kind: policy.KindResource, Server: "a", Name: "b:{c}"}, `{"method":"m","resource":{"server":"a","uri":"b:{c}"}}`},
		{prompt, policy.Name{Kind: policy.KindPrompt, Server: "a", Name: "b"}, `{"method":"m","prompt":{"name":"b","server":"a"}}`},
		{server, policy.Name{Kind: policy.KindServer, Server: "a"}, `{"method":"m","server":{"name":"a"}}`},
		{nil, policy.Name{}, `{"method":"m"}`},
	} {
		r := &Record{Question: policy.Question{Method: "m", Item: c.item}}
		if got := r.Thing(); got != c.name {
			t.Errorf("%v, want %v", got, c.name)
		}
		if c.item != nil {
			whole := call(t, snapshot(t, ""), "")
			whole.Item = c.item
			document, err := whole.Document(nil)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := appendValue(nil, document)
			if got, _ := line(t, whole); string(decode(t, got).Input) != string(want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		got, failed := line(t, r) // a question without a subject has no input
		if d := decode(t, got); string(d.Input) != c.want || !failed || d.Custom["mask_error"] != "input: the question lacks its method, its subject or its item" {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// A name that does not read as it is written must not mislead whoever reads the
// log; its value stays the same.
func TestLineShowsWhatItHolds(t *testing.T) {
	name := "r\u0435ad\u202e\u200b\x7f\x1b\t\"\\\U000e0041é日"
	r := call(t, snapshot(t, ""), "")
	r.Item = toolItem(t, "a", name)
	got, _ := line(t, r)
	if !strings.Contains(got, "\"name\":\"r\u0435ad"+`\u202e\u200b\u007f\u001b\u0009\"\\\udb40\udc41`+"é日\"") {
		t.Errorf("got %+q", got)
	}
	var back struct {
		Tool struct{ Name string }
	}
	if err := json.Unmarshal(decode(t, got).Input, &back); err != nil || back.Tool.Name != name {
		t.Errorf("read back: %q, %v", back.Tool.Name, err)
	}
	if got := string(appendText(nil, "a\xffb")); got != "\"a\uFFFDb\"" {
		t.Errorf("no UTF-8: %q", got)
	}
}

// Whoever asks chooses names and texts; a record stays small and one line, and
// says what is missing.
func TestLineIsBounded(t *testing.T) {
	long := strings.Repeat("é\n", 1_000_000)
	r := whole(t)
	r.Item = toolItem(t, "stripe", long)
	r.Request.Client = policy.Client{Name: long, Version: long}
	r.Err, r.Explanation.Err = errors.New(long), errors.New(long)
	got, _ := line(t, r)
	d := decode(t, got)
	if len(got) > 60_000 || !strings.Contains(got, "…") || fmt.Sprint(d.Custom["truncated"]) != "[/input]" {
		t.Errorf("%d bytes: %.500s", len(got), got)
	}
	// Many short texts.
	r = call(t, snapshot(t, ""), "")
	r.Question.Subject = subject(t, `{"sub":"x","groups":["`+strings.Repeat(`group","`, 30_000)+`"]}`)
	got, _ = line(t, r)
	if d := decode(t, got); string(d.Input) != `{"method":"tools/call","tool":{"name":"get","server":"stripe"}}` || fmt.Sprint(d.Custom["truncated"]) != "[/input]" {
		t.Errorf("%.500s", got)
	}
}

// Large arguments are not kept, whatever a mask says of them, and what is kept
// does not hold on to the message that it came in.
func TestLargeArguments(t *testing.T) {
	masks := "package system.log\n\nmask contains \"/input/claims\" if input.custom.truncated == [\"/input/arguments\"]\n"
	r := call(t, snapshot(t, masks), `{"text":"`+strings.Repeat("x", 2<<20)+`"}`)
	got, failed := line(t, r)
	d := decode(t, got)
	if r.Arguments != nil || failed || len(got) > 2000 || fmt.Sprint(d.Custom["truncated"]) != "[/input/arguments]" || fmt.Sprint(d.Erased) != "[/input/claims]" {
		t.Errorf("%d bytes: %.1000s", len(got), got)
	}
	body := jsontext.Value(`{"text":"` + strings.Repeat("x", MaxArguments-11) + `"}`)
	r.Argue(body)
	if len(r.Arguments) != MaxArguments || r.Cut || &r.Arguments[0] == &body[0] {
		t.Errorf("%d bytes are kept, cut %v", len(r.Arguments), r.Cut)
	}
	got, _ = line(t, r)
	if d := decode(t, got); fmt.Sprint(d.Custom["truncated"]) != "[/input]" || !strings.Contains(string(d.Input), `"arguments":{"text":"`+strings.Repeat("x", maxText)+`…"}`) {
		t.Errorf("%d bytes: %.1000s", len(got), got)
	}
}

func items(t *testing.T) *policy.Items {
	var all []*policy.Item
	for _, n := range [][2]string{{"b", "y"}, {"a", "x"}, {"b", "w"}, {"a", "z"}} {
		all = append(all, toolItem(t, n[0], n[1]))
	}
	for _, uri := range []string{"w:", "y:"} {
		i, err := policy.NewResourceItem(policy.Resource{Server: "b", URI: uri})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	i, err := policy.NewServerItem(policy.Server{Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewItems(append(all, i))
}

// list asks about the items and records that.
func list(t *testing.T, s *policy.Snapshot, items *policy.Items, claims string) *Record {
	r := call(t, s, "")
	r.Rule, r.Item, r.Question.Subject = "allow", nil, subject(t, claims)
	answers := s.AllowEach(context.Background(), r.Subject, items, r.Method, r.Request)
	r.List, r.Allowed = &List{items, answers}, answers.Count() > 0
	return r
}

func TestLineOfAList(t *testing.T) {
	all := items(t)
	s := snapshot(t, "")
	for claims, want := range map[string]string{
		`{"tools":["y","w","w:","x"]}`: `{"allowed":4,"denied":3,"sets":{"allowed":{"resource":{"b":["w:"]},"tool":{"a":["x"],"b":["w","y"]}},` +
			`"denied":{"resource":{"b":["y:"]},"server":{"c":[""]},"tool":{"a":["z"]}}},"total":7}`,
		`{}`: `{"allowed":0,"denied":7,"sets":{"denied":{"resource":{"b":["w:","y:"]},"server":{"c":[""]},"tool":{"a":["x","z"],"b":["w","y"]}}},"total":7}`,
		`{"tools":["c","w","w:","x","y","y:","z"]}`: `{"allowed":7,"denied":0,"sets":{"allowed":{"resource":{"b":["w:","y:"]},"server":{"c":[""]},"tool":{"a":["x","z"],"b":["w","y"]}}},"total":7}`,
	} {
		got, failed := line(t, list(t, s, all, claims))
		d := decode(t, got)
		wantInput := `{"claims":` + claims + `,"method":"tools/call","request":{"client":{"name":"agent","version":"2"},"id":"r1","remote_addr":"192.0.2.1:5","route":"/mcp"}}`
		if string(d.Result) != want || failed || string(d.Input) != wantInput {
			t.Errorf("got  %s\nwant %s\n and %s", got, want, wantInput)
		}
	}
	r := list(t, s, all, `{"tools":["y"]}`)
	// Nothing of this is known yet.
	r.List.Answers = snapshot(t, "").AllowEach(canceled(), r.Subject, items(t), r.Method, r.Request)
	if got, _ := line(t, r); string(decode(t, got).Result) != `{"allowed":0,"denied":7,"total":7,"unfinished":"policy_cancelled"}` || len(r.List.Names(true)) != 0 || len(r.List.Names(false)) != 7 {
		t.Errorf("not to its end: %s", got)
	}
	r = list(t, s, all, `{"tools":["y"]}`)
	part := *r.List.Answers // the time was over when some had been judged
	part.Unfinished = policy.CodeTimeout
	if r.List.Answers = &part; len(r.List.Names(true)) != 0 || len(r.List.Names(false)) != 7 {
		t.Errorf("partly judged: %v", r.List.Names(true))
	}
	r = list(t, s, policy.NewItems(nil), `{}`)
	if got, _ := line(t, r); string(decode(t, got).Result) != `{"allowed":0,"denied":0,"total":0}` {
		t.Errorf("empty: %s", got)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Of too many names the set is written that has room, and gives the other.
func TestLongList(t *testing.T) {
	s := snapshot(t, "")
	var many []*policy.Item
	var names []string
	for i := range 2400 {
		names = append(names, fmt.Sprintf("a_rather_long_name_of_a_tool_%d", i))
		many = append(many, toolItem(t, "server", names[i]))
	}
	all := policy.NewItems(many)
	quoted := func(names []string) string { b, _ := json.Marshal(names); return string(b) }
	for _, c := range []struct {
		allowed   int
		has, lack string
	}{{10, `"sets":{"allowed":`, `"denied":{`}, {2390, `"sets":{"denied":`, `"allowed":{`}} {
		got, _ := line(t, list(t, s, all, `{"tools":`+quoted(names[:c.allowed])+`}`))
		result := string(decode(t, got).Result)
		if len(result) > maxNames+1000 || !strings.Contains(result, c.has) || strings.Contains(result, c.lack) || !strings.HasSuffix(result, `"total":2400,"truncated":true}`) {
			t.Errorf("%d allowed: %.300s", c.allowed, result)
		}
	}
}

// TestReplay does what List says: from the event of a list and what the registry
// says of the things it gets the same sets.
func TestReplay(t *testing.T) {
	all := items(t)
	s := snapshot(t, "")
	for _, claims := range []string{`{"tools":["y","w","w:","c"],"n":1.50}`, `{}`} {
		text, _ := line(t, list(t, s, all, claims))
		var e struct {
			Path    string
			Bundles map[string]struct{ Revision string }
			Input   struct {
				Method  string
				Claims  jsontext.Value
				Request struct {
					ID, Route, RemoteAddr string
					Client                struct{ Name, Version string }
				}
			}
			Result struct {
				Total, Allowed, Denied int
				Sets                   map[string]map[policy.Kind]map[string][]string
			}
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if e.Path != "mcp/authz/allow" || e.Bundles["policy"].Revision != s.Revision() {
			t.Fatalf("another policy: %s", text)
		}
		registry := map[policy.Name]*policy.Item{}
		for i := range all.Len() {
			registry[all.At(i).Name()] = all.At(i)
		}
		asked := 0
		for set, kinds := range e.Result.Sets {
			for kind, servers := range kinds {
				for server, names := range servers {
					for _, name := range names {
						asked++
						q := policy.Question{
							Method: e.Input.Method, Subject: subject(t, string(e.Input.Claims)), Item: registry[policy.Name{Kind: kind, Server: server, Name: name}],
							Request: policy.Request{ID: e.Input.Request.ID, Route: e.Input.Request.Route},
						}
						if d := s.Allow(context.Background(), q); d.Allowed != (set == "allowed") || d.Code != "" {
							t.Errorf("%s %s %s: %+v", kind, server, name, d)
						}
					}
				}
			}
		}
		if asked != all.Len() || e.Result.Total != asked || e.Result.Allowed+e.Result.Denied != asked {
			t.Errorf("%d of %d items in %s", asked, all.Len(), text)
		}
	}
}

func TestBundlesAreNamed(t *testing.T) {
	if got, _ := line(t, &Record{ID: "x", Rule: "allow", Question: policy.Question{Method: "m"}}); strings.Contains(got, "bundles") {
		t.Errorf("without a policy: %s", got)
	}
	s := snapshotOf(t, fstest.MapFS{"a.rego": {Data: []byte(authz)}})
	if got, _ := line(t, call(t, s, "")); !strings.Contains(got, `"bundles":{"policy":{"revision":"`+s.Revision()+`"}}`) {
		t.Errorf("%s", got)
	}
}

func TestDecisionID(t *testing.T) {
	if a, b := NewDecisionID(), NewDecisionID(); a == b || len(a) != 36 {
		t.Errorf("%s, %s", a, b)
	}
}

// Where neither set has room the counts stand alone.
func TestLongNames(t *testing.T) {
	var many []*policy.Item
	for i := range 40 {
		many = append(many, toolItem(t, "server", fmt.Sprint(i%2, strings.Repeat("x", 4000), i)))
	}
	s := snapshotOf(t, fstest.MapFS{"a.rego": {Data: []byte("package mcp.authz\n\nallow if startswith(input.tool.name, \"0\")\n")}})
	got, _ := line(t, list(t, s, policy.NewItems(many), `{}`))
	if result := string(decode(t, got).Result); result != `{"allowed":20,"denied":20,"total":40,"truncated":true}` {
		t.Errorf("%.300s", result)
	}
}
