package mcp

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// parsed parses a message that the test takes for granted.
func parsed(t testing.TB, in string) *Message {
	t.Helper()
	m, e := Parse([]byte(in))
	if e != nil {
		t.Fatalf("%s: %v", in, e)
	}
	return m
}

func request(method, params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`
}

// modernMeta is a params object whose _meta states version.
func modernMeta(version string) string {
	return `{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientCapabilities":{}}}`
}

func versions(lines ...string) http.Header {
	if lines == nil {
		return http.Header{}
	}
	return http.Header{HeaderVersion: lines}
}

func TestClassify(t *testing.T) {
	cases := []struct {
		name    string
		header  http.Header
		message string
		era     Era
		version string
	}{
		{"modern", versions(V20260728), request("tools/list", modernMeta(V20260728)), Modern, V20260728},
		{"modern notification", versions(V20260728), `{"jsonrpc":"2.0","method":"notifications/x"}`, Modern, V20260728},
		{"legacy without header", versions(), request("tools/list", `{}`), Legacy, ""},
		{"legacy without params", versions(V20250618), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, Legacy, V20250618},
		{"2025-03-26", versions(V20250326), request("tools/list", `{}`), Legacy, V20250326},
		{"2025-11-25", versions(V20251125), request("tools/list", `{}`), Legacy, V20251125},
		{"legacy with _meta", versions(V20251125), request("tools/list", `{"_meta":{"progressToken":1,"io.modelcontextprotocol/clientInfo":5}}`), Legacy, V20251125},
		{"legacy response", versions(V20251125), `{"jsonrpc":"2.0","id":1,"result":{}}`, Legacy, V20251125},
		{"initialize", versions(), request("initialize", `{}`), Legacy, ""},
		{"initialize with any older header", versions("2019-01-01"), request("initialize", `{}`), Legacy, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, e := Classify(c.header, parsed(t, c.message))
			if e != nil {
				t.Fatal(e)
			}
			if p.Era != c.era || p.Version != c.version {
				t.Errorf("got %v %q, want %v %q", p.Era, p.Version, c.era, c.version)
			}
		})
	}
}

func TestClassifyRefuses(t *testing.T) {
	const caps = `"io.modelcontextprotocol/clientCapabilities":{}`
	const version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	cases := []struct {
		name    string
		header  http.Header
		message string
		code    int
		says    string
	}{
		{"header twice", versions(V20251125, V20251125), request("ping", `{}`), CodeHeaderMismatch, "once"},
		{"modern header twice", versions(V20260728, V20260728), request("ping", modernMeta(V20260728)), CodeHeaderMismatch, "once"},
		{"modern without header", versions(), request("ping", modernMeta(V20260728)), CodeHeaderMismatch, "missing"},
		{"modern with legacy header", versions(V20251125), request("ping", modernMeta(V20260728)), CodeHeaderMismatch, "differs"},
		{"modern header, legacy _meta", versions(V20260728), request("ping", modernMeta(V20251125)), CodeHeaderMismatch, "differs"},
		{"modern header on initialize", versions(V20260728), request("initialize", `{}`), CodeHeaderMismatch, "initialize"},
		{"legacy version in the modern way", versions(V20251125), request("ping", modernMeta(V20251125)), CodeUnsupportedVersion, "nsupported"},
		{"later version", versions("2027-01-01"), request("ping", modernMeta("2027-01-01")), CodeUnsupportedVersion, "nsupported"},
		{"later version, no _meta", versions("2027-01-01"), request("ping", `{}`), CodeUnsupportedVersion, "nsupported"},
		{"old version in _meta", versions("1900-01-01"), request("ping", modernMeta("1900-01-01")), CodeUnsupportedVersion, "nsupported"},
		{"unknown legacy version", versions("2025-01-01"), request("ping", `{}`), CodeUnsupportedVersion, "nsupported"},
		{"backend-only version", versions(V20241105), request("ping", `{}`), CodeUnsupportedVersion, "nsupported"},
		{"not a date", versions("latest"), request("ping", `{}`), CodeUnsupportedVersion, "nsupported"},
		{"like a date", versions("2026-07-2x"), request("ping", `{}`), CodeUnsupportedVersion, "nsupported"},
		{"two in one line", versions("2025-11-25, 2025-11-25"), request("ping", `{}`), CodeUnsupportedVersion, "nsupported"},
		{"empty header", versions(""), request("ping", `{}`), CodeUnsupportedVersion, "nsupported"},
		{"modern without params", versions(V20260728), `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, CodeInvalidParams, "protocolVersion"},
		{"modern without _meta", versions(V20260728), request("ping", `{}`), CodeInvalidParams, "protocolVersion"},
		{"modern without version", versions(V20260728), request("ping", `{"_meta":{`+caps+`}}`), CodeInvalidParams, "protocolVersion"},
		{"modern without capabilities", versions(V20260728), request("ping", `{"_meta":{`+version+`}}`), CodeInvalidParams, "clientCapabilities"},
		{"version is a number", versions(V20260728), request("ping", `{"_meta":{"io.modelcontextprotocol/protocolVersion":20260728,`+caps+`}}`), CodeInvalidParams, "protocolVersion"},
		{"capabilities are null", versions(V20260728), request("ping", `{"_meta":{`+version+`,"io.modelcontextprotocol/clientCapabilities":null}}`), CodeInvalidParams, "clientCapabilities"},
		{"clientInfo is a string", versions(V20260728), request("ping", `{"_meta":{`+version+`,`+caps+`,"io.modelcontextprotocol/clientInfo":"me"}}`), CodeInvalidParams, "clientInfo"},
		{"clientInfo without version", versions(V20260728), request("ping", `{"_meta":{`+version+`,`+caps+`,"io.modelcontextprotocol/clientInfo":{"name":"me"}}}`), CodeInvalidParams, "clientInfo"},
		{"clientInfo folded", versions(V20260728), request("ping", `{"_meta":{`+version+`,`+caps+`,"io.modelcontextprotocol/clientInfo":{"name":"me","version":"1","Name":"you"}}}`), CodeInvalidRequest, `"Name"`},
		{"unknown log level", versions(V20260728), request("ping", `{"_meta":{`+version+`,`+caps+`,"io.modelcontextprotocol/logLevel":"loud"}}`), CodeInvalidParams, "logLevel"},
		{"modern response", versions(V20260728), `{"jsonrpc":"2.0","id":7,"result":{}}`, CodeInvalidRequest, "responses"},
		{"_meta is a string", versions(), request("ping", `{"_meta":"x"}`), CodeInvalidParams, "_meta"},
		{"_meta is null", versions(), request("ping", `{"_meta":null}`), CodeInvalidParams, "_meta"},
		{"_META", versions(), request("ping", `{"_META":{}}`), CodeInvalidRequest, `"_META"`},
		{"progressToken is a fraction", versions(), request("ping", `{"_meta":{"progressToken":1.5}}`), CodeInvalidParams, "progressToken"},
		{"progressToken is null", versions(), request("ping", `{"_meta":{"progressToken":null}}`), CodeInvalidParams, "progressToken"},
		{"ProgressToken", versions(), request("ping", `{"_meta":{"ProgressToken":1}}`), CodeInvalidRequest, `"ProgressToken"`},
		{"protocol key folded", versions(), request("ping", `{"_meta":{"io.modelcontextprotocol/ProtocolVersion":"2026-07-28"}}`), CodeInvalidRequest, "only in case"},
		{"protocol prefix folded", versions(), request("ping", `{"_meta":{"IO.modelcontextprotocol/anything":1}}`), CodeInvalidRequest, "only in case"},
		{"Kelvin sign in a protocol key", versions(), request("ping", `{"_meta":{"progressTo\u212aen":1}}`), CodeInvalidRequest, "only in case"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := parsed(t, c.message)
			p, e := Classify(c.header, m)
			if e == nil {
				t.Fatalf("Classify gave %v %q", p.Era, p.Version)
			}
			if e.Code != c.code || e.ID != m.ID || !strings.Contains(e.Message, c.says) {
				t.Errorf("got %d %q, id %s; want %d …%s…", e.Code, e.Message, e.ID.Raw(), c.code, c.says)
			}
		})
	}
}

func TestUnsupportedVersionData(t *testing.T) {
	_, e := Classify(versions("1900-01-01"), parsed(t, request("ping", `{}`)))
	const want = `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":"1900-01-01"}`
	if string(e.Data) != want {
		t.Errorf("data is %s, want %s", e.Data, want)
	}
	got, ok := e.IsUnsupportedVersion()
	if !ok || !slices.Equal(got, Supported()) {
		t.Errorf("read back as %v, %t", got, ok)
	}
	if _, ok := NewError(CodeInvalidRequest, "").IsUnsupportedVersion(); ok {
		t.Error("another code is read as an unsupported version")
	}
	long, _ := Classify(versions(strings.Repeat("9", 1<<20)), parsed(t, request("ping", `{}`)))
	if long.Era != 0 {
		t.Error("a long version was accepted")
	}
}

func TestNegotiate(t *testing.T) {
	for requested, want := range map[string]string{
		V20250326: V20250326, V20250618: V20250618, V20251125: V20251125,
		V20241105: V20251125, V20260728: V20251125, "2099-01-01": V20251125, "": V20251125, "x": V20251125,
	} {
		if got := Negotiate(requested); got != want {
			t.Errorf("%q is answered with %q, want %q", requested, got, want)
		}
	}
	for _, v := range Supported() {
		if EraOf(v) == Legacy && Negotiate(v) != v {
			t.Errorf("%q is supported, but negotiated as %q", v, Negotiate(v))
		}
	}
}

func TestMetaOfModernRequest(t *testing.T) {
	m := parsed(t, request("tools/call", `{"name":"x","_meta":{"progressToken":"p\u0031","com.example/trace":1,`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},`+
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"0","title":"T"},"io.modelcontextprotocol/logLevel":"debug"}}`))
	p, e := Classify(versions(V20260728), m)
	if e != nil {
		t.Fatal(e)
	}
	got := p.Meta
	if got.Client != (Implementation{"t", "0"}) || got.LogLevel != "debug" ||
		string(got.Capabilities) != `{"roots":{}}` || string(got.ProgressToken) != `"p\u0031"` {
		t.Errorf("got %+v", got)
	}
	if string(got.Raw) != string(find(m.Params, "_meta")) {
		t.Errorf("raw is %s", got.Raw)
	}
}

func TestEditMeta(t *testing.T) {
	one := Set{Name: "a", Value: String("x")}
	cases := []struct {
		name, in string
		sets     []Set
		want     string
	}{
		{"nil stays nil", "", nil, ""},
		{"nil, nothing to remove", "", []Set{{Name: "a"}}, ""},
		{"made from nil", "", []Set{one}, `{"_meta":{"a":"x"}}`},
		{"made", `{ "n":1.0 }`, []Set{one}, `{ "n":1.0,"_meta":{"a":"x"} }`},
		{"not made", `{ "n":1.0 }`, []Set{{Name: "a"}}, `{ "n":1.0 }`},
		{"changed in place", `{"_meta":{ "b":1 , "a":2 } , "n":1.0}`, []Set{one, {Name: "b"}}, `{"_meta":{ "a":"x" } , "n":1.0}`},
		{"emptied", `{"_meta":{"a":2},"n":1}`, []Set{{Name: "a"}}, `{"_meta":{},"n":1}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var in []byte
			if c.in != "" {
				in = []byte(c.in)
			}
			got, err := EditMeta(in, c.sets...)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want || (c.want == "") != (got == nil) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for _, in := range []string{`[]`, `{"_meta":1}`, `{"a":1,"a":1}`} {
		if got, err := EditMeta([]byte(in), one); err == nil {
			t.Errorf("EditMeta made %s of %s", got, in)
		}
	}
}
