package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// meaning is what another JSON parser makes of b, numbers as they are written.
func meaning(t *testing.T, b []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", b, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Fatalf("encoding/json finds more than one value in %q", b)
	}
	return v
}

func object(t *testing.T, b []byte) map[string]any {
	t.Helper()
	v, ok := meaning(t, b).(map[string]any)
	if !ok {
		t.Fatalf("encoding/json finds no object in %q", b)
	}
	return v
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s is %#v, but means %#v", what, got, want)
	}
}

// sameField holds that a field is set from the member of exactly that name.
func sameField(t *testing.T, key string, got jsontext.Value, whole map[string]any) {
	t.Helper()
	want, has := whole[key]
	if has != (got != nil) {
		t.Fatalf("%s is %q, but the message has it: %t", key, got, has)
	}
	if has {
		same(t, key, meaning(t, got), want)
	}
}

// FuzzParse holds that what is parsed and written again means the same to
// another parser, and that no member but the one of the exact name sets a
// field.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"alpha__read","arguments":{"a":[1,{"b":null}]},"_meta":{"progressToken":"t"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"alpha__read","Name":"alpha__delete"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"na\u006de":"a","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","METHOD":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{"x":1}}`,
		`{"jsonrpc":"2.0","id":"a\u00e9","result":{"n":9007199254740993,"f":1.0,"e":1E2,"z":-0}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\ud83d"}}`,
		` { "jsonrpc" : "2.0" , "id" : 1.0 , "result" : "\"}\\" , "x" : [ ] } `,
		`[{"jsonrpc":"2.0","id":1,"method":"a"}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		data := bytes.Clone(in)
		backend, _ := ParseBackend(data)
		m, _ := Parse(data)
		if m != nil {
			checkMessage(t, m, in)
			if backend == nil || !bytes.Equal(backend.Append(nil), m.Append(nil)) {
				t.Fatalf("ParseBackend reads %q as %+v", in, backend)
			}
		}
		if backend != nil {
			got, want := object(t, backend.Append(nil)), object(t, in)
			if m == nil { // 1.0 became 1
				delete(got, "id")
				delete(want, "id")
			}
			same(t, "backend message", got, want)
		}
		if !bytes.Equal(data, in) {
			t.Fatalf("the input became %q", data)
		}
	})
}

func checkMessage(t *testing.T, m *Message, in []byte) {
	t.Helper()
	whole := object(t, in)
	same(t, "message", object(t, m.Append(nil)), whole)
	sameField(t, "params", m.Params, whole)
	sameField(t, "result", m.Result, whole)
	sameField(t, "error", m.Error, whole)
	method, _ := whole["method"].(string)
	same(t, "method", m.Method, method)
	if _, has := whole["id"]; has == m.ID.IsZero() {
		t.Fatalf("id is %s, but the message has one: %t", m.ID.Raw(), has)
	}
	if m.Params == nil {
		return
	}
	params := whole["params"].(map[string]any)
	if meta, e := ReadMeta(m.Params); e == nil {
		sameField(t, "_meta", meta.Raw, params)
	}
	c, e := ReadCall(m.Params)
	if e != nil {
		return
	}
	same(t, "name", c.Name, params["name"])
	sameField(t, "arguments", c.Arguments, params)
	params["name"] = "other"
	same(t, "renamed call", meaning(t, c.Params("other")), meaning(t, mustJSON(t, params)))
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzEdit holds that an edit means what it says, and that without changes it
// returns the same bytes.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{ "a" : 1 , "b":{"a":2}, "\u0061\"":[] }`), "a", "b")
	f.Add([]byte("{\n}"), "", "x")
	f.Add([]byte(`{"a":"{","b":1}`), "b", "a")
	f.Fuzz(func(t *testing.T, obj []byte, set, removed string) {
		if got, err := Edit(obj); err == nil && !bytes.Equal(got, obj) {
			t.Fatalf("without changes %q became %q", obj, got)
		}
		got, err := Edit(obj, Set{Name: set, Value: jsontext.Value(`{"new":1.0}`)}, Set{Name: removed})
		if err != nil || !utf8.ValidString(set) {
			return
		}
		if _, err := Members(got); err != nil {
			t.Fatalf("%q became %q: %v", obj, got, err)
		}
		want := object(t, obj)
		want[set] = map[string]any{"new": json.Number("1.0")}
		delete(want, removed)
		same(t, "edited object", object(t, got), want)
	})
}

// FuzzScan holds that bytes nobody has judged cannot make the scanner leave
// them or loop.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"a"`, `{"a":"\`, `[1,,]`, `{,:}`, `{"a":]}`, `[`, `{"`, `[{]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		members, _ := Split(b)
		elements, _ := Elements(b)
		if len(members)+len(elements) > len(b) {
			t.Fatalf("%d members and %d elements in %q", len(members), len(elements), b)
		}
		_, _ = edit(b, []Set{{Name: "a", Value: jsontext.Value("1")}})
	})
}

// readPlainly reads a stream as the standard describes it, at once and without
// regard to memory.
func readPlainly(in string) (events []Event, rest bool) {
	in = strings.TrimPrefix(in, "\ufeff")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	var e Event
	var data []string
	lines := strings.Split(in, "\n")
	for i, line := range lines {
		last := i == len(lines)-1
		if line == "" && !last {
			if data != nil {
				e.Data = []byte(strings.Join(data, "\n"))
				events = append(events, e)
			}
			e, data, rest = Event{ID: e.ID}, nil, false
			continue
		}
		if line == "" || line[0] == ':' {
			continue
		}
		rest = true
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "data":
			data = append(data, value)
		case name == "event":
			e.Name = value
		case name == "id" && !strings.Contains(value, "\x00"):
			e.ID = value
		case name == "retry" && strings.Trim(value, "0123456789") == "":
			if ms, err := strconv.Atoi(value); err == nil && ms <= 9_223_372_036_854 {
				e.Retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	if joined := strings.Join(data, "\n"); rest && isWholeObject(jsontext.Value(joined)) {
		e.Data = []byte(joined)
		return append(events, e), false
	}
	return events, rest
}

// FuzzEventReader holds that a stream gives the events that the standard
// describes, however it is cut.
func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{
		"event: message\r\ndata: {\"a\":\r\ndata: \"caf\xc3\xa9\"}\r\n\r\n",
		"\ufeffid: 1\rretry: 20\rdata: a\r\rdata\r\r: x\r", "data: {\"a\":1}", "data: a\n\ndata: {", "\xef\xbbdata: a\n\n", "\r\n\r\n\n\r",
	} {
		f.Add(seed, []byte{1, 2, 3})
	}
	f.Fuzz(func(t *testing.T, in string, cuts []byte) {
		want, rest := readPlainly(in)
		wantErr := io.EOF
		if rest {
			wantErr = io.ErrUnexpectedEOF
		}
		source := &chunks{err: io.EOF}
		left := in
		for _, c := range cuts {
			n := min(int(c), len(left))
			source.list = append(source.list, left[:n])
			left = left[n:]
		}
		source.list = append(source.list, left)
		for _, src := range []io.Reader{strings.NewReader(in), source} {
			got, err := readAll(NewEventReader(src, 1<<20))
			if !equalEvents(got, want) || err != wantErr {
				t.Fatalf("%q cut at %v: got %q, %v; want %q, %v", in, cuts, got, err, want, wantErr)
			}
		}
	})
}

func TestEventsComeThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[^\r\n\x00]*`)
		event := rapid.Custom(func(t *rapid.T) Event {
			return Event{
				ID:    text.Draw(t, "id"),
				Name:  text.Filter(func(s string) bool { return s != "" }).Draw(t, "name"),
				Data:  []byte(rapid.StringMatching(`([^\r]|\n)*`).Draw(t, "data")),
				Retry: time.Duration(rapid.IntRange(0, 1<<30).Draw(t, "retry")) * time.Millisecond,
			}
		})
		want := rapid.SliceOf(event).Draw(t, "events")
		var stream bytes.Buffer
		w := NewEventWriter(&stream, nil)
		id := ""
		for i := range want {
			if err := w.Write(want[i]); err != nil {
				t.Fatal(err)
			}
			if err := w.Comment(text.Draw(t, "comment")); err != nil {
				t.Fatal(err)
			}
			if want[i].ID == "" {
				want[i].ID = id // the stream's id stays until the next one
			}
			id = want[i].ID
		}
		got, err := readAll(NewEventReader(&stream, 1<<20))
		if !equalEvents(got, want) || err != io.EOF {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}

func TestHeaderValuesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		line := EncodeHeader(value)
		if _, err := plainValue(line); err != nil || strings.Trim(line, " \t") != line {
			t.Fatalf("%q cannot stand in a header", line)
		}
		if back, err := DecodeHeader(line); err != nil || back != value {
			t.Fatalf("%q came back as %q, %v", value, back, err)
		}
	})
}
