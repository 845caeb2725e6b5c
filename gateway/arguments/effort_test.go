package arguments

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Arguments that would take for ever, or more memory than there is, are refused
// before that begins. Without the bounds this test does not end.
func TestEffort(t *testing.T) {
	const large = "[the arguments are too large, or nested too deep, to be held against the schema]"
	twice := func(keyword string) string {
		return `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"c":{"` + keyword + `":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}}}}}`
	}
	nested := func(n int) string { return strings.Repeat(`{"c":`, n) + `{}` + strings.Repeat(`}`, n) }
	list := func(n int, item string) string {
		return `[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `]`
	}
	names := make([]string, 20_000)
	for i := range names {
		names[i] = strconv.Quote(strconv.Itoa(i))
	}
	required := `[` + strings.Join(names, ",") + `]`
	for _, c := range []struct{ name, schema, arguments, want string }{
		{"two ways in each member", twice("allOf"), nested(100), large},
		{"and not deep", twice("allOf"), nested(8), "[]"},
		{"any of two ways", twice("anyOf"), nested(100), large},
		{"one of two ways", twice("oneOf"), nested(100), large},
		{"under not", strings.Replace(twice("allOf"), `"$ref":"#/$defs/n"`, `"not":{"$ref":"#/$defs/n"}`, 1), nested(100), large},
		{"two patterns for a name", `{"patternProperties":{"c":{"$ref":"#"},"^c":{"$ref":"#"}}}`, nested(100), large},
		{"up to draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"c":{"properties":{"c":{"$ref":"#"}}}},"properties":{"c":{"$ref":"#"}}}`, nested(100), large},
		{"two ways in each item", `{"items":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}}`, strings.Repeat("[", 100) + strings.Repeat("]", 100), large},
		{"items and contains", `{"items":{"$ref":"#"},"contains":{"$ref":"#"}}`, strings.Repeat("[", 100) + `1` + strings.Repeat("]", 100), large},
		{"doubled for one value", doubled(30), `{}`, large},
		{"and a little", doubled(6), `{}`, "[]"},
		{"many values", `{"items":{"type":"string"}}`, list(maxEffort+1, "1"), large},
		{"many rows", `{"properties":{"rows":{"items":{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}}}}`, `{"rows":` + list(20_000, `{"a":"x"}`) + `}`, "[]"},
		{"many values of many", `{"items":{"enum":` + list(20_000, "12345") + `}}`, list(20, "1"), large},
		{"one of many", `{"items":{"enum":` + list(20_000, `"a"`) + `}}`, `["a"]`, "[]"},
		{"many required", `{"items":{"required":` + required + `}}`, list(100, "{}"), large},
		{"a pattern and a long text", `{"properties":{"a":{"pattern":"^(a|ab|[a-z]{1,900}x)*$"}}}`, `{"a":"` + strings.Repeat("a", 1<<20) + `"}`, large},
		{"and a short one", `{"properties":{"a":{"pattern":"^(a|ab|[a-z]{1,900}x)*$"}}}`, `{"a":"aaaaaaaaaa"}`, "[]"},
		{"a pattern and a long name", `{"patternProperties":{"^(a|ab|[a-z]{1,900}x)*$":true}}`, `{"` + strings.Repeat("a", 1<<20) + `":1}`, large},
		{"a long text without one", `{"properties":{"a":{"type":"string","minLength":1}}}`, `{"a":"` + strings.Repeat("a", 4<<20) + `"}`, "[]"},
		{"all different", `{"uniqueItems":true,"items":{"$ref":"#"}}`, strings.Repeat("[1,", 100) + list(1000, "[1,2,3]") + strings.Repeat("]", 100), large},
		{"deep", `{}`, strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2), large},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Compile([]byte(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(s.Check([]byte(c.arguments))); got != c.want {
				t.Errorf("got %.200s, want %s", got, c.want)
			}
		})
	}
}

// doubled is a schema of which each part leads to the next in two ways, for the
// same value.
func doubled(parts int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := range parts {
		fmt.Fprintf(&b, `"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"%d":{"type":"object"}}}`, parts)
	return b.String()
}

// No fault holds a value of the arguments, whatever rule of whichever draft they
// break: values are none of the gateway's log.
func TestFaultsHoldNoValues(t *testing.T) {
	const secret = "hunter2"
	for _, draft := range []string{"draft-04/schema#", "draft-06/schema#", "draft-07/schema#", "draft/2019-09/schema", "draft/2020-12/schema"} {
		scheme := "http"
		if strings.HasPrefix(draft, "draft/") {
			scheme = "https"
		}
		for rule, value := range map[string]string{
			`"type":"integer"`: `"hunter2"`, `"enum":["a"]`: `"hunter2"`, `"const":"a"`: `"hunter2"`, `"pattern":"^a$"`: `"hunter2"`, `"maxLength":3`: `"hunter2"`,
			`"minLength":30`: `"hunter2"`, `"format":"ipv4"`: `"hunter2"`, `"format":"regex"`: `"(hunter2"`, `"contentEncoding":"base64"`: `"hunter2"`,
			`"contentMediaType":"application/json"`: `"hunter2"`, `"maximum":5`: `72`, `"minimum":500`: `72`, `"multipleOf":5`: `72`, `"items":{"type":"integer"}`: `["hunter2"]`,
			`"uniqueItems":true`: `["hunter2","hunter2"]`, `"contains":{"const":1}`: `["hunter2"]`, `"maxItems":0`: `["hunter2"]`, `"not":{"type":"string"}`: `"hunter2"`,
			`"anyOf":[{"type":"integer"},{"maxLength":1}]`: `"hunter2"`, `"oneOf":[{"type":"string"},{"minLength":1}]`: `"hunter2"`, `"allOf":[{"type":"integer"}]`: `"hunter2"`,
			`"if":{"type":"string"},"then":{"maxLength":1}`: `"hunter2"`, `"additionalProperties":{"type":"integer"}`: `{"a":"hunter2"}`, `"propertyNames":{"maxLength":1}`: `{"ab":"hunter2"}`,
			`"dependencies":{"a":["b"]}`: `{"a":"hunter2"}`, `"dependentRequired":{"a":["b"]}`: `{"a":"hunter2"}`, `"dependentSchemas":{"a":false}`: `{"a":"hunter2"}`,
			`"unevaluatedProperties":false`: `{"a":"hunter2"}`, `"prefixItems":[{"type":"integer"}]`: `["hunter2"]`, `"maxProperties":0`: `{"a":"hunter2"}`,
		} {
			s, err := Compile([]byte(`{"$schema":"` + scheme + `://json-schema.org/` + draft + `","properties":{"p":{` + rule + `}}}`))
			if err != nil {
				t.Errorf("%s %s: %v", draft, rule, err)
				continue
			}
			faults := fmt.Sprint(s.Check([]byte(`{"p":` + value + `}`)))
			if strings.Contains(faults, secret) || strings.Contains(faults, "72") {
				t.Errorf("%s %s: %s", draft, rule, faults)
			}
			if annotation := strings.Contains(rule, "format") || strings.Contains(rule, "content"); draft == "draft/2020-12/schema" && rule != `"dependencies":{"a":["b"]}` || annotation {
				if (faults == "[]") != annotation {
					t.Errorf("%s %s: %s", draft, rule, faults)
				}
			}
		}
	}
}
