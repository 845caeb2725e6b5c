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
		Owner: "payments-team", Labels: map[string]string{"tier": "1", "note": ""}, Registered: true,
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
			"name": "create_refund", "owner": "payments-team", "reach": "external", "registered": true, "server": "stripe"}}`
	if got := document(t, full(t)).String(); got != strings.Join(strings.FieldsFunc(want, func(r rune) bool { return r == '\n' || r == '\t' }), " ") {
		t.Errorf("got %s", got)
	}
}

// Nothing unknown is there, in whatever form.
func TestAbsent(t *testing.T) {
	in := input{Question: Question{Method: "tools/call", Subject: subject(t, `{}`),
		Item: item(t, Tool{Server: "a", Name: "b", ExposedName: "a__b", Attributes: []string{}, Labels: map[string]string{}})}}
	const want = `{"claims": {}, "method": "tools/call", "request": {}, "tool": {"exposed_name": "a__b", "name": "b", "registered": false, "server": "a"}}`
	if got := document(t, in).String(); got != want {
		t.Errorf("got %s", got)
	}
}

// The document, the structs and the schema have the same fields. What is not in
// all three is a policy that compiles and never holds, or one that does not
// compile and should.
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
	compare("input", root, document(t, full(t)))
}

// NewItem and NewSubject keep nothing that the caller may change.
func TestNoAliases(t *testing.T) {
	labels, attributes := map[string]string{"a": "1"}, []string{"x"}
	annotations, claims := jsontext.Value(`{"a": "1"}`), jsontext.Value(`{"sub": "1"}`)
	i := item(t, Tool{Server: "s", Name: "n", Labels: labels, Attributes: attributes, Definition: Definition{Annotations: annotations}})
	s, err := NewSubject(claims)
	if err != nil {
		t.Fatal(err)
	}
	before := i.tool.String() + s.claims.String()
	labels["a"], attributes[0] = "2", "y"
	for _, b := range []jsontext.Value{annotations, claims} {
		copy(b, strings.Repeat(" ", len(b)))
	}
	if after := i.tool.String() + s.claims.String(); after != before {
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
		_, err := NewItem(Tool{Server: "s", Name: "n", Definition: Definition{Annotations: jsontext.Value(claims)}})
		if err == nil || err.Error() != "read the annotations of tool n of server s for the policy: "+want {
			t.Errorf("annotations %s: %v", claims, err)
		}
	}
}
