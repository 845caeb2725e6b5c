package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// full is a question with everything there.
func full(t testing.TB) input {
	t.Helper()
	tool := Tool{
		Server: "stripe", Name: "create_refund", ExposedName: "stripe__create_refund",
		Attributes: []string{"commerce", "payments"}, Effect: "write", Data: "financial", Reach: "external", Env: "production",
		Owner: "payments-team", Labels: map[string]string{"tier": "1", "note": ""}, Registered: true, Quarantined: true,
		Definition: Definition{SHA256: "ab", Pinned: true, Drifted: true, Annotations: jsontext.Value(`{"readOnlyHint": false, "x": [1.50, -0, 1e3]}`)},
	}
	return input{
		Question{
			Method:  "tools/call",
			Subject: subject(t, `{"iss": "https://idp.example.test", "exp": 18446744073709551617, "roles": ["a", null, {"b": true}]}`),
			Item:    item(t, tool),
			Request: Request{ID: "r1", ProtocolVersion: "2025-11-25", Client: Client{"agent", "1.0"}, RemoteAddr: "192.0.2.1:5", Route: "/mcp"},
		},
		jsontext.Value(`{"amount": 9007199254740993}`),
	}
}

// fullItems is an item of each kind with everything there.
func fullItems(t testing.TB) map[Kind]*Item {
	t.Helper()
	facts := Facts{
		Attributes: []string{"files", "storage"}, Data: "internal", Reach: "closed", Env: "staging", Owner: "files-team",
		Labels: map[string]string{"tier": "2"}, Registered: true, Quarantined: true,
	}
	definition := Definition{SHA256: "cd", Annotations: jsontext.Value(`{"audience": ["user"], "priority": 0.50}`)}
	return map[Kind]*Item{
		KindTool: full(t).Item,
		KindResource: resourceItem(t, Resource{Server: "files", URI: "file:///a%2Fb", URITemplate: "file:///{path}", Name: "a/b",
			MIMEType: "text/plain", Facts: facts, Definition: definition}),
		KindPrompt: promptItem(t, Prompt{Server: "files", Name: "review", ExposedName: "files__review", Facts: facts, Definition: definition}),
		KindServer: serverItem(t, Server{Name: "files", Facts: facts}),
	}
}

func document(t testing.TB, in input) *ast.Term {
	t.Helper()
	term, err := in.term(in.Request.term())
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func TestDocument(t *testing.T) {
	const want = `{"arguments": {"amount": 9007199254740993},
		"claims": {"exp": 18446744073709551617, "iss": "https://idp.example.test", "roles": ["a", null, {"b": true}]},
		"method": "tools/call",
		"request": {"client": {"name": "agent", "version": "1.0"}, "id": "r1", "protocol_version": "2025-11-25", "remote_addr": "192.0.2.1:5", "route": "/mcp"},
		"tool": {"attributes": ["commerce", "payments"], "data": "financial",
			"definition": {"annotations": {"readOnlyHint": false, "x": [1.50, -0, 1e3]}, "drifted": true, "pinned": true, "sha256": "ab"},
			"effect": "write", "env": "production", "exposed_name": "stripe__create_refund", "labels": {"note": "", "tier": "1"},
			"name": "create_refund", "owner": "payments-team", "quarantined": true, "reach": "external", "registered": true, "server": "stripe"}}`
	if got := document(t, full(t)).String(); got != strings.Join(strings.FieldsFunc(want, func(r rune) bool { return r == '\n' || r == '\t' }), " ") {
		t.Errorf("got %s", got)
	}
}

// Every kind has its own key, and is the only thing in the document.
func TestDocumentOfEachKind(t *testing.T) {
	const facts = `"attributes": ["files", "storage"], "data": "internal", `
	const definition = `"definition": {"annotations": {"audience": ["user"], "priority": 0.50}, "drifted": false, "pinned": false, "sha256": "cd"}, "env": "staging", `
	const more = `"labels": {"tier": "2"}, `
	items := fullItems(t)
	for kind, want := range map[Kind]string{
		KindResource: `"resource": {` + facts + definition + more + `"mime_type": "text/plain", "name": "a/b", "owner": "files-team", ` +
			`"quarantined": true, "reach": "closed", "registered": true, "server": "files", "uri": "file:///a%2Fb", "uri_template": "file:///{path}"}`,
		KindPrompt: `"prompt": {` + facts + definition + `"exposed_name": "files__review", ` + more + `"name": "review", "owner": "files-team", ` +
			`"quarantined": true, "reach": "closed", "registered": true, "server": "files"}`,
		KindServer: `"server": {` + facts + `"env": "staging", ` + more + `"name": "files", "owner": "files-team", "quarantined": true, "reach": "closed", "registered": true}`,
	} {
		in := input{Question: Question{Method: "m", Subject: subject(t, `{}`), Item: items[kind]}}
		members := []string{`"claims": {}`, `"method": "m"`, `"request": {}`, want}
		slices.Sort(members)
		if got := document(t, in).String(); got != "{"+strings.Join(members, ", ")+"}" {
			t.Errorf("%s: got %s", kind, got)
		}
	}
}

// Nothing unknown is there, in whatever form.
func TestAbsent(t *testing.T) {
	nothing := Facts{Attributes: []string{}, Labels: map[string]string{}}
	for want, i := range map[string]*Item{
		`"tool": {"exposed_name": "a__b", "name": "b", "registered": false, "server": "a"}`: item(t,
			Tool{Server: "a", Name: "b", ExposedName: "a__b", Attributes: []string{}, Labels: map[string]string{}}),
		`"resource": {"registered": false, "server": "a", "uri": "b:c"}`:                      resourceItem(t, Resource{Server: "a", URI: "b:c", Facts: nothing}),
		`"resource": {"registered": false, "server": "a", "uri_template": "b:{c}"}`:           resourceItem(t, Resource{Server: "a", URITemplate: "b:{c}", Facts: nothing}),
		`"prompt": {"exposed_name": "a__b", "name": "b", "registered": false, "server": "a"}`: promptItem(t, Prompt{Server: "a", Name: "b", ExposedName: "a__b", Facts: nothing}),
		`"server": {"name": "a", "registered": false}`:                                        serverItem(t, Server{Name: "a", Facts: nothing}),
	} {
		in := input{Question: Question{Method: "m", Subject: subject(t, `{}`), Item: i}}
		members := []string{`"claims": {}`, `"method": "m"`, `"request": {}`, want}
		slices.Sort(members)
		if got := document(t, in).String(); got != "{"+strings.Join(members, ", ")+"}" {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The document of each kind, the structs and the schema have the same fields.
// What is not in all three is a policy that compiles and never holds, or one that
// does not compile and should.
func TestFieldsAgree(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal([]byte(Schema()), &root); err != nil {
		t.Fatal(err)
	}
	var compare func(path string, schema map[string]any, value *ast.Term)
	compare = func(path string, schema map[string]any, value *ast.Term) {
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s is open", path)
		}
		object, ok := value.Value.(ast.Object)
		if !ok {
			t.Fatalf("%s is no object", path)
		}
		var keys []string
		for _, k := range object.Keys() {
			keys = append(keys, keyName(k))
		}
		if want := slices.Sorted(maps.Keys(properties)); !slices.Equal(keys, want) {
			t.Errorf("%s has %v, the schema %v", path, keys, want)
		}
		for name, property := range properties {
			p := property.(map[string]any)
			if p["description"] == "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			compare(path+"."+name, p, object.Get(ast.StringTerm(name)))
		}
	}
	properties := root["properties"].(map[string]any)
	in := full(t)
	for kind := range everyKind() {
		in.Item = fullItems(t)[kind]
		others := maps.Clone(properties)
		maps.DeleteFunc(others, func(key string, _ any) bool {
			_, thing := everyKind()[Kind(key)]
			return thing && key != string(kind)
		})
		compare(string(kind)+" input", map[string]any{"properties": others, "additionalProperties": root["additionalProperties"]}, document(t, in))
	}
}

// Items and subjects keep nothing that the caller may change.
func TestNoAliases(t *testing.T) {
	labels, attributes := map[string]string{"a": "1"}, []string{"x"}
	annotations, claims := jsontext.Value(`{"a": "1"}`), jsontext.Value(`{"sub": "1"}`)
	facts, definition := Facts{Labels: labels, Attributes: attributes}, Definition{Annotations: annotations}
	items := []*Item{
		item(t, Tool{Server: "s", Name: "n", Labels: labels, Attributes: attributes, Definition: definition}),
		resourceItem(t, Resource{Server: "s", URI: "n:", Facts: facts, Definition: definition}),
		promptItem(t, Prompt{Server: "s", Name: "n", Facts: facts, Definition: definition}),
		serverItem(t, Server{Name: "s", Facts: facts}),
	}
	s := subject(t, string(claims))
	shown := func() string {
		out := s.claims.String()
		for _, i := range items {
			out += "\n" + i.entry[1].String()
		}
		return out
	}
	before := shown()
	labels["a"], attributes[0] = "2", "y"
	for _, b := range []jsontext.Value{annotations, claims} {
		copy(b, strings.Repeat(" ", len(b)))
	}
	if after := shown(); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
}

func TestBadFacts(t *testing.T) {
	for claims, want := range map[string]string{
		``:                     "not valid JSON",
		`null`:                 "want a JSON object, not null",
		`[]`:                   "want a JSON object, not array",
		`{"a": 1, "a": 2}`:     "duplicate member name",
		`{"a": {"b":1,"b":1}}`: "duplicate member name",
		`{"a": "\ud800"}`:      "not valid JSON",
		"{\"a\": \"\xff\"}":    "not valid JSON",
		`{"a": 01}`:            "not valid JSON",
		`{} x`:                 "more than one JSON value",
		`{"a": 1e1000000}`:     "number with too large an exponent",
	} {
		if _, err := NewSubject([]byte(claims)); err == nil || err.Error() != "read the claims for the policy: "+want {
			t.Errorf("%s: %v", claims, err)
		}
		bad := Definition{Annotations: jsontext.Value(claims)}
		_, tool := NewItem(Tool{Server: "s", Name: "n", Definition: bad})
		_, resource := NewResourceItem(Resource{Server: "s", URI: "a:b\nc", URITemplate: "a:{x}", Definition: bad})
		_, template := NewResourceItem(Resource{Server: "s", URITemplate: "a:{x}", Definition: bad})
		_, prompt := NewPromptItem(Prompt{Server: "s", Name: "n", Definition: bad})
		for name, err := range map[string]error{"tool n": tool, "resource a:b c": resource, "resource a:{x}": template, "prompt n": prompt} {
			if err == nil || err.Error() != "read the annotations of "+name+" of server s for the policy: "+want {
				t.Errorf("annotations %s: %v", claims, err)
			}
		}
	}
}
