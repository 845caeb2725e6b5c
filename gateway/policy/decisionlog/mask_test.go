package decisionlog

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/loader"
	"github.com/open-policy-agent/opa/v1/logging"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	"github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/regogate/regogate/gateway/policy"
)

// collector is a logger plugin that keeps the events that OPA's plugin has masked.
type collector struct{ events []logs.EventV1 }

func (c *collector) Start(context.Context) error      { return nil }
func (c *collector) Stop(context.Context)             {}
func (c *collector) Reconfigure(context.Context, any) {}
func (c *collector) Log(_ context.Context, e logs.EventV1) error {
	c.events = append(c.events, e)
	return nil
}

// opaPlugin is OPA's own plugin with these masks; config is of decision_logs.
func opaPlugin(t testing.TB, masks string, config map[string]any) (*logs.Plugin, *collector) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mask.rego")
	if err := os.WriteFile(file, []byte(masks), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := loader.NewFileLoader().All([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	m, err := plugins.New([]byte(`{"labels":{"app":"x"}}`), "test", inmem.New(), plugins.InitFiles(*files), plugins.Logger(logging.NewNoOpLogger()))
	if err != nil {
		t.Fatal(err)
	}
	kept := &collector{}
	m.Register("kept", kept)
	config["plugin"] = "kept"
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := logs.NewConfigBuilder().WithBytes(text).WithPlugins([]string{"kept"}).Parse()
	if err != nil {
		t.Fatal(err)
	}
	p := logs.New(parsed, m)
	m.Register("decision_logs", p)
	if err := m.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Stop(context.Background()) })
	return p, kept
}

// TestSameAsOPA gives the same events to OPA's plugin and to ours.
func TestSameAsOPA(t *testing.T) {
	const arguments = `{"password":"secret","amount":12.50,"card":{"number":"4111","holder":{"name":"n"}},"list":[{"a":1,"b":2},[10,20,30],"x"],"a b":1,"a/b":2,"ü":3,"":4,"null":null}`
	set := func(elements ...string) string {
		out := "package system.log\n\n"
		for _, e := range elements {
			out += "mask contains " + e + "\n\n"
		}
		return out
	}
	array := func(elements ...string) string {
		return "package system.log\n\nmask := [" + strings.Join(elements, ", ") + "]\n"
	}
	put := func(path, value string) string {
		return fmt.Sprintf(`{"op": "upsert", "path": %q, "value": %s}`, path, value)
	}
	for name, masks := range map[string]string{
		"nothing":                   set(`"/input/none" if false`),
		"a member":                  set(`"/input/arguments/password"`),
		"several":                   set(`"/input/arguments/password"`, `"/input/claims/email"`, `"/input/arguments/card/holder/name"`),
		"an object":                 set(`"/input/arguments"`),
		"below what is gone":        array(`"/input/arguments"`, `"/input/arguments/card"`),
		"twice":                     array(`"/input/arguments/amount"`, `"/input/arguments/amount"`),
		"undefined":                 set(`"/input/arguments/none"`, `"/input/none/none"`, `"/input/arguments/amount/none"`, `"/result/none"`),
		"whole input":               set(`"/input"`),
		"whole input, then more":    array(`"/input"`, `"/input/claims"`, put("/input/x", "1"), put("/input", "2"), `"/input"`),
		"whole result":              set(`"/result"`),
		"result replaced":           set(put("/result", `{"x": [1]}`)),
		"result below":              set(put("/result/x", `1`), `"/result/y"`),
		"result replaced and below": array(put("/result", `{"x": [1, 2]}`), put("/result/x/0", `"a"`), `"/result/x/1"`),
		"object form":               set(`{"op": "remove", "path": "/input/arguments/card/number"}`, `{"op": "remove", "path": "/input/claims", "value": 3}`),
		"upsert":                    set(put("/input/arguments/password", `"***"`), put("/input/arguments/new", `{"deep": [true, null]}`)),
		"upsert without a value":    set(`{"op": "upsert", "path": "/input/arguments/password"}`),
		"upsert makes a way":        set(put("/input/arguments/x/y/z", `1`), put("/input/new/y", `2`)),
		"upsert through a text":     set(put("/input/arguments/password/x", `1`)),
		"upsert of a null":          set(put("/input/arguments/null/x", `1`), put("/input/arguments/null", `5`)),
		"upsert whole":              set(put("/input", `{"only": "this"}`)),
		"upsert whole, then more":   array(put("/input", `{"only": {"this": 1}}`), put("/input/only/that", `2`), `"/input/only/this"`),
		"array element":             set(`"/input/arguments/list/0"`),
		"array elements":            array(`"/input/arguments/list/0"`, `"/input/arguments/list/0"`, `"/input/arguments/list/5"`),
		"nested array":              set(`"/input/arguments/list/1/1"`, `"/input/claims/nested/list/1/b/0"`),
		"member in an array":        set(`"/input/arguments/list/0/a"`),
		"bad indices":               set(`"/input/arguments/list/-1"`, `"/input/arguments/list/x"`, `"/input/arguments/list/99/a"`, `"/input/arguments/list/+0"`),
		"upsert in an array":        set(put("/input/arguments/list/0", `"y"`), put("/input/arguments/list/1/2", `"z"`), put("/input/arguments/list/2", `"last"`)),
		"upsert beyond an array":    set(put("/input/arguments/list/3", `"y"`), put("/input/arguments/list/7/x", `1`), put("/input/arguments/list/-1", `1`)),
		"upsert in arrays' objects": set(put("/input/arguments/list/0/c/d", `1`)),
		"array emptied at the root": array(put("/input", `[1, 2, 3]`), `"/input/1"`, put("/input/0", `"a"`), put("/input/9", `"b"`)),
		"names to escape":           set(`"/input/arguments/a b"`, `"/input/arguments/a%20b"`, `"/input/arguments/ü"`, `"/input/arguments/"`, `"/input/arguments/a~1b"`, put("/input/arguments/c d", "1")),
		"the cache":                 set(`"/nd_builtin_cache"`, `"/nd_builtin_cache/x"`, put("/nd_builtin_cache/x", "1")),
		"shared value":              array(put("/input/arguments/x", `{"a": 1}`), put("/input/arguments/x/a", `2`)),
		"depends on the event":      set(`"/input/claims" if input.input.claims.sub == "agent-1"`, `"/input/request" if input.path == "mcp/authz/call"`, `"/input/tool" if input.path == "x"`, `"/input/method" if input.result == false`, `sprintf("/input/arguments/%s", [k]) if some k, _ in input.input.arguments`),
		"an array":                  array(`"/input/claims/email"`, put("/input/claims/email", `"back"`)),
		"empty array":               array(),
		"numbers":                   set(put("/input/arguments/n", `12345678901234567890`), put("/input/arguments/f", `1.50`)),
	} {
		t.Run(name, func(t *testing.T) {
			plugin, kept := opaPlugin(t, masks, map[string]any{})
			r := call(t, snapshot(t, masks), arguments)
			document, err := r.Document(r.Arguments)
			if err != nil {
				t.Fatal(err)
			}
			before := document.String()
			input, err := ast.JSON(document)
			if err != nil {
				t.Fatal(err)
			}
			var result any = r.Allowed
			if err := plugin.Log(context.Background(), &server.Info{DecisionID: "d1", Path: "mcp/authz/call", Input: &input, Results: &result, Timestamp: r.Time}); err != nil || len(kept.events) != 1 {
				t.Fatalf("OPA has %d events: %v", len(kept.events), err)
			}
			want := kept.events[0]
			wantInput, wantResult := "", ""
			if want.Input != nil {
				b, _ := json.Marshal(*want.Input)
				wantInput = compact(t, b)
			}
			if want.Result != nil {
				b, _ := json.Marshal(*want.Result)
				wantResult = compact(t, b)
			}
			text, failed := line(t, r)
			got := decode(t, text)
			if failed || compact(t, got.Input) != wantInput || compact(t, got.Result) != wantResult {
				t.Errorf("input\n%s\nresult %s, want\n%s\nresult %s", got.Input, got.Result, wantInput, wantResult)
			}
			if fmt.Sprint(got.Erased, got.Masked) != fmt.Sprint(want.Erased, want.Masked) {
				t.Errorf("erased %q, masked %q; want %q, %q", got.Erased, got.Masked, want.Erased, want.Masked)
			}
			if after, _ := r.Document(r.Arguments); after.String() != before {
				t.Errorf("what was judged has changed: %s", after)
			}
		})
	}
}

// Where OPA would lose the event, it stays, without anything that a mask may
// have been for.
func TestFailedMask(t *testing.T) {
	const least = `{"method":"tools/call","tool":{"name":"get","server":"stripe"}}`
	for masks, want := range map[string]string{
		"mask := 1": "mask: the mask must be a set or an array of paths and objects",
		`mask contains "/input/claims"` + "\n\n" + `mask contains 7`:                   "mask: element 0 of the mask: must be a path or an object",
		`mask contains "input/claims"`:                                                 "mask: element 0 of the mask: path must begin with a slash, such as /input/arguments/password",
		`mask contains "/labels"`:                                                      "mask: element 0 of the mask: path must begin with /input or /result",
		`mask contains ""`:                                                             "mask: element 0 of the mask: path must begin with a slash, such as /input/arguments/password",
		`mask contains "/input/%zz"`:                                                   "mask: element 0 of the mask: path holds a % that escapes nothing",
		`mask contains {"op": "replace", "path": "/input"}`:                            `mask: element 0 of the mask: op must be "remove" or "upsert"`,
		`mask contains {"path": "/input"}`:                                             `mask: element 0 of the mask: op must be "remove" or "upsert"`,
		`mask contains {"op": "remove"}`:                                               "mask: element 0 of the mask: path must begin with a slash, such as /input/arguments/password",
		`mask := ["/input/arguments/secret"] if to_number(input.input.claims.sub) > 1`: "mask: system/log/mask.rego:3: eval_builtin_error: to_number",
		"mask := [\"/input/claims\"] if input.path\n\nmask := [\"/input/arguments\"] if input.path != \"nobody\"": "mask: system/log/mask.rego:5: eval_conflict_error",
	} {
		r := call(t, snapshot(t, "package system.log\n\n"+masks+"\n"), `{"secret":"s3cr3t"}`)
		r.Private = []string{`"s3cr3t is too much"`}
		text, failed := line(t, r)
		got := decode(t, text)
		message := fmt.Sprint(got.Custom["mask_error"])
		if !failed || string(got.Input) != least || string(got.Result) != "false" || got.Erased != nil || got.Masked != nil || !strings.HasPrefix(message, want) || strings.Contains(text, "s3cr3t") {
			t.Errorf("%s\ngives %s\nwant %s", masks, text, want)
		}
	}
}

// A mask that takes too long is one that fails.
func TestSlowMask(t *testing.T) {
	masks := "package system.log\n\nmask contains \"/input/claims\" if count([x | some x in numbers.range(1, 3000); some y in numbers.range(1, 3000); x == y + 5000]) == 0\n"
	e, err := policy.New(policy.Config{FS: fstest.MapFS{"a.rego": {Data: []byte(authz)}, "m.rego": {Data: []byte(masks)}}, Deadline: 20 * time.Millisecond}, discard())
	if err != nil {
		t.Fatal(err)
	}
	text, failed := line(t, call(t, e.Current(), `{"a":1}`))
	if got := decode(t, text); !failed || got.Custom["mask_error"] != "mask: the policy did not answer before the deadline" || strings.Contains(text, "agent-1") {
		t.Errorf("%s", text)
	}
}

// A rule that says nothing of an event is as good as none.
func TestUndefinedMask(t *testing.T) {
	for _, masks := range []string{"mask := [] if input.path == \"x\"", "drop if input.path == \"x\""} {
		text, failed := line(t, call(t, snapshot(t, "package system.log\n\n"+masks+"\n"), `{"a":1}`))
		if got := decode(t, text); failed || string(got.Input) != inputOfCall || fmt.Sprint(got.Erased) != "[/input/arguments]" {
			t.Errorf("%s: %s", masks, text)
		}
	}
}

func TestDrop(t *testing.T) {
	for masks, dropped := range map[string]bool{
		`drop if input.path == "mcp/authz/call"`:    true,
		`drop := true`:                              true,
		`drop if input.path == "mcp/authz/allow"`:   false,
		`drop := "true"`:                            false,
		`drop := false`:                             false,
		`drop if to_number(input.input.claims.sub)`: false,
	} {
		text, failed := line(t, call(t, snapshot(t, "package system.log\n\nmask contains \"/input/claims\"\n\n"+masks+"\n"), `{"a":1}`))
		if dropped {
			if text != "" {
				t.Errorf("%s keeps %s", masks, text)
			}
			continue
		}
		got := decode(t, text)
		if fmt.Sprint(got.Erased) != "[/input/claims]" || !strings.Contains(string(got.Input), `"arguments":{"a":1}`) {
			t.Errorf("%s: %s", masks, text)
		}
		if broken := strings.Contains(masks, "to_number"); failed != broken || broken && !strings.HasPrefix(fmt.Sprint(got.Custom["mask_error"]), "drop: ") {
			t.Errorf("%s: %s", masks, text)
		}
	}
}

// The policy's own mask comes first, then the local one, each rule for itself.
func TestLocalMask(t *testing.T) {
	local, err := policy.NewMasker("mask.rego", []byte("package system.log\n\nmask contains \"/input/claims/email\"\n\ndrop if input.input.claims.sub == \"nobody\"\n"), policy.MaskPaths{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for masks, want := range map[string]string{
		"": "[/input/claims/email]",
		"package system.log\n\nmask contains \"/input/arguments/a\"\n":               "[/input/arguments/a]",
		"package system.log\n\ndrop if input.input.claims.sub == \"agent-1\"\n":      "dropped",
		"package system.log\n\nmask contains \"/input/x\" if input.path == \"no\"\n": "[]",
	} {
		text, failed := lineWith(t, call(t, snapshot(t, masks), `{"a":1}`), policy.MaskPaths{}, local)
		if got := "dropped"; failed || text != "" {
			if got = fmt.Sprint(decode(t, text).Erased); got != want {
				t.Errorf("%q: %s, want %s", masks, got, want)
			}
		} else if got != want {
			t.Errorf("%q: dropped", masks)
		}
	}
}

// Where the rules are is configurable, as with OPA.
func TestMaskPaths(t *testing.T) {
	masks := "package system.log.own\n\nhide contains \"/input/claims\"\n\nskip if input.input.claims.sub == \"agent-1\"\n"
	for _, c := range []struct{ mask, drop, want string }{
		{"", "", "[/input/arguments]"},
		{"/system/log/own/hide", "", "[/input/claims]"},
		{"system/log/own/hide", "", "[/input/claims]"},
		{"", "/system/log/own/skip", "dropped"},
	} {
		text, _ := lineWith(t, call(t, snapshot(t, masks), `{"a":1}`), policy.MaskPaths{Mask: c.mask, Drop: c.drop}, nil)
		got := "dropped"
		if text != "" {
			got = fmt.Sprint(decode(t, text).Erased)
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
