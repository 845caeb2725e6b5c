package mcp

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestMembers(t *testing.T) {
	obj := jsontext.Value(" { \"a\" : [1, {\"b\":\"}\\\"]\"}] ,\n\"\\u0062\\n\":-1.5e3,\"\":{} , \"t\":true,\"n\":null,\"e\":\"\\\\\",\"f\":\"\\\\\\\"\" } ")
	members, err := Members(obj)
	if err != nil {
		t.Fatal(err)
	}
	want := []Member{
		{Name: "a", Value: jsontext.Value(`[1, {"b":"}\"]"}]`)},
		{Name: "b\n", Value: jsontext.Value(`-1.5e3`)},
		{Name: "", Value: jsontext.Value(`{}`)},
		{Name: "t", Value: jsontext.Value(`true`)},
		{Name: "n", Value: jsontext.Value(`null`)},
		{Name: "e", Value: jsontext.Value(`"\\"`)},
		{Name: "f", Value: jsontext.Value(`"\\\""`)},
	}
	if len(members) != len(want) {
		t.Fatalf("got %d members, want %d", len(members), len(want))
	}
	for i, m := range members {
		if m.Name != want[i].Name || string(m.Value) != string(want[i].Value) {
			t.Errorf("member %d is %q: %s, want %q: %s", i, m.Name, m.Value, want[i].Name, want[i].Value)
		}
	}
	if got := Get(members, "n"); string(got) != "null" {
		t.Errorf("Get n is %s", got)
	}
	if got := Get(members, "N"); got != nil {
		t.Errorf("Get N is %s", got)
	}
}

func TestMembersRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1)
	for _, in := range []string{``, ` `, `[]`, `1`, `null`, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1}x`, `{"a":1}{}`,
		`{"a":1,"a":2}`, `{"a":{"b":1,"\u0062":2}}`, "{\"a\":\"\xc3\"}", `{"a":01}`, `{a:1}`, `{"a":'b'}`, `{"a":1 "b":2}`, deep} {
		if members, err := Members(jsontext.Value(in)); err == nil {
			t.Errorf("Members accepted %.60s: %v", in, members)
		}
	}
	atLimit := strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth)
	if _, err := Members(jsontext.Value(atLimit)); err != nil {
		t.Errorf("Members refused an object of %d levels: %v", MaxDepth, err)
	}
}

func TestElements(t *testing.T) {
	elements, err := Elements(jsontext.Value(` [ 1 , "a,]" ,[2,[]], {"a":[1]} ] `))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`1`, `"a,]"`, `[2,[]]`, `{"a":[1]}`}
	if len(elements) != len(want) {
		t.Fatalf("got %d elements, want %d", len(elements), len(want))
	}
	for i := range want {
		if string(elements[i]) != want[i] {
			t.Errorf("element %d is %s, want %s", i, elements[i], want[i])
		}
	}
	if none, err := Elements(jsontext.Value(`[ ]`)); err != nil || len(none) != 0 {
		t.Errorf("Elements of an empty array: %v, %v", none, err)
	}
	if _, err := Elements(jsontext.Value(`{}`)); err == nil {
		t.Error("Elements accepted an object")
	}
}

func TestEdit(t *testing.T) {
	v := func(s string) jsontext.Value { return jsontext.Value(s) }
	cases := []struct {
		name, in string
		sets     []Set
		want     string
	}{
		{"nothing", `{ "a" : 1 }`, nil, `{ "a" : 1 }`},
		{"replace", `{ "a" : 1 , "b":2}`, []Set{{"a", v(`"x"`)}}, `{ "a" : "x" , "b":2}`},
		{"replace by escaped name", `{"\u0061":1}`, []Set{{"a", v(`2`)}}, `{"\u0061":2}`},
		{"add", `{"a":1 }`, []Set{{"b", v(`2`)}}, `{"a":1,"b":2 }`},
		{"add to empty", "{ }\n", []Set{{"b", v(`2`)}, {"c", v(`3`)}}, "{\"b\":2,\"c\":3 }\n"},
		{"add odd name", `{}`, []Set{{"\"\n", v(`1`)}}, `{"\"\n":1}`},
		{"another case is another name", `{"A":1}`, []Set{{"a", v(`2`)}}, `{"A":1,"a":2}`},
		{"remove only", `{ "a":1 }`, []Set{{"a", nil}}, `{ }`},
		{"remove first", `{"a":1, "b":2}`, []Set{{"a", nil}}, `{ "b":2}`},
		{"remove middle", "{\"a\":1,\n\"b\":2,\n\"c\":3}", []Set{{"b", nil}}, "{\"a\":1,\n\"c\":3}"},
		{"remove last", `{"a":1, "b":2 }`, []Set{{"b", nil}}, `{"a":1 }`},
		{"remove two first", `{"a":1,"b":2,"c":3}`, []Set{{"a", nil}, {"b", nil}}, `{"c":3}`},
		{"remove all, add", `{"a":1,"b":2}`, []Set{{"a", nil}, {"b", nil}, {"c", v(`3`)}}, `{"c":3}`},
		{"remove absent", `{"a":1}`, []Set{{"b", nil}}, `{"a":1}`},
		{"last counts", `{"a":1}`, []Set{{"a", nil}, {"a", v(`2`)}, {"b", v(`1`)}, {"b", v(`2`)}, {"c", v(`1`)}, {"c", nil}}, `{"a":2,"b":2}`},
		{"value like a brace", `{"a":"{"}`, []Set{{"b", v(`1`)}}, `{"a":"{","b":1}`},
		{"numbers stay", `{"n":9007199254740993,"f":1.0,"x":0}`, []Set{{"x", v(`1`)}}, `{"n":9007199254740993,"f":1.0,"x":1}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := v(c.in)
			got, err := Edit(in, c.sets...)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want || string(in) != c.in {
				t.Errorf("got %s from %s, want %s", got, in, c.want)
			}
		})
	}
	surrogate := v(`{"name":"a","description":"cut \ud83d"}`)
	if got, err := Edit(surrogate, Set{"name", v(`"b"`)}); err != nil || string(got) != `{"name":"b","description":"cut \ud83d"}` {
		t.Errorf("beside a lone surrogate: %s, %v", got, err)
	}
	if _, err := Edit(v(`{"a":1,"a":2}`)); err == nil {
		t.Error("Edit accepted a duplicate name")
	}
	if _, err := Edit(v(`[]`)); err == nil {
		t.Error("Edit accepted an array")
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{`""`: "", `"a\u00e9\/"`: "aé/", `"é"`: "é"} {
		if got, ok := Text(jsontext.Value(in)); !ok || got != want {
			t.Errorf("Text of %s is %q, %t", in, got, ok)
		}
	}
	for _, in := range []string{``, `1`, `null`, `{}`, `"`, `"\ud83d"`, `"a" `} {
		if got, ok := Text(jsontext.Value(in)); ok {
			t.Errorf("Text of %s is %q", in, got)
		}
	}
}
