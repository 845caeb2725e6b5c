package mcp

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestReadCall(t *testing.T) {
	params := parsed(t, request("tools/call", `{ "task":{"ttl":5}, "na\u006de" : "alpha__echo" , "arguments":{ "id":9007199254740993,"f":1.0 } , "_meta":{"com.example/trace":"1"} }`)).Params
	c, e := ReadCall(params)
	if e != nil {
		t.Fatal(e)
	}
	if c.Name != "alpha__echo" || string(c.Arguments) != `{ "id":9007199254740993,"f":1.0 }` {
		t.Errorf("got %q %s", c.Name, c.Arguments)
	}
	before := string(params)
	renamed := c.Params("echo")
	if want := strings.Replace(before, `"alpha__echo"`, `"echo"`, 1); string(renamed) != want {
		t.Errorf("renamed to %s, want %s", renamed, want)
	}
	changed := c.Params("e\"o", Set{Name: "_meta", Value: jsontext.Value(`{"a":1}`)}, Set{Name: "task"})
	if want := `{ "na\u006de" : "e\"o" , "arguments":{ "id":9007199254740993,"f":1.0 } , "_meta":{"a":1} }`; string(changed) != want {
		t.Errorf("changed to %s, want %s", changed, want)
	}
	if string(params) != before {
		t.Errorf("the client's params became %s", params)
	}
}

func TestReadCallWithoutArguments(t *testing.T) {
	c, e := ReadCall(jsontext.Value(`{"name":""}`))
	if e != nil || c.Name != "" || c.Arguments != nil {
		t.Errorf("got %+v, %v", c, e)
	}
}

func TestReadCallRefuses(t *testing.T) {
	cases := []struct {
		params string
		code   int
	}{
		{``, CodeInvalidParams},
		{`{}`, CodeInvalidParams},
		{`{"name":null}`, CodeInvalidParams},
		{`{"name":["alpha__read"]}`, CodeInvalidParams},
		{`{"name":"a","arguments":null}`, CodeInvalidParams},
		{`{"name":"a","arguments":[]}`, CodeInvalidParams},
		{`{"name":"a","arguments":"{}"}`, CodeInvalidParams},
		{`{"name":"alpha__read","Name":"alpha__delete","arguments":{}}`, CodeInvalidRequest},
		{`{"Name":"alpha__delete","name":"alpha__read","arguments":{}}`, CodeInvalidRequest},
		{`{"NAME":"alpha__delete"}`, CodeInvalidRequest},
		{`{"name":"a","arguments":{},"Arguments":{"path":"/etc/shadow"}}`, CodeInvalidRequest},
		{`{"name":"a","argumentſ":{}}`, CodeInvalidRequest},
		{`{"name":"a","RequestState":"x"}`, CodeInvalidRequest},
		{`{"name":"a","inputresponses":{}}`, CodeInvalidRequest},
		{`{"name":"a","Task":{}}`, CodeInvalidRequest},
		{`{"name":"a","_Meta":{}}`, CodeInvalidRequest},
	}
	for _, c := range cases {
		var params jsontext.Value
		if c.params != "" {
			params = parsed(t, request("tools/call", c.params)).Params
		}
		if got, e := ReadCall(params); e == nil || e.Code != c.code {
			t.Errorf("%s: got %+v, %v; want code %d", c.params, got, e, c.code)
		}
	}
}

func TestReadList(t *testing.T) {
	cases := []struct {
		params string
		want   List
		code   int
	}{
		{``, List{}, 0},
		{`{}`, List{}, 0},
		{`{"cursor":""}`, List{HasCursor: true}, 0},
		{`{"cursor":"a\n"}`, List{Cursor: "a\n", HasCursor: true}, 0},
		{`{"cursor":null}`, List{}, CodeInvalidParams},
		{`{"cursor":1}`, List{}, CodeInvalidParams},
		{`{"Cursor":"a"}`, List{}, CodeInvalidRequest},
	}
	for _, c := range cases {
		var params jsontext.Value
		if c.params != "" {
			params = jsontext.Value(c.params)
		}
		got, e := ReadList(params)
		if code := codeOf(e); got != c.want || code != c.code {
			t.Errorf("%s: got %+v, code %d; want %+v, %d", c.params, got, code, c.want, c.code)
		}
	}
}

func TestReadInitialize(t *testing.T) {
	got, e := ReadInitialize(jsontext.Value(`{"protocolVersion":"2099-01-01","capabilities":{"roots":{}},"clientInfo":{"name":"n","version":"v","title":"t"},"x":1}`))
	if e != nil {
		t.Fatal(e)
	}
	if got.ProtocolVersion != "2099-01-01" || got.Client != (Implementation{"n", "v"}) || string(got.Capabilities) != `{"roots":{}}` {
		t.Errorf("got %+v", got)
	}
	for params, code := range map[string]int{
		`{"protocolVersion":"","capabilities":{},"clientInfo":{"name":"","version":""}}`:                         0,
		`{"capabilities":{},"clientInfo":{"name":"","version":""}}`:                                              CodeInvalidParams,
		`{"protocolVersion":1,"capabilities":{},"clientInfo":{"name":"","version":""}}`:                          CodeInvalidParams,
		`{"protocolVersion":"","clientInfo":{"name":"","version":""}}`:                                           CodeInvalidParams,
		`{"protocolVersion":"","capabilities":[],"clientInfo":{"name":"","version":""}}`:                         CodeInvalidParams,
		`{"protocolVersion":"","capabilities":{}}`:                                                               CodeInvalidParams,
		`{"protocolVersion":"","capabilities":{},"clientInfo":{"name":"n"}}`:                                     CodeInvalidParams,
		`{"protocolVersion":"","capabilities":{},"clientInfo":"n"}`:                                              CodeInvalidParams,
		`{"protocolVersion":"","capabilities":{},"clientInfo":{"name":"","version":""},"ProtocolVersion":"x"}`:   CodeInvalidRequest,
		`{"protocolVersion":"","capabilities":{},"clientInfo":{"name":"","version":"","VERSION":""}}`:            CodeInvalidRequest,
		`{"protocolVersion":"","capabilities":{},"clientInfo":{"name":"","version":""},"clientinfo":{"name":1}}`: CodeInvalidRequest,
	} {
		if _, e := ReadInitialize(jsontext.Value(params)); codeOf(e) != code {
			t.Errorf("%s: got %v, want code %d", params, e, code)
		}
	}
}

func codeOf(e *Error) int {
	if e == nil {
		return 0
	}
	return e.Code
}
