package arguments

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
)

const payment = `{"type": "object", "required": ["amount"], "additionalProperties": false, "properties": {
	"amount": {"type": "integer", "minimum": 1, "maximum": 1000}, "to": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
	"kind": {"enum": ["a", "b"]}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}, "never": false},
	"$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"next": {"$ref": "#/$defs/line"}}}}}`

func TestCheck(t *testing.T) {
	s, err := Compile([]byte(payment))
	if err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]string{
		`{"amount": 5}`:   "[]",
		`{"amount": 5.0}`: "[]",
		`{"amount": 1000, "to": "bob", "kind": "a"}`:    "[]",
		`{"amount": null}`:                              "[/amount must be of type integer, not null]",
		`{"amount": "5"}`:                               "[/amount must be of type integer, not string]",
		`{"amount": 5.5}`:                               "[/amount must be of type integer, not number]",
		`{"amount": 1000.0000000000000001}`:             "[/amount must be of type integer, not number]",
		`{"amount": 9007199254740993}`:                  "[/amount must keep to its maximum]",
		`{"amount": 1e400}`:                             "[/amount must keep to its maximum]",
		`{"amount": 1e4000000000}`:                      "[/amount must be a number of fewer digits]",
		`{"amount": ` + strings.Repeat("9", 2000) + `}`: "[/amount must be a number of fewer digits]",
		`{}`: `[the arguments must have "amount"]`,
		`[]`: "[the arguments must be of type object, not array]",
		`{"amount": 5, "secret-value": "hunter2"}`:               `[the arguments must not have "secret-value"]`,
		`{"amount": 5, "to": "hunter 2"}`:                        "[/to must match the pattern of the schema]",
		`{"amount": 5, "kind": "hunter2"}`:                       "[/kind must be one of the values that the schema lists]",
		`{"amount": 5, "never": 1}`:                              "[/never must not be there]",
		`{"amount": 5, "lines": [{"sku": 1, "next": {}}]}`:       `[/lines/0/next must have "sku"]`,
		`{"amount": 5, "lines": [{"sku": 1, "next": {"sku":`:     "[the arguments must be valid JSON]",
		`{"amount": 5, "lines": [{"sku": 1}, {"a/b~c": {}}, 1]}`: `[/lines/1 must have "sku" /lines/2 must be of type object, not number]`,
	} {
		if got := fmt.Sprint(s.Check([]byte(arguments))); got != want {
			t.Errorf("%.60s: got %s, want %s", arguments, got, want)
		}
	}
	if got := fmt.Sprint(s.Check(nil)); got != `[the arguments must have "amount"]` {
		t.Errorf("no arguments: %s", got)
	}
}

// Schemas that cannot be used say why; nothing is fetched, and nothing takes long.
func TestCompile(t *testing.T) {
	for schema, want := range map[string]string{
		`{}`: "", `{"type": "object"}`: "",
		`{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"a": true}, "properties": {"x": {"$ref": "#/definitions/a"}}}`: "",
		`{"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [true]}`:                                                                     "",
		`{"properties": {"x": {"$ref": "#"}}}`: "",
		`true`:                                 "must be an object",
		`{"type": "object"`:                    "not valid JSON",
		`{"type": 5}`:                          `no JSON Schema: at "/type":`,
		`{"properties": []}`:                   `no JSON Schema: at "/properties":`,
		`{"$ref": "http://127.0.0.1:1/x"}`:     "refers to http://127.0.0.1:1/x: only what is in the schema itself is used",
		`{"$ref": "file:///etc/passwd"}`:       "refers to file:///etc/passwd",
		// What would be slow, or could not be counted before, is refused.
		`{"$ref": "#"}`: "refers to itself for the same value",
		`{"anyOf": [true, {"allOf": [{"$ref": "#"}]}]}`: "refers to itself for the same value",
		`{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}}`: "refers to itself",
		`{"$dynamicRef": "#a", "$defs": {"x": {"$dynamicAnchor": "a"}}}`:                                                                   "has a $dynamicRef or $recursiveRef",
		`{"$schema": "https://json-schema.org/draft/2019-09/schema", "properties": {"a": {"$recursiveRef": "#"}}}`:                         "has a $dynamicRef or $recursiveRef",
		doubled(maxChain): "leads through more than 64 schemas",
		strings.Repeat(`{"not":`, maxDepth+1) + "true" + strings.Repeat("}", maxDepth+1):  "nested more than 128 deep",
		`{"allOf": [` + strings.Repeat("{},", maxSchemas) + `{}]}`:                        "has more than 5000 objects and booleans",
		`{"properties": {"a": {"maximum": 1e999999}}}`:                                    `"/properties/a/maximum" must be a number of fewer digits`,
		`{"properties": {"a": {"maximum": 1e99999999}}}`:                                  `"/properties/a/maximum" must be a number of fewer digits`,
		`{"multipleOf": 1e-99999999}`:                                                     "must be a number of fewer digits",
		`{"enum": [1e5000]}`:                                                              "must be a number of fewer digits",
		`{"multipleOf": 0}`:                                                               `no JSON Schema: at "/multipleOf":`,
		`{"properties": {"a": {"pattern": "` + strings.Repeat("[a-z]{1000}", 60) + `"}}}`: "the patterns are too large",
		`{"patternProperties": {"` + strings.Repeat("[a-z]{1000}", 60) + `": true}}`:      "the patterns are too large",
		`{"properties": {"a": {"pattern": "(a{1000}){1000}"}}}`:                           "cannot be used",
		`{"$ref": "#/$defs/none"}`:                                                        "none",
		`{"$ref": "urn:a\u001b[2J\nb"}`:                                                   `no JSON Schema: at "/$ref": `,
		`{"type": "\u001b[2J\n"}`:                                                         `no JSON Schema: at "/type":`,
		`{"$schema": "http://127.0.0.1:1/meta"}`:                                          "refers to http://127.0.0.1:1/meta",
		`{"properties": {"x": {"pattern": "(?=a)b"}}}`:                                    "pattern",
		`{"properties": {"x": {"pattern": "` + strings.Repeat("a", maxPattern+1) + `"}}}`: "pattern",
		`{"description": "` + strings.Repeat("a", maxSchema) + `"}`:                       "larger than",
	} {
		_, err := Compile([]byte(schema))
		if want == "" {
			if err != nil {
				t.Errorf("%.60s: %v", schema, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsFunc(err.Error(), unprintable) || len(err.Error()) > 400 {
			t.Errorf("%.60s: got %v, want %q", schema, err, want)
		}
	}
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
