package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/loader"
	"github.com/open-policy-agent/opa/v1/rego"
)

// opaCheck does what `opa check --strict --schema schema/input.json` does with a
// file of the module, and returns the first complaint, "" where there is none.
func opaCheck(t *testing.T, module string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authz.rego")
	if err := os.WriteFile(path, []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	schemas, err := loader.Schemas(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.NewFileLoader().WithProcessAnnotation(true).Filtered([]string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := ast.NewCompiler().WithSchemas(schemas).WithEnablePrintStatements(true).WithStrict(true).WithUseTypeCheckAnnotations(true)
	if c.Compile(loaded.ParsedModules()); !c.Failed() {
		return ""
	}
	return c.Errors[0].Message
}

// A policy on any kind of thing passes OPA's own check, and a typo in it does not.
func TestOPACheck(t *testing.T) {
	for ref, typo := range map[string]string{
		"input.tool.exposed_name":                   "input.tool.exposedname",
		"input.resource.uri":                        "input.resource.url",
		"input.resource.uri_template":               "input.resource.template",
		"input.resource.mime_type":                  "input.resource.mimeType",
		"input.resource.definition.pinned":          "input.resource.definition.pined",
		"input.resource.attributes[_]":              "input.resource.attribute[_]",
		"input.prompt.exposed_name":                 "input.prompt.effect",
		"input.prompt.definition.annotations.title": "input.prompt.definitions.annotations.title",
		"input.server.name":                         "input.server.server",
		"input.server.labels.tier":                  "input.server.label.tier",
	} {
		const module = "package mcp.authz\n\nallow if %s == \"x\"\n"
		if got := opaCheck(t, strings.Replace(fmt.Sprintf(module, ref), `pinned == "x"`, `pinned == true`, 1)); got != "" {
			t.Errorf("%s: %s", ref, got)
		}
		if got, want := opaCheck(t, fmt.Sprintf(module, typo)), "undefined ref: "; !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", typo, got, want)
		}
	}
}

// The schema takes a document of each kind, and neither one about nothing nor
// one about two things.
func TestSchemaTakesOneThing(t *testing.T) {
	var shape any
	if err := json.Unmarshal([]byte(Schema()), &shape); err != nil {
		t.Fatal(err)
	}
	query, err := rego.New(rego.Query("[matches, _] = json.match_schema(input.document, input.schema)")).PrepareForEval(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	matches := func(things ...Kind) bool {
		in, all := full(t), fullItems(t)
		var whole map[string]any
		for _, in.Item = range all {
			var one map[string]any
			if err := json.Unmarshal([]byte(document(t, in).String()), &one); err != nil {
				t.Fatal(err)
			}
			if whole == nil {
				whole = one
			}
			maps.Copy(whole, one)
		}
		for kind := range all {
			if !slices.Contains(things, kind) {
				delete(whole, string(kind))
			}
		}
		results, err := query.Eval(context.Background(), rego.EvalInput(map[string]any{"document": whole, "schema": shape}))
		if err != nil || len(results) != 1 {
			t.Fatal(results, err)
		}
		return results[0].Bindings["matches"].(bool)
	}
	for kind := range everyKind() {
		if !matches(kind) {
			t.Errorf("a document about a %s does not match", kind)
		}
		if other := KindTool; kind != other && matches(kind, other) {
			t.Errorf("a document about a %s and a %s matches", kind, other)
		}
	}
	if matches() {
		t.Error("a document about nothing matches")
	}
}

// usage is a policy with rules on every kind of thing.
const usage = `default allow := false
allow if { input.method == "tools/call"; input.tool.effect == "read" }
allow if { input.method == "tasks/get"; input.tool.effect == "read" }
allow if { input.method in {"resources/read", "resources/subscribe"}; input.resource.uri == "file:///a"; input.resource.data == "internal" }
allow if { input.method == "resources/read"; input.resource.uri_template == "file:///{path}"; not input.resource.uri }
allow if { input.method == "prompts/get"; input.prompt.exposed_name == "files__review" }
allow if { input.method == "server/discover"; "storage" in input.server.attributes }
allow if { input.method == "sampling/createMessage"; input.prompt.server == "files" }
call if input.arguments.argument.value == "x"
reasons contains "not_this_uri" if input.resource.uri != "file:///a"
reasons contains "not_that_prompt" if input.prompt.name != "review"
reasons contains "not_that_server" if input.server.name != "files"
scopes contains "files" if { some kind in ["resource", "prompt"]; input[kind].server == "files" }`

func TestKinds(t *testing.T) {
	s := load(t, usage, "")
	facts := Facts{Attributes: []string{"storage"}, Data: "internal", Registered: true}
	uri := func(uri, template string) *Item {
		return resourceItem(t, Resource{Server: "files", URI: uri, URITemplate: template, Facts: facts})
	}
	prompt := promptItem(t, Prompt{Server: "files", Name: "review", ExposedName: "files__review", Facts: facts})
	other := promptItem(t, Prompt{Server: "files", Name: "plan", ExposedName: "files__plan", Facts: facts})
	server := serverItem(t, Server{Name: "files", Facts: facts})
	for _, c := range []struct {
		method     string
		item       *Item
		allow, why string
	}{
		{"tools/call", item(t, alpha()), "true", "[] []"},
		{"tasks/get", item(t, alpha()), "true", "[] []"},
		{"tasks/cancel", item(t, alpha()), "false", "[] []"},
		{"resources/read", uri("file:///a", ""), "true", "[] [files]"},
		{"resources/subscribe", uri("file:///a", ""), "true", "[] [files]"},
		{"notifications/resources/updated", uri("file:///a", ""), "false", "[] [files]"},
		{"resources/read", uri("file:///b", ""), "false", "[not_this_uri] [files]"},
		{"resources/read", uri("", "file:///{path}"), "true", "[] [files]"},
		{"resources/read", uri("file:///b", "file:///{path}"), "false", "[not_this_uri] [files]"},
		{"prompts/get", prompt, "true", "[] [files]"},
		{"prompts/get", other, "false", "[not_that_prompt] [files]"},
		{"sampling/createMessage", other, "true", "[not_that_prompt] [files]"},
		{"sampling/createMessage", server, "false", "[] []"},
		{"server/discover", server, "true", "[] []"},
		{"server/discover", serverItem(t, Server{Name: "x"}), "false", "[not_that_server] []"},
		// A method that goes with another kind of thing finds nothing there.
		{"tools/call", prompt, "false", "[] [files]"},
		{"resources/read", server, "false", "[] []"},
	} {
		q := Question{Method: c.method, Subject: subject(t, `{}`), Item: c.item}
		if got := show(both(t, s, q)); got != c.allow {
			t.Errorf("%s of %v: got %s, want %s", c.method, c.item.entry[1], got, c.allow)
		}
		for arguments, want := range map[string]string{`{"argument": {"value": "x"}}`: "true", `{"argument": {}}`: "false policy_undefined"} {
			if got := show(s.Call(context.Background(), q, jsontext.Value(arguments))); got != want {
				t.Errorf("call %s of %v with %s: got %s, want %s", c.method, c.item.entry[1], arguments, got, want)
			}
		}
		if e := s.Explain(context.Background(), q, nil); fmt.Sprint(e.Reasons, e.Scopes) != c.why || e.Err != nil {
			t.Errorf("%s of %v: explained by %v %v, %v, want %s", c.method, c.item.entry[1], e.Reasons, e.Scopes, e.Err, c.why)
		}
	}
}

// One list can hold things of all kinds; each has the answer that it has alone.
func TestListOfEachKind(t *testing.T) {
	s := load(t, `allow if input.tool.owner == "payments-team"
allow if input.resource.owner == "files-team"
allow if input.server.owner == "files-team"
allow if input.prompt.owner == "nobody"`, "")
	all := fullItems(t)
	items := []*Item{all[KindServer], all[KindPrompt], nil, all[KindResource], {}, all[KindTool]}
	const none = "false policy_error: the question lacks its method, its subject or its item"
	want := []string{"true", "false policy_undefined", none, "true", none, "true"}
	for i, d := range each(t, s, subject(t, `{}`), NewItems(items)) {
		if got := show(d); got != want[i] {
			t.Errorf("item %d: got %s, want %s", i, got, want[i])
		}
		if got := show(both(t, s, Question{Method: "m", Subject: subject(t, `{}`), Item: items[i]})); got != want[i] {
			t.Errorf("item %d alone: got %s, want %s", i, got, want[i])
		}
	}
}
