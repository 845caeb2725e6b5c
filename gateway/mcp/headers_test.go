package mcp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func mirrored(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestCheckHeaders(t *testing.T) {
	call := request("tools/call", `{"name":"alpha__read","arguments":{"name":"alpha__delete"}}`)
	cases := []struct {
		name    string
		header  http.Header
		message string
		says    string // "" means accepted
	}{
		{"agree", mirrored("mcp-method", "tools/call", "MCP-NAME", "alpha__read"), call, ""},
		{"agree in base64", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YWxwaGFfX3JlYWQ=?="), call, ""},
		{"no headers", mirrored(), call, "Mcp-Method is missing"},
		{"no method", mirrored("Mcp-Name", "alpha__read"), call, "Mcp-Method is missing"},
		{"other method", mirrored("Mcp-Method", "tools/list", "Mcp-Name", "alpha__read"), call, "Mcp-Method differs"},
		{"method in another case", mirrored("Mcp-Method", "Tools/call", "Mcp-Name", "alpha__read"), call, "Mcp-Method differs"},
		{"method in base64", mirrored("Mcp-Method", EncodeHeader("\u00e9"), "Mcp-Name", "x"), request("é", `{}`), "Mcp-Method differs"},
		{"two methods", mirrored("Mcp-Method", "tools/call", "Mcp-Method", "tools/call", "Mcp-Name", "alpha__read"), call, "Mcp-Method must come once"},
		{"no name", mirrored("Mcp-Method", "tools/call"), call, "Mcp-Name is missing"},
		{"other name", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "alpha__delete"), call, "Mcp-Name differs"},
		{"other name in base64", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YWxwaGFfX2RlbGV0ZQ==?="), call, "Mcp-Name differs"},
		{"two equal names", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "alpha__read", "Mcp-Name", "alpha__read"), call, "Mcp-Name must come once"},
		{"two names", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "alpha__read", "Mcp-Name", "alpha__delete"), call, "Mcp-Name must come once"},
		{"large name", mirrored("Mcp-Method", "tools/call", "Mcp-Name", strings.Repeat("a", 1<<20)), call, "Mcp-Name differs"},
		{"bad base64", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YWxwaGFfX3JlYWQ?="), call, "base64"},
		{"raw UTF-8", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "é"), request("tools/call", `{"name":"é"}`), "characters"},
		{"encoded UTF-8", mirrored("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?w6k=?="), request("tools/call", `{"name":"\u00e9"}`), ""},
		{"empty name", mirrored("Mcp-Method", "tools/call", "Mcp-Name", ""), request("tools/call", `{"name":""}`), ""},
		{"prompt", mirrored("Mcp-Method", "prompts/get", "Mcp-Name", "other"), request("prompts/get", `{"name":"p"}`), "Mcp-Name differs"},
		{"resource", mirrored("Mcp-Method", "resources/read", "Mcp-Name", "file:///b"), request("resources/read", `{"uri":"file:///a","name":"file:///b"}`), "Mcp-Name differs"},
		{"task", mirrored("Mcp-Method", "tasks/cancel", "Mcp-Name", "t2"), request("tasks/cancel", `{"taskId":"t1"}`), "Mcp-Name differs"},
		{"list has no name", mirrored("Mcp-Method", "tools/list"), request("tools/list", `{"name":"x"}`), ""},
		{"a body without a name is for the params reader", mirrored("Mcp-Method", "tools/call"), request("tools/call", `{"name":1}`), ""},
		{"notification without headers", mirrored(), `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, ""},
		{"notification, other method", mirrored("Mcp-Method", "tools/call"), `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, "Mcp-Method differs"},
		{"call without id, other name", mirrored("Mcp-Name", "b"), `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}`, "Mcp-Name differs"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := parsed(t, c.message)
			e := CheckHeaders(c.header, m)
			if c.says == "" {
				if e != nil {
					t.Fatal(e)
				}
				return
			}
			if e == nil {
				t.Fatal("accepted")
			}
			if e.Code != CodeHeaderMismatch || e.ID != m.ID || !strings.Contains(e.Message, c.says) {
				t.Errorf("got %d %q, id %s; want …%s…", e.Code, e.Message, e.ID.Raw(), c.says)
			}
		})
	}
}

func TestHeaderValue(t *testing.T) {
	for value, want := range map[string]string{
		"us-west1":           "us-west1",
		"a b\tc":             "a b\tc",
		"":                   "",
		"Hello, 世界":          "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":           "=?base64?IHBhZGRlZCA=?=",
		"tab\t":              "=?base64?dGFiCQ==?=",
		"line1\nline2":       "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?=":         "=?base64?PT9iYXNlNjQ/PQ==?=",
		"=?base64?x":         "=?base64?x",
		"=?BASE64?x?=":       "=?BASE64?x?=",
		"\x7f":               "=?base64?fw==?=",
	} {
		got := EncodeHeader(value)
		if got != want {
			t.Errorf("%q is encoded as %q, want %q", value, got, want)
		}
		if back, err := DecodeHeader(got); err != nil || back != value {
			t.Errorf("%q comes back as %q, %v", value, back, err)
		}
	}
	for _, line := range []string{
		"=?base64?=", "=?base64?YQ?=", "=?base64?YQ=?=", "=?base64?YR==?=", "=?base64?YQ== ?=", "=?base64?Y\r\nQ==?=",
		"=?base64?_-8=?=", "=?base64?/w==?=", "=?base64?\xff?=", "é", "a\x00b", "a\nb", "\x7f",
	} {
		if got, err := DecodeHeader(line); err == nil {
			t.Errorf("%q is decoded as %q", line, got)
		}
	}
	if got, err := DecodeHeader("=?base64??="); err != nil || got != "" {
		t.Errorf("empty base64 is decoded as %q, %v", got, err)
	}
}

func TestSetHeaders(t *testing.T) {
	h := mirrored("Mcp-Name", "alpha__read", "Mcp-Param-Region", "x", "Mcp-Method", "tools/list", "Accept", "a")
	SetHeaders(h, V20260728, parsed(t, request("tools/call", `{"name":"réad"}`)))
	want := mirrored("Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?csOpYWQ=?=", "Accept", "a")
	if len(h) != len(want) {
		t.Errorf("got %v, want %v", h, want)
	}
	for key := range want {
		if h.Get(key) != want.Get(key) {
			t.Errorf("%s is %q, want %q", key, h.Get(key), want.Get(key))
		}
	}
	SetHeaders(h, V20260728, NewRequest(NumberID(1), "tools/list", nil))
	if _, left := h[HeaderName]; left {
		t.Errorf("Mcp-Name is left on tools/list: %v", h)
	}
}

func TestReadParamHeaders(t *testing.T) {
	ok := func(props string) string { return `{"type":"object","properties":` + props + `}` }
	cases := []struct {
		name, schema, says string
	}{
		{"none", ok(`{"a":{"type":"string"}}`), ""},
		{"no schema", ``, ""},
		{"a schema that is true", `true`, ""},
		{"three types", ok(`{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"integer","x-mcp-header":"B"},"c":{"x-mcp-header":"C","type":"boolean"}}`), ""},
		{"nested", ok(`{"a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"B"}}}}`), ""},
		{"every token character", ok("{\"a\":{\"type\":\"string\",\"x-mcp-header\":\"!#$%&'*+-.^_`|~aZ0\"}}"), ""},
		{"a property of that name", ok(`{"x-mcp-header":{"type":"string"}}`), ""},
		{"in a default", `{"type":"object","default":{"x-mcp-header":"A"},"properties":{"a":{"examples":[{"x-mcp-header":1}]}}}`, ""},
		{"a definition of that name", `{"$defs":{"x-mcp-header":{"type":"string"}}}`, ""},

		{"empty", ok(`{"a":{"type":"string","x-mcp-header":""}}`), "token"},
		{"space", ok(`{"a":{"type":"string","x-mcp-header":"My Region"}}`), "token"},
		{"line end", ok(`{"a":{"type":"string","x-mcp-header":"A\r\nX: y"}}`), "token"},
		{"colon", ok(`{"a":{"type":"string","x-mcp-header":"A:"}}`), "token"},
		{"not ASCII", ok(`{"a":{"type":"string","x-mcp-header":"Région"}}`), "token"},
		{"not a string", ok(`{"a":{"type":"string","x-mcp-header":1}}`), "token"},
		{"number", ok(`{"a":{"type":"number","x-mcp-header":"A"}}`), "type"},
		{"array", ok(`{"a":{"type":"array","x-mcp-header":"A"}}`), "type"},
		{"object", ok(`{"a":{"type":"object","x-mcp-header":"A"}}`), "type"},
		{"two types", ok(`{"a":{"type":["string","null"],"x-mcp-header":"A"}}`), "type"},
		{"no type", ok(`{"a":{"x-mcp-header":"A"}}`), "type"},
		{"twice", ok(`{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"object","properties":{"c":{"type":"string","x-mcp-header":"REGION"}}}}`), "twice"},
		{"root", `{"type":"string","x-mcp-header":"A"}`, "reached"},
	}
	for _, keyword := range []string{"items", "not", "if", "then", "else", "contains", "additionalProperties", "propertyNames", "unevaluatedProperties"} {
		cases = append(cases, struct{ name, schema, says string }{
			keyword, ok(`{"p":{"` + keyword + `":{"type":"string","x-mcp-header":"A"}}}`), "reached"})
	}
	for _, keyword := range []string{"oneOf", "anyOf", "allOf", "prefixItems", "items"} {
		cases = append(cases, struct{ name, schema, says string }{
			keyword + " list", ok(`{"p":{"` + keyword + `":[true,{"properties":{"q":{"type":"string","x-mcp-header":"A"}}}]}}`), "reached"})
	}
	for _, keyword := range []string{"$defs", "definitions", "patternProperties", "dependentSchemas"} {
		cases = append(cases, struct{ name, schema, says string }{
			keyword, `{"` + keyword + `":{"d":{"type":"string","x-mcp-header":"A"}}}`, "reached"})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h, err := ReadParamHeaders(jsontext.Value(c.schema))
			switch {
			case c.says == "" && err != nil:
				t.Fatal(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %+v, %v; want …%s…", h, err, c.says)
			case c.says != "" && !h.IsZero():
				t.Errorf("a refused schema gave %+v", h)
			}
		})
	}
}

func TestParamHeadersOfSiblings(t *testing.T) {
	in := func(inner string) string { return `{"type":"object","properties":{"o":` + inner + `}}` }
	schema := in(in(in(`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"B"}}}`)))
	p, err := ReadParamHeaders(jsontext.Value(schema))
	if err != nil {
		t.Fatal(err)
	}
	got := http.Header{}
	if e := p.Set(got, jsontext.Value(`{"o":{"o":{"o":{"a":"1","b":"2"}}}}`)); e != nil {
		t.Fatal(e)
	}
	if got.Get("Mcp-Param-A") != "1" || got.Get("Mcp-Param-B") != "2" {
		t.Errorf("got %v", got)
	}
}

func TestParamHeaders(t *testing.T) {
	schema := jsontext.Value(`{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"limit":{"type":"integer","x-mcp-header":"row-LIMIT"},
		"opt":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry"}}},
		"query":{"type":"string"}}}`)
	p, err := ReadParamHeaders(schema)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, arguments string
		header          http.Header
		says            string // of Check; "" means accepted
		set             http.Header
	}{
		{"all", `{"region":"us-west1","limit":42,"opt":{"dry":true},"query":"q"}`,
			mirrored("Mcp-Param-Region", "us-west1", "mcp-param-row-limit", "42", "Mcp-Param-Dry", "true"), "",
			mirrored("Mcp-Param-Region", "us-west1", "Mcp-Param-Row-Limit", "42", "Mcp-Param-Dry", "true")},
		{"none", `{}`, mirrored(), "", mirrored()},
		{"no arguments", ``, mirrored(), "", mirrored()},
		{"null", `{"region":null,"opt":null}`, mirrored(), "", mirrored()},
		{"another header", `{}`, mirrored("Mcp-Param-Other", "\x01"), "", mirrored()},
		{"encoded", `{"region":"世"}`, mirrored("Mcp-Param-Region", "=?base64?5LiW?="), "", mirrored("Mcp-Param-Region", "=?base64?5LiW?=")},
		{"numbers agree", `{"limit":1e2}`, mirrored("Mcp-Param-Row-Limit", "100.0"), "", mirrored("Mcp-Param-Row-Limit", "100")},
		{"largest", `{"limit":-9007199254740991}`, mirrored("Mcp-Param-Row-Limit", "-9007199254740991"), "", mirrored("Mcp-Param-Row-Limit", "-9007199254740991")},
		{"a string of another type", `{"limit":"42"}`, mirrored("Mcp-Param-Row-Limit", "42"), "", mirrored("Mcp-Param-Row-Limit", "42")},
		{"missing", `{"region":"a"}`, mirrored(), "missing", mirrored("Mcp-Param-Region", "a")},
		{"differs", `{"region":"a"}`, mirrored("Mcp-Param-Region", "b"), "differs", mirrored("Mcp-Param-Region", "a")},
		{"twice", `{"region":"a"}`, mirrored("Mcp-Param-Region", "a", "Mcp-Param-Region", "a"), "once", mirrored("Mcp-Param-Region", "a")},
		{"malformed", `{"region":"a"}`, mirrored("Mcp-Param-Region", "=?base64?Y?="), "base64", mirrored("Mcp-Param-Region", "a")},
		{"hexadecimal", `{"limit":42}`, mirrored("Mcp-Param-Row-Limit", "0x2A"), "differs", mirrored("Mcp-Param-Row-Limit", "42")},
		{"header without argument", `{}`, mirrored("Mcp-Param-Region", "a"), "not there", mirrored()},
		{"header for null", `{"region":null}`, mirrored("Mcp-Param-Region", "null"), "not there", mirrored()},
		{"too large", `{"limit":9007199254740993}`, mirrored("Mcp-Param-Row-Limit", "9007199254740993"), "below 2^53", nil},
		{"fraction", `{"limit":1.5}`, mirrored("Mcp-Param-Row-Limit", "1.5"), "below 2^53", nil},
		{"huge exponent", `{"limit":1e999999999}`, mirrored(), "below 2^53", nil},
		{"object", `{"region":{}}`, mirrored(), "must be a string", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := p.Check(c.header, jsontext.Value(c.arguments))
			switch {
			case c.says == "" && e != nil:
				t.Error(e)
			case c.says != "" && (codeOf(e) != CodeHeaderMismatch || !strings.Contains(e.Message, c.says)):
				t.Errorf("Check gave %v, want …%s…", e, c.says)
			}
			got := http.Header{}
			e = p.Set(got, jsontext.Value(c.arguments))
			if c.set == nil {
				if codeOf(e) != CodeInvalidParams {
					t.Errorf("Set gave %v", e)
				}
				return
			}
			if e != nil || len(got) != len(c.set) {
				t.Fatalf("Set gave %v, %v; want %v", got, e, c.set)
			}
			for key := range c.set {
				if got.Get(key) != c.set.Get(key) {
					t.Errorf("Set gave %s %q, want %q", key, got.Get(key), c.set.Get(key))
				}
			}
			if e := p.Check(got, jsontext.Value(c.arguments)); e != nil {
				t.Errorf("Check refuses what Set made: %v", e)
			}
		})
	}
}
