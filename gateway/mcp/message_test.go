package mcp

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestParseRefuses(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	cases := []struct {
		name, in string
		code     int
		id       string
		says     string
	}{
		{"empty", ``, CodeParse, `null`, "empty"},
		{"white space", " \n", CodeParse, `null`, "empty"},
		{"cut off", `{"jsonrpc":"2.0","id":1`, CodeParse, `null`, "byte 23"},
		{"trailing data", `{"jsonrpc":"2.0","id":1,"method":"a"}{}`, CodeParse, `null`, "trailing"},
		{"byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"a"}`, CodeParse, `null`, "byte 0"},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", CodeParse, `null`, "UTF-8"},
		{"lone surrogate", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"\ud83d"}}`, CodeParse, `null`, "surrogate"},
		{"too deep", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":` + deep(MaxDepth-1) + `}}`, CodeParse, `1`, "128"},
		{"much too deep", deep(20000), CodeInvalidRequest, `null`, "batches"},
		{"much too deep within", `{"a":` + deep(20000) + `}`, CodeParse, `null`, "128"},
		{"string", `"x"`, CodeInvalidRequest, `null`, "object"},
		{"number", `1`, CodeInvalidRequest, `null`, "object"},
		{"null", `null`, CodeInvalidRequest, `null`, "object"},

		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, CodeInvalidRequest, `null`, "batches"},
		{"batch of two", `[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","id":2,"method":"tools/call"}]`, CodeInvalidRequest, `null`, "batches"},
		{"batch after white space", " \r\n\t[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}]", CodeInvalidRequest, `null`, "batches"},
		{"empty batch", `[]`, CodeInvalidRequest, `null`, "batches"},
		{"nested batch", `[[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]]`, CodeInvalidRequest, `null`, "batches"},
		{"batch of notifications", `[{"jsonrpc":"2.0","method":"notifications/initialized"}]`, CodeInvalidRequest, `null`, "batches"},
		{"broken batch", `[{]`, CodeInvalidRequest, `null`, "batches"},

		{"no version", `{"id":1,"method":"a"}`, CodeInvalidRequest, `1`, "jsonrpc"},
		{"other version", `{"jsonrpc":"1.0","id":1,"method":"a"}`, CodeInvalidRequest, `1`, "jsonrpc"},
		{"version as number", `{"jsonrpc":2.0,"id":1,"method":"a"}`, CodeInvalidRequest, `1`, "jsonrpc"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, CodeInvalidRequest, `null`, "id"},
		{"id fraction", `{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}`, CodeInvalidRequest, `null`, "id"},
		{"id 1.0", `{"jsonrpc":"2.0","id":1.0,"method":"tools/list"}`, CodeInvalidRequest, `null`, "id"},
		{"id exponent", `{"jsonrpc":"2.0","id":1e3,"method":"tools/list"}`, CodeInvalidRequest, `null`, "id"},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, CodeInvalidRequest, `null`, "id"},
		{"id array", `{"jsonrpc":"2.0","id":[1],"method":"tools/list"}`, CodeInvalidRequest, `null`, "id"},
		{"id bool", `{"jsonrpc":"2.0","id":true,"method":"tools/list"}`, CodeInvalidRequest, `null`, "id"},
		{"method number", `{"jsonrpc":"2.0","method":1,"id":7}`, CodeInvalidRequest, `7`, "method"},
		{"method empty", `{"jsonrpc":"2.0","method":"","id":7}`, CodeInvalidRequest, `7`, "method"},
		{"params array", `{"jsonrpc":"2.0","id":"x","method":"a","params":[]}`, CodeInvalidRequest, `"x"`, "params"},
		{"params null", `{"jsonrpc":"2.0","id":"x","method":"a","params":null}`, CodeInvalidRequest, `"x"`, "params"},
		{"error string", `{"jsonrpc":"2.0","id":1,"error":"x"}`, CodeInvalidRequest, `1`, "error"},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"a","result":{}}`, CodeInvalidRequest, `1`, "no result"},
		{"method and error", `{"jsonrpc":"2.0","id":1,"method":"a","error":{}}`, CodeInvalidRequest, `1`, "no result"},
		{"nothing", `{"jsonrpc":"2.0","id":1}`, CodeInvalidRequest, `1`, "needs a method"},
		{"both", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, CodeInvalidRequest, `1`, "needs a method"},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, CodeInvalidRequest, `null`, "id"},
		{"error without id", `{"jsonrpc":"2.0","error":{}}`, CodeInvalidRequest, `null`, "id"},
		{"error with id null", `{"jsonrpc":"2.0","id":null,"error":{}}`, CodeInvalidRequest, `null`, "id"},

		{"duplicate method", `{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}`, CodeInvalidRequest, `null`, "duplicate member name at /method"},
		{"duplicate params", `{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}`, CodeInvalidRequest, `null`, "at /params"},
		{"duplicate id", `{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}`, CodeInvalidRequest, `null`, "at /id"},
		{"duplicate name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"alpha__read","name":"alpha__delete"}}`, CodeInvalidRequest, `null`, "at /params/name"},
		{"duplicate by escape", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"alpha__read","na\u006de":"alpha__delete"}}`, CodeInvalidRequest, `null`, "at /params/name"},
		{"duplicate argument", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"path":"/public/a","path":"/etc/shadow"}}}`, CodeInvalidRequest, `null`, "at /params/arguments/path"},
		{"duplicate deep down", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[{"y":[{"z":1,"z":2}]}]}}`, CodeInvalidRequest, `null`, "at /params/x/0/y/0/z"},

		{"METHOD beside method", `{"jsonrpc":"2.0","id":1,"method":"tools/list","METHOD":"tools/call"}`, CodeInvalidRequest, `1`, `"METHOD"`},
		{"METHOD before method", `{"METHOD":"tools/call","jsonrpc":"2.0","id":1,"method":"tools/list"}`, CodeInvalidRequest, `1`, `"METHOD"`},
		{"Params beside params", `{"jsonrpc":"2.0","id":1,"method":"a","params":{},"Params":{}}`, CodeInvalidRequest, `1`, `"Params"`},
		{"Method alone", `{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":{"name":"a"}}`, CodeInvalidRequest, `1`, `"Method"`},
		{"ID", `{"jsonrpc":"2.0","ID":1,"method":"a"}`, CodeInvalidRequest, `null`, `"ID"`},
		{"long s", `{"jsonrpc":"2.0","id":1,"method":"a","paramſ":{}}`, CodeInvalidRequest, `1`, "only in case"},
		{"escaped variant", `{"jsonrpc":"2.0","id":1,"method":"a","\u004dethod":"b"}`, CodeInvalidRequest, `1`, `"Method"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, e := Parse([]byte(c.in))
			if m != nil || e == nil {
				t.Fatalf("Parse accepted %s", c.in)
			}
			if e.Code != c.code || string(e.ID.Raw()) != c.id || !strings.Contains(e.Message, c.says) {
				t.Errorf("got code %d, id %s, %q; want %d, %s, …%s…", e.Code, e.ID.Raw(), e.Message, c.code, c.id, c.says)
			}
		})
	}
}

func TestParseAccepts(t *testing.T) {
	deepest := strings.Repeat("[", MaxDepth-2) + strings.Repeat("]", MaxDepth-2)
	cases := []struct {
		name, in string
		kind     Kind
		out      string // "" means in
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, Request, ""},
		{"white space around", " \r\n\t{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n ", Request, `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"white space within", "{ \"jsonrpc\" : \"2.0\" ,\n\"id\" : 1 , \"method\"\t: \"ping\" , \"params\" : { \"a\" : 1 } }", Request, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{ "a" : 1 }}`},
		{"other order", `{"params":{"a":1},"method":"ping","id":1,"jsonrpc":"2.0"}`, Request, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1}}`},
		{"escaped names", `{"json\u0072pc":"2.0","\u0069d":1,"method":"p\u0069ng"}`, Request, `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, Notification, ""},
		{"call without id", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}`, Notification, ""},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{}}`, Response, ""},
		{"result null", `{"jsonrpc":"2.0","id":1,"result":null}`, Response, ""},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`, Response, ""},
		{"unknown members", `{"jsonrpc":"2.0","id":1,"method":"a","trace":{"x":1},"\u0061\"":2}`, Request, `{"jsonrpc":"2.0","id":1,"method":"a","trace":{"x":1},"a\"":2}`},
		{"deepest", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":` + deepest + `}}`, Request, ""},
		{"numbers", `{"jsonrpc":"2.0","id":9007199254740993,"method":"a","params":{"id":9007199254740993,"big":12345678901234567890123,"min":-9223372036854775808,"f":1.0,"e":1E2,"z":-0,"d":0.1000000000000000055}}`, Request, ""},
		{"escapes kept", `{"jsonrpc":"2.0","id":"a\u00e9","method":"a","params":{"\u0061":"\/\u0041","e":"\\\"{[","u":"é"}}`, Request, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, e := Parse([]byte(c.in))
			if e != nil {
				t.Fatal(e)
			}
			want := c.out
			if want == "" {
				want = c.in
			}
			if got := string(m.Append(nil)); got != want || m.Kind() != c.kind {
				t.Errorf("got kind %d %s; want %d %s", m.Kind(), got, c.kind, want)
			}
		})
	}
}

func TestIDComesBackAsItWas(t *testing.T) {
	long := `"` + strings.Repeat("x", 10<<10) + `"`
	seen := map[ID]string{}
	for _, id := range []string{`0`, `"0"`, `"1"`, `1`, `9007199254740993`, `-1`, `"a\u00e9"`, `""`, long} {
		m, e := Parse([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"}`))
		if e != nil {
			t.Fatalf("id %.40s: %v", id, e)
		}
		if m.Kind() != Request || string(m.ID.Raw()) != id {
			t.Errorf("id %.40s came back as %.40s, kind %d", id, m.ID.Raw(), m.Kind())
		}
		if other, taken := seen[m.ID]; taken {
			t.Errorf("ids %.40s and %.40s are equal", id, other)
		}
		seen[m.ID] = id
		answer := string((&Error{ID: m.ID, Code: CodeForbidden, Message: "no"}).Append(nil))
		if want := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":403,"message":"no"}}`; answer != want {
			t.Errorf("error is %.80s, want %.80s", answer, want)
		}
	}
}

func TestErrorAppend(t *testing.T) {
	e := &Error{Code: CodeForbidden, Message: "a\"\n\xffb", Data: jsontext.Value(`{"reasons":[]}`)}
	want := `{"jsonrpc":"2.0","id":null,"error":{"code":403,"message":"a\"\n` + "\ufffd" + `b","data":{"reasons":[]}}}`
	if got := string(e.Append(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErr(t *testing.T) {
	for in, want := range map[string]*Error{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                              nil,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m\u0061","data":[1.0]}}`: {ID: NumberID(1), Code: CodeInvalidParams, Message: "ma", Data: jsontext.Value("[1.0]")},
		`{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":7}}`:                         {ID: NumberID(1), Code: CodeInternal},
		`{"jsonrpc":"2.0","id":null,"error":{}}`:                                            {Code: CodeInternal},
	} {
		m, e := ParseBackend([]byte(in))
		if e != nil {
			t.Fatal(e)
		}
		if got := m.Err(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", in, got, want)
		}
	}
}

func TestParseBackend(t *testing.T) {
	cases := []struct {
		name, in string
		out      string // "" means refused
		kind     Kind
	}{
		{"lone surrogate", `{"jsonrpc":"2.0","id":1,"result":{"text":"cut \ud83d"}}`, `{"jsonrpc":"2.0","id":1,"result":{"text":"cut \ud83d"}}`, Response},
		{"raw invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"\xed\xa0\xbd\"}}", "", 0},
		{"error with id null", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`, Response},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}`, "", 0},
		{"result with id null", `{"jsonrpc":"2.0","id":null,"result":{}}`, "", 0},
		{"request with id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "", 0},
		{"float id", `{"jsonrpc":"2.0","id":1.00,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, Response},
		{"fraction id", `{"jsonrpc":"2.0","id":1.50,"result":{}}`, "", 0},
		{"string id with a point", `{"jsonrpc":"2.0","id":"1.0","result":{}}`, `{"jsonrpc":"2.0","id":"1.0","result":{}}`, Response},
		{"duplicate", `{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[{}]}}`, "", 0},
		{"duplicate beside a surrogate", `{"jsonrpc":"2.0","id":1,"result":{"a":"\ud83d","b":1,"b":2}}`, "", 0},
		{"case variant", `{"jsonrpc":"2.0","id":1,"result":{},"Result":{"tools":[]}}`, "", 0},
		{"batch", `[{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}]`, "", 0},
		{"not JSON", `garbage`, "", 0},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`, Notification},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, e := ParseBackend([]byte(c.in))
			if c.out == "" {
				if m != nil || e == nil {
					t.Fatalf("ParseBackend accepted %s", c.in)
				}
				return
			}
			if e != nil {
				t.Fatal(e)
			}
			if got := string(m.Append(nil)); got != c.out || m.Kind() != c.kind {
				t.Errorf("got kind %d %s; want %d %s", m.Kind(), got, c.kind, c.out)
			}
		})
	}
}
