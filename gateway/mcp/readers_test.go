package mcp

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// refusals holds a reader against params that it refuses, and their code.
func refusals(t *testing.T, read func(jsontext.Value) *Error, cases map[string]int) {
	t.Helper()
	for params, code := range cases {
		var v jsontext.Value
		if params != "" {
			v = parsed(t, request("any", params)).Params
		}
		if e := read(v); codeOf(e) != code {
			t.Errorf("%s: got %v, want code %d", params, e, code)
		}
	}
}

func wantValue(t *testing.T, what string, got jsontext.Value, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("%s is %s, want %s", what, got, want)
	}
}

func TestReadCallAsTaskAndRetry(t *testing.T) {
	c, e := ReadCall(jsontext.Value(`{"name":"a","task":{"ttl":1e3},"requestState":"\u0041\n","inputResponses":{ "k":{"action":"accept"} }}`))
	if e != nil {
		t.Fatal(e)
	}
	wantValue(t, "task", c.Task, `{"ttl":1e3}`)
	wantValue(t, "inputResponses", c.InputResponses, `{ "k":{"action":"accept"} }`)
	if c.RequestState != "A\n" || !c.HasState {
		t.Errorf("state is %q, %t", c.RequestState, c.HasState)
	}
	wantValue(t, "the other backend's", c.Params("b", SetRequestState("x"), Set{Name: "inputResponses", Value: jsontext.Value(`{}`)}),
		`{"name":"b","task":{"ttl":1e3},"requestState":"x","inputResponses":{}}`)
	wantValue(t, "the legacy backend's", c.Params("b", Set{Name: "requestState"}, Set{Name: "inputResponses"}), `{"name":"b","task":{"ttl":1e3}}`)
	wantValue(t, "without responses", c.Params("b", Set{Name: "inputResponses"}, Set{Name: "task"}), `{"name":"b","requestState":"\u0041\n"}`)
	read := func(v jsontext.Value) *Error { _, e := ReadCall(v); return e }
	refusals(t, read, map[string]int{
		`{"name":"a","task":true}`:                     CodeInvalidParams,
		`{"name":"a","task":null}`:                     CodeInvalidParams,
		`{"name":"a","requestState":null}`:             CodeInvalidParams,
		`{"name":"a","requestState":{}}`:               CodeInvalidParams,
		`{"name":"a","inputResponses":null}`:           CodeInvalidParams,
		`{"name":"a","inputResponses":[]}`:             CodeInvalidParams,
		`{"name":"a","inputResponses":{},"TASK":{}}`:   CodeInvalidRequest,
		`{"name":"a","requestState":"","task":{}}`:     0,
		`{"name":"a","arguments":null}`:                CodeInvalidParams,
		`{"name":"a","inputResponses":{"k":"no one"}}`: 0,
	})
}

func TestReadGet(t *testing.T) {
	params := jsontext.Value(`{ "arguments":{"lang":"go\u00e9" , "":""} , "name":"alpha__review", "requestState":"", "x":1.0}`)
	p, e := ReadGet(params)
	if e != nil {
		t.Fatal(e)
	}
	if p.Name != "alpha__review" || !p.HasState || p.RequestState != "" || p.InputResponses != nil {
		t.Errorf("got %+v", p)
	}
	wantValue(t, "arguments", p.Arguments, `{"lang":"go\u00e9" , "":""}`)
	wantValue(t, "the backend's", p.Params("review", SetRequestState("s")),
		`{ "arguments":{"lang":"go\u00e9" , "":""} , "name":"review", "requestState":"s", "x":1.0}`)
	read := func(v jsontext.Value) *Error { _, e := ReadGet(v); return e }
	refusals(t, read, map[string]int{
		`{"name":"a"}`:                                   0,
		`{"name":"a","arguments":{}}`:                    0,
		``:                                               CodeInvalidParams,
		`{"arguments":{}}`:                               CodeInvalidParams,
		`{"name":1}`:                                     CodeInvalidParams,
		`{"name":"a","arguments":null}`:                  CodeInvalidParams,
		`{"name":"a","arguments":["b"]}`:                 CodeInvalidParams,
		`{"name":"a","arguments":{"n":1}}`:               CodeInvalidParams,
		`{"name":"a","arguments":{"n":null}}`:            CodeInvalidParams,
		`{"name":"a","arguments":{"s":"","o":{}}}`:       CodeInvalidParams,
		`{"name":"a","requestState":1}`:                  CodeInvalidParams,
		`{"name":"a","inputResponses":""}`:               CodeInvalidParams,
		`{"name":"a","Name":"b"}`:                        CodeInvalidRequest,
		`{"name":"a","arguments":{},"ARGUMENTS":{}}`:     CodeInvalidRequest,
		`{"name":"a","REQUESTSTATE":""}`:                 CodeInvalidRequest,
		`{"name":"a","inputresponses":{}}`:               CodeInvalidRequest,
		`{"name":"a","_META":{}}`:                        CodeInvalidRequest,
		`{"name":"a","arguments":{"Lang":"","lang":""}}`: 0,
	})
}

func TestReadURI(t *testing.T) {
	r, e := ReadURI(jsontext.Value(`{"uri" : "file:\/\/\/a b", "_meta":{"progressToken":9007199254740993}}`))
	if e != nil {
		t.Fatal(e)
	}
	if r.URI != "file:///a b" || r.HasState || r.InputResponses != nil {
		t.Errorf("got %+v", r)
	}
	wantValue(t, "as it was", r.Params(r.URI), `{"uri" : "file:///a b", "_meta":{"progressToken":9007199254740993}}`)
	wantValue(t, "the backend's", r.Params("x:y", Set{Name: "_meta"}, SetRequestState("s")), `{"uri" : "x:y","requestState":"s"}`)
	read := func(v jsontext.Value) *Error { _, e := ReadURI(v); return e }
	refusals(t, read, map[string]int{
		`{"uri":""}`:                          0,
		`{"uri":"a","inputResponses":{}}`:     0,
		``:                                    CodeInvalidParams,
		`{}`:                                  CodeInvalidParams,
		`{"uri":null}`:                        CodeInvalidParams,
		`{"uri":["a"]}`:                       CodeInvalidParams,
		`{"uri":"a","inputResponses":[]}`:     CodeInvalidParams,
		`{"uri":"a","requestState":false}`:    CodeInvalidParams,
		`{"URI":"a"}`:                         CodeInvalidRequest,
		`{"uri":"a","Uri":"b"}`:               CodeInvalidRequest,
		`{"uri":"a","reque\u017ftState":"b"}`: CodeInvalidRequest,
	})
}

func TestReadComplete(t *testing.T) {
	params := jsontext.Value(`{"ref":{ "type":"ref/prompt", "title":"t", "name" : "alpha__p"}, "argument":{"name":"n","value":"v"}, "context":{"arguments":{"a":"b"}},"x":1}`)
	c, e := ReadComplete(params)
	if e != nil {
		t.Fatal(e)
	}
	if !c.IsPrompt || c.Prompt != "alpha__p" || c.URI != "" {
		t.Errorf("got %+v", c)
	}
	wantValue(t, "arguments", c.Arguments(), `{"argument":{"name":"n","value":"v"},"context":{"arguments":{"a":"b"}}}`)
	wantValue(t, "the backend's", c.Params("p", Set{Name: "context"}),
		`{"ref":{ "type":"ref/prompt", "title":"t", "name" : "p"}, "argument":{"name":"n","value":"v"},"x":1}`)

	c, e = ReadComplete(jsontext.Value(`{"argument":{"value":"","name":""},"ref":{"uri":"x:{y}","type":"ref/resource"}}`))
	if e != nil {
		t.Fatal(e)
	}
	if c.IsPrompt || c.Prompt != "" || c.URI != "x:{y}" {
		t.Errorf("got %+v", c)
	}
	wantValue(t, "arguments", c.Arguments(), `{"argument":{"value":"","name":""}}`)
	wantValue(t, "the backend's", c.Params("z:{y}"), `{"argument":{"value":"","name":""},"ref":{"uri":"z:{y}","type":"ref/resource"}}`)

	const argument = `,"argument":{"name":"n","value":"v"}`
	const prompt = `{"ref":{"type":"ref/prompt","name":"p"}`
	read := func(v jsontext.Value) *Error { _, e := ReadComplete(v); return e }
	refusals(t, read, map[string]int{
		prompt + argument + `}`:                            0,
		prompt + argument + `,"context":{}}`:               0,
		prompt + argument + `,"context":{"arguments":{}}}`: 0,
		``:                                      CodeInvalidParams,
		`{"argument":{"name":"n","value":"v"}}`: CodeInvalidParams,
		`{"ref":"ref/prompt"` + argument + `}`:  CodeInvalidParams,
		`{"ref":null` + argument + `}`:          CodeInvalidParams,
		`{"ref":{"name":"p"}` + argument + `}`:  CodeInvalidParams,
		`{"ref":{"type":"ref/tool","name":"p"}` + argument + `}`:               CodeInvalidParams,
		`{"ref":{"type":"REF/PROMPT","name":"p"}` + argument + `}`:             CodeInvalidParams,
		`{"ref":{"type":"ref/prompt"}` + argument + `}`:                        CodeInvalidParams,
		`{"ref":{"type":"ref/prompt","name":1}` + argument + `}`:               CodeInvalidParams,
		`{"ref":{"type":"ref/prompt","uri":"p"}` + argument + `}`:              CodeInvalidParams,
		`{"ref":{"type":"ref/prompt","name":"p","uri":"u"}` + argument + `}`:   CodeInvalidParams,
		`{"ref":{"type":"ref/resource","name":"p"}` + argument + `}`:           CodeInvalidParams,
		`{"ref":{"type":"ref/resource","uri":"u","name":"p"}` + argument + `}`: CodeInvalidParams,
		prompt + `}`:                                                          CodeInvalidParams,
		prompt + `,"argument":null}`:                                          CodeInvalidParams,
		prompt + `,"argument":{"name":"n"}}`:                                  CodeInvalidParams,
		prompt + `,"argument":{"value":"n"}}`:                                 CodeInvalidParams,
		prompt + `,"argument":{"name":"n","value":1}}`:                        CodeInvalidParams,
		prompt + argument + `,"context":null}`:                                CodeInvalidParams,
		prompt + argument + `,"context":[]}`:                                  CodeInvalidParams,
		prompt + argument + `,"context":{"arguments":{"a":1}}}`:               CodeInvalidParams,
		prompt + argument + `,"context":{"arguments":[]}}`:                    CodeInvalidParams,
		prompt + argument + `,"Ref":{}}`:                                      CodeInvalidRequest,
		`{"ref":{"type":"ref/prompt","name":"p","Name":"q"}` + argument + `}`: CodeInvalidRequest,
		`{"ref":{"type":"ref/prompt","name":"p","Type":"q"}` + argument + `}`: CodeInvalidRequest,
		prompt + `,"argument":{"name":"n","value":"v","VALUE":"w"}}`:          CodeInvalidRequest,
		prompt + argument + `,"context":{"Arguments":{}}}`:                    CodeInvalidRequest,
	})
}

func TestReadSetLevel(t *testing.T) {
	if level, e := ReadSetLevel(jsontext.Value(`{"level":"notice"}`)); level != "notice" || e != nil {
		t.Errorf("got %q, %v", level, e)
	}
	read := func(v jsontext.Value) *Error { _, e := ReadSetLevel(v); return e }
	refusals(t, read, map[string]int{
		``:                                CodeInvalidParams,
		`{"level":null}`:                  CodeInvalidParams,
		`{"level":"INFO"}`:                CodeInvalidParams,
		`{"level":"warn"}`:                CodeInvalidParams,
		`{"level":""}`:                    CodeInvalidParams,
		`{"level":3}`:                     CodeInvalidParams,
		`{"level":"info","LEVEL":"info"}`: CodeInvalidRequest,
	})
}

func TestReadListen(t *testing.T) {
	f, e := ReadListen(jsontext.Value(`{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["b:","a:","b:"],"taskIds":["t"],"future":true}}`))
	if e != nil {
		t.Fatal(e)
	}
	want := Filter{ToolsListChanged: true, Resources: []string{"b:", "a:"}, Tasks: []string{"t"}}
	if f.ToolsListChanged != want.ToolsListChanged || f.PromptsListChanged || f.ResourcesListChanged || !slices.Equal(f.Resources, want.Resources) || !slices.Equal(f.Tasks, want.Tasks) {
		t.Errorf("got %+v, want %+v", f, want)
	}
	wantValue(t, "the filter", f.Value(), `{"toolsListChanged":true,"resourceSubscriptions":["b:","a:"],"taskIds":["t"]}`)
	wantValue(t, "the empty filter", Filter{}.Value(), `{}`)
	wantValue(t, "the other filter", Filter{PromptsListChanged: true, ResourcesListChanged: true, Tasks: []string{`"`}}.Value(),
		`{"promptsListChanged":true,"resourcesListChanged":true,"taskIds":["\""]}`)

	many := func(n int) string { return `["` + strings.Repeat(`a","`, n-1) + `a"]` }
	list := func(name, v string) string { return fmt.Sprintf(`{"notifications":{%q:%s}}`, name, v) }
	read := func(v jsontext.Value) *Error { _, e := ReadListen(v); return e }
	refusals(t, read, map[string]int{
		`{"notifications":{}}`:                         0,
		list("resourceSubscriptions", `[]`):            0,
		list("resourceSubscriptions", many(256)):       0,
		list("resourceSubscriptions", many(257)):       CodeInvalidParams,
		list("taskIds", many(257)):                     CodeInvalidParams,
		``:                                             CodeInvalidParams,
		`{}`:                                           CodeInvalidParams,
		`{"notifications":null}`:                       CodeInvalidParams,
		`{"notifications":["toolsListChanged"]}`:       CodeInvalidParams,
		list("toolsListChanged", `"true"`):             CodeInvalidParams,
		list("promptsListChanged", `1`):                CodeInvalidParams,
		list("resourcesListChanged", `null`):           CodeInvalidParams,
		list("resourceSubscriptions", `null`):          CodeInvalidParams,
		list("resourceSubscriptions", `"a:"`):          CodeInvalidParams,
		list("resourceSubscriptions", `{"a:":true}`):   CodeInvalidParams,
		list("resourceSubscriptions", `["a:",1]`):      CodeInvalidParams,
		list("taskIds", `[null]`):                      CodeInvalidParams,
		list("ToolsListChanged", `true`):               CodeInvalidRequest,
		list("resourcesubscriptions", `[]`):            CodeInvalidRequest,
		list("taskIDs", `[]`):                          CodeInvalidRequest,
		`{"notifications":{},"Notifications":{"a":1}}`: CodeInvalidRequest,
	})
}

func TestReadTask(t *testing.T) {
	task, e := ReadTask(jsontext.Value(`{"taskId":"t\u002d1","inputResponses":{"k":{}},"status":"working"}`))
	if e != nil {
		t.Fatal(e)
	}
	if task.ID != "t-1" {
		t.Errorf("got %+v", task)
	}
	wantValue(t, "responses", task.InputResponses, `{"k":{}}`)
	wantValue(t, "the backend's", task.Params("u", Set{Name: "inputResponses", Value: jsontext.Value(`{"l":{}}`)}), `{"taskId":"u","inputResponses":{"l":{}},"status":"working"}`)
	read := func(v jsontext.Value) *Error { _, e := ReadTask(v); return e }
	refusals(t, read, map[string]int{
		``:                                  CodeInvalidParams,
		`{"taskId":1}`:                      CodeInvalidParams,
		`{"taskId":"a","inputResponses":1}`: CodeInvalidParams,
		`{"taskId":"a","taskID":"b"}`:       CodeInvalidRequest,
	})
}

func TestReadProgress(t *testing.T) {
	p, e := ReadProgress(jsontext.Value(`{"progress":0.50,"progressToken":9007199254740993,"message":"m"}`))
	if e != nil {
		t.Fatal(e)
	}
	wantValue(t, "the token", p.Token, `9007199254740993`)
	wantValue(t, "the other side's", p.Params(String("x")), `{"progress":0.50,"progressToken":"x","message":"m"}`)
	read := func(v jsontext.Value) *Error { _, e := ReadProgress(v); return e }
	refusals(t, read, map[string]int{
		`{"progressToken":""}`:   0,
		``:                       CodeInvalidParams,
		`{"progressToken":1.5}`:  CodeInvalidParams,
		`{"progressToken":null}`: CodeInvalidParams,
		`{"progressToken":{}}`:   CodeInvalidParams,
		`{"progressToken":"a","ProgressToken":"b"}`: CodeInvalidRequest,
	})
}

func TestReadStartedTask(t *testing.T) {
	cases := []struct {
		era          Era
		result       string
		id, renamed  string
		none, broken bool
	}{
		{era: Legacy, result: `{ "task":{"ttl":null, "taskId":"t"} ,"_meta":{}}`, id: "t", renamed: `{ "task":{"ttl":null, "taskId":"u"} ,"_meta":{}}`},
		{era: Modern, result: `{"resultType":"task","taskId":"t","ttlMs":1.0}`, id: "t", renamed: `{"resultType":"task","taskId":"u","ttlMs":1.0}`},
		{era: Legacy, result: `{"content":[]}`, none: true},
		{era: Legacy, result: `{"task":"t"}`, none: true},
		{era: Legacy, result: `{"resultType":"task","taskId":"t"}`, none: true},
		{era: Modern, result: `{"task":{"taskId":"t"}}`, none: true},
		{era: Modern, result: `{"resultType":"complete","taskId":"t"}`, none: true},
		{era: Legacy, result: `{"task":{"taskId":1}}`, broken: true},
		{era: Legacy, result: `{"task":{"taskId":"t","TaskID":"u"}}`, broken: true},
		{era: Modern, result: `{"resultType":"task"}`, broken: true},
		{era: Modern, result: `{"resultType":"task","taskId":"t","taskID":"u"}`, broken: true},
		{era: Modern, result: `{"resultType":1}`, broken: true},
		{era: Modern, result: `[]`, broken: true},
	}
	for _, c := range cases {
		task, err := ReadStartedTask(c.era, jsontext.Value(c.result))
		if (err != nil) != c.broken || (task == nil) != (c.none || c.broken) {
			t.Errorf("%s: got %+v, %v", c.result, task, err)
			continue
		}
		if task != nil {
			wantValue(t, "the client's", task.Result("u"), c.renamed)
			if task.ID != c.id {
				t.Errorf("%s: task %q", c.result, task.ID)
			}
		}
	}
}

func TestCapabilities(t *testing.T) {
	caps := jsontext.Value(`{ "elicitation":{"form":{},"url":true} , "sampling":{"tools":false,"context":null},"roots":{"listChanged":true}, "x":[], "y":1 }`)
	for path, want := range map[string]bool{
		"elicitation": true, "elicitation/form": true, "elicitation/url": true, "elicitation/x": false, "": true,
		"sampling": true, "sampling/tools": false, "sampling/context": false, "roots/listChanged": true,
		"roots/listChanged/x": false, "x": false, "y": false, "tasks": false, "Elicitation": false,
	} {
		names := strings.Split(path, "/")
		if path == "" {
			names = nil
		}
		if got := Declares(caps, names...); got != want {
			t.Errorf("%q is declared: %t, want %t", path, got, want)
		}
	}
	if Declares(nil) || Declares(nil, "x") || Declares(jsontext.Value("true")) {
		t.Error("no capabilities declare something")
	}
	got, err := Strip(caps, "sampling", "nothing", "elicitation")
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, "stripped", got, `{"roots":{"listChanged":true}, "x":[], "y":1 }`)
	if got, err = Strip(nil, "a"); string(got) != "{}" || err != nil {
		t.Errorf("nothing stripped is %s, %v", got, err)
	}
	if _, err = Strip(jsontext.Value("[]"), "a"); err == nil {
		t.Error("an array is stripped")
	}
}

func TestSupports(t *testing.T) {
	for _, c := range []struct {
		capabilities, method, params string
		want                         bool
	}{
		{`{"roots":{}}`, MethodRootsList, ``, true},
		{`{"sampling":{},"elicitation":{}}`, MethodRootsList, ``, false},
		{`{"sampling":{}}`, MethodCreateMessage, `{"messages":[]}`, true},
		{`{"roots":{},"elicitation":{}}`, MethodCreateMessage, `{"messages":[]}`, false},
		{`{"sampling":{}}`, MethodCreateMessage, `{"tools":[]}`, false},
		{`{"sampling":{}}`, MethodCreateMessage, `{"toolChoice":{}}`, false},
		{`{"sampling":{}}`, MethodCreateMessage, `{"Tools":[]}`, false},
		{`{"sampling":{"tools":{}}}`, MethodCreateMessage, `{"tools":[]}`, true},
		{`{"elicitation":{}}`, MethodElicit, `{}`, true},
		{`{"elicitation":{}}`, MethodElicit, `{"mode":"form"}`, true},
		{`{"elicitation":{}}`, MethodElicit, `{"mode":"url"}`, false},
		{`{"elicitation":{"form":{}}}`, MethodElicit, `{}`, true},
		{`{"elicitation":{"url":{}}}`, MethodElicit, `{}`, false},
		{`{"elicitation":{"url":{}}}`, MethodElicit, `{"mode":"url"}`, true},
		{`{"elicitation":{"form":{},"url":{}}}`, MethodElicit, `{}`, true},
		{`{"elicitation":{"form":{},"url":{}}}`, MethodElicit, `{"mode":"voice"}`, false},
		{`{"elicitation":{"form":{},"url":{}}}`, MethodElicit, `{"mode":null}`, false},
		{`{"elicitation":{"form":{},"url":{}}}`, MethodElicit, `{"Mode":"url"}`, false},
		{`{"roots":{}}`, MethodElicit, `{}`, false},
		{`{"roots":{},"sampling":{},"elicitation":{}}`, MethodToolsCall, `{}`, false},
	} {
		var params jsontext.Value
		if c.params != "" {
			params = jsontext.Value(c.params)
		}
		if got := Supports(jsontext.Value(c.capabilities), c.method, params); got != c.want {
			t.Errorf("%s: %s %s is supported: %t, want %t", c.capabilities, c.method, c.params, got, c.want)
		}
	}
	if Supports(nil, MethodRootsList, nil) {
		t.Error("who declares nothing supports roots/list")
	}
}

func TestReadElicitation(t *testing.T) {
	l, e := ReadElicitation(jsontext.Value(`{"mode":"url", "elicitationId":"a" }`))
	if e != nil || l.ID != "a" || !l.HasID {
		t.Fatalf("got %+v, %v", l, e)
	}
	wantValue(t, "the client's", l.Params("b"), `{"mode":"url", "elicitationId":"b" }`)
	if l, e = ReadElicitation(jsontext.Value(`{"mode":"form"}`)); e != nil || l.HasID {
		t.Errorf("got %+v, %v", l, e)
	}
	read := func(v jsontext.Value) *Error { _, e := ReadElicitation(v); return e }
	refusals(t, read, map[string]int{
		`{"elicitationId":1}`:                      CodeInvalidParams,
		`{"elicitationId":null}`:                   CodeInvalidParams,
		`{"elicitationId":"a","elicitationID":""}`: CodeInvalidRequest,
	})
}

// FuzzReaders holds that what a reader accepts means the same to another
// parser, and that the params for a backend differ from the client's in the
// one member.
func FuzzReaders(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","arguments":{"b":"c"},"requestState":"s","inputResponses":{"k":{}}}`,
		`{"uri":"file:\/\/\/a","taskId":"\u0074","progressToken":-0,"level":"info"}`,
		`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"n","value":"v"},"context":{"arguments":{"a":"b"}}}`,
		`{"ref":{"type":"ref/resource","uri":"u"},"argument":{"name":"n","value":"v"}}`,
		`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a","a"],"taskIds":[]}}`,
		`{"inputRequests":{"k":` + elicit + `,"":` + roots + `},"requestState":"s","Uri":"x"}`,
	} {
		f.Add([]byte(seed), "other")
	}
	f.Fuzz(func(t *testing.T, in []byte, name string) {
		m, _ := Parse([]byte(request("any", string(in))))
		if m == nil || m.Params == nil || !utf8.ValidString(name) {
			return
		}
		before := string(m.Params)
		renamed := func(member string, v any, got jsontext.Value) {
			t.Helper()
			want := object(t, m.Params)
			want[member] = v
			same(t, "the backend's params", meaning(t, got), any(want))
		}
		whole := object(t, m.Params)
		if p, e := ReadGet(m.Params); e == nil {
			same(t, "name", p.Name, whole["name"])
			sameField(t, "arguments", p.Arguments, whole)
			sameRetry(t, p.Retry, whole)
			renamed("name", name, p.Params(name))
		}
		if r, e := ReadURI(m.Params); e == nil {
			same(t, "uri", r.URI, whole["uri"])
			sameRetry(t, r.Retry, whole)
			renamed("uri", name, r.Params(name))
		}
		if task, e := ReadTask(m.Params); e == nil {
			same(t, "taskId", task.ID, whole["taskId"])
			sameRetry(t, task.Retry, whole)
			renamed("taskId", name, task.Params(name))
		}
		if p, e := ReadProgress(m.Params); e == nil {
			sameField(t, "progressToken", p.Token, whole)
			renamed("progressToken", name, p.Params(String(name)))
		}
		if level, e := ReadSetLevel(m.Params); e == nil {
			same(t, "level", level, whole["level"])
		}
		if c, e := ReadComplete(m.Params); e == nil {
			checkCompletion(t, c, name, whole)
		}
		if filter, e := ReadListen(m.Params); e == nil {
			again, e := ReadListen(jsontext.Value(`{"notifications":` + string(filter.Value()) + `}`))
			if e != nil || !reflect.DeepEqual(again, filter) {
				t.Fatalf("%+v came back as %+v, %v", filter, again, e)
			}
		}
		if r, err := ReadInputRequired(m.Params); err == nil {
			again, err := ReadInputRequired(r.Result())
			if err != nil || !reflect.DeepEqual(again, r) {
				t.Fatalf("%+v came back as %+v, %v", r, again, err)
			}
		}
		if string(m.Params) != before {
			t.Fatalf("the params became %s", m.Params)
		}
	})
}

func sameRetry(t *testing.T, r Retry, whole map[string]any) {
	t.Helper()
	sameField(t, "inputResponses", r.InputResponses, whole)
	state, has := whole["requestState"]
	if has != r.HasState {
		t.Fatalf("there is a state: %t, but the params have one: %t", r.HasState, has)
	}
	if has {
		same(t, "requestState", r.RequestState, state)
	}
}

func checkCompletion(t *testing.T, c *Completion, name string, whole map[string]any) {
	t.Helper()
	ref := whole["ref"].(map[string]any)
	member, known := "uri", c.URI
	if c.IsPrompt {
		member, known = "name", c.Prompt
	}
	same(t, member, known, ref[member])
	sameField(t, "argument", c.Argument, whole)
	sameField(t, "context", c.Context, whole)
	ref[member] = name
	same(t, "the backend's params", meaning(t, c.Params(name)), any(whole))
}
