package mcp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// chunks is a source that gives one chunk for each read, then err.
type chunks struct {
	list []string
	err  error
}

func (c *chunks) Read(p []byte) (int, error) {
	for len(c.list) > 0 && c.list[0] == "" {
		c.list = c.list[1:]
	}
	if len(c.list) == 0 {
		return 0, c.err
	}
	n := copy(p, c.list[0])
	c.list[0] = c.list[0][n:]
	return n, nil
}

func readAll(r *EventReader) ([]Event, error) {
	var events []Event
	for {
		e, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func equalEvents(a, b []Event) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Name != b[i].Name || a[i].Retry != b[i].Retry || !bytes.Equal(a[i].Data, b[i].Data) {
			return false
		}
	}
	return true
}

func TestEventReader(t *testing.T) {
	const object = `{"jsonrpc":"2.0","id":1,"result":{}}`
	data := func(s string) []byte { return []byte(s) }
	cases := []struct {
		name, in string
		want     []Event
		err      error
	}{
		{"empty", "", nil, io.EOF},
		{"LF", "data: a\n\ndata: b\n\n", []Event{{Data: data("a")}, {Data: data("b")}}, io.EOF},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []Event{{Data: data("a")}, {Data: data("b")}}, io.EOF},
		{"CR", "data: a\r\rdata: b\r\r", []Event{{Data: data("a")}, {Data: data("b")}}, io.EOF},
		{"mixed", "data: a\r\n\rdata: b\n\r\n", []Event{{Data: data("a")}, {Data: data("b")}}, io.EOF},
		{"no space", "data:a\n\n", []Event{{Data: data("a")}}, io.EOF},
		{"two spaces", "data:  a\n\n", []Event{{Data: data(" a")}}, io.EOF},
		{"several lines", "data: a\ndata\ndata: b\n\n", []Event{{Data: data("a\n\nb")}}, io.EOF},
		{"comments", ": hi\n\n:\ndata: a\n: in between\n\n", []Event{{Data: data("a")}}, io.EOF},
		{"byte order mark", "\ufeffdata: a\n\n", []Event{{Data: data("a")}}, io.EOF},
		{"one mark only", "\ufeff\ufeffdata: a\n\ndata: b\n\n", []Event{{Data: data("b")}}, io.EOF},
		{"mark in the middle", "data: a\n\n\ufeffdata: b\n\n", []Event{{Data: data("a")}}, io.EOF},
		{"fields", "event: x\nid: 7\nretry: 1500\ndata: a\nother: y\ndataset: z\n\ndata: b\n\n", []Event{
			{ID: "7", Name: "x", Data: data("a"), Retry: 1500 * time.Millisecond}, {ID: "7", Data: data("b")}}, io.EOF},
		{"id without data", "id: 7\n\ndata: b\n\n", []Event{{ID: "7", Data: data("b")}}, io.EOF},
		{"empty data", "id: 7\ndata:\n\n", []Event{{ID: "7"}}, io.EOF},
		{"id reset", "id: 7\n\nid\ndata: b\n\n", []Event{{Data: data("b")}}, io.EOF},
		{"id with NUL", "id: 7\nid: 8\x00\ndata: b\n\n", []Event{{ID: "7", Data: data("b")}}, io.EOF},
		{"odd retry", "retry: 1s\nretry: -1\nretry:\nretry: 99999999999999999999\ndata: b\n\n", []Event{{Data: data("b")}}, io.EOF},
		{"name without data", "event: x\n\ndata: b\n\n", []Event{{Data: data("b")}}, io.EOF},
		{"colon in the value", "data: a: b\n\n", []Event{{Data: data("a: b")}}, io.EOF},

		{"object without empty line", "data: " + object + "\n", []Event{{Data: data(object)}}, io.EOF},
		{"object without line end", "id: 3\ndata: " + object, []Event{{ID: "3", Data: data(object)}}, io.EOF},
		{"object in two lines without line end", "data: {\"a\":\ndata: 1}", []Event{{Data: data("{\"a\":\n1}")}}, io.EOF},
		{"object cut off", "data: " + object[:len(object)-1], nil, io.ErrUnexpectedEOF},
		{"text cut off", "data: 12", nil, io.ErrUnexpectedEOF},
		{"name cut off", "event: x\n", nil, io.ErrUnexpectedEOF},
		{"comment cut off", "data: a\n\n: x", []Event{{Data: data("a")}}, io.EOF},
	}
	for _, c := range cases {
		for _, one := range []bool{false, true} {
			var src io.Reader = strings.NewReader(c.in)
			if one {
				src = iotest.OneByteReader(src)
			}
			r := NewEventReader(src, 1<<10)
			got, err := readAll(r)
			if !equalEvents(got, c.want) || err != c.err {
				t.Errorf("%s (bytewise %t): got %q, %v; want %q, %v", c.name, one, got, err, c.want, c.err)
			}
			if _, again := r.Next(); again != c.err {
				t.Errorf("%s: the error became %v", c.name, again)
			}
		}
	}
}

// The chunks are those of a report about a parser that knew only two LF.
func TestEventReaderSplitAnywhere(t *testing.T) {
	list := []string{
		"event: message\r", "\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\r\n",
		"data: \"result\":{\"content\":[{\"type\":\"text\",\"text\":\"caf\xc3", "\xa9\"}]}}\r\n\r", "\n",
	}
	r := NewEventReader(&chunks{list: list, err: io.EOF}, 1<<20)
	got, err := readAll(r)
	if err != io.EOF || len(got) != 1 || got[0].Name != "message" {
		t.Fatalf("got %q, %v", got, err)
	}
	m, e := ParseBackend(got[0].Data)
	if e != nil {
		t.Fatal(e)
	}
	if want := `{"content":[{"type":"text","text":"café"}]}`; string(m.Result) != want {
		t.Errorf("result is %s, want %s", m.Result, want)
	}
}

// An event is due at its last byte, whatever its line ends are: the source here
// fails the test when it is asked for more.
func TestEventReaderDoesNotWait(t *testing.T) {
	for _, in := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r", "data: a\r\n\r\n", "\xef\xbb\xbfdata: a\n\n"} {
		r := NewEventReader(io.MultiReader(iotest.OneByteReader(strings.NewReader(in)), failing{t}), 100)
		if e, err := r.Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: got %q, %v", in, e.Data, err)
		}
	}
}

type failing struct{ t *testing.T }

func (f failing) Read([]byte) (int, error) {
	f.t.Error("the reader asked for more than the event")
	return 0, io.EOF
}

func TestEventReaderBrokenSource(t *testing.T) {
	broken := errors.New("connection reset")
	r := NewEventReader(&chunks{list: []string{"data: a\n\ndata: {\"a\":1}\n"}, err: broken}, 100)
	got, err := readAll(r)
	if err != broken || len(got) != 2 || string(got[1].Data) != `{"a":1}` {
		t.Errorf("got %q, %v", got, err)
	}
	r = NewEventReader(&chunks{list: []string{"data: {\"a\":"}, err: broken}, 100)
	if got, err := readAll(r); err != broken || got != nil {
		t.Errorf("got %q, %v", got, err)
	}
	idle := NewEventReader(&chunks{}, 100)
	if _, err := idle.Next(); err != io.ErrNoProgress {
		t.Errorf("a source that gives nothing: %v", err)
	}
}

func TestEventReaderLastID(t *testing.T) {
	r := NewEventReader(strings.NewReader("id: 1\nretry: 20\ndata: a\n\nid: 2\n\nid: 3\ndata: cut"), 100)
	if r.LastID() != "" || r.Retry() != 0 {
		t.Errorf("at the start: %q, %v", r.LastID(), r.Retry())
	}
	got, err := readAll(r)
	if len(got) != 1 || err != io.ErrUnexpectedEOF {
		t.Fatalf("got %q, %v", got, err)
	}
	if r.LastID() != "2" || r.Retry() != 20*time.Millisecond {
		t.Errorf("at the end: %q, %v; want 2 and 20ms", r.LastID(), r.Retry())
	}
}

func TestEventReaderLimit(t *testing.T) {
	const limit = 100_000
	fits := "data: " + strings.Repeat("a", limit-6)
	cases := []struct {
		name, in string
		events   int
		err      error
	}{
		{"at the limit", fits + "\n\n" + fits + "\n\n", 2, io.EOF},
		{"above", "data: x\n\n" + fits + "a\n\n", 1, ErrEventTooLarge},
		{"never ending", "data: x\n\n" + fits + "aaaa", 1, ErrEventTooLarge},
		{"many lines", strings.Repeat("data: 0123456789\n", limit/16+1) + "\n", 0, ErrEventTooLarge},
		{"many comments", strings.Repeat(": 0123456789\n", limit/8) + "data: x\n\n", 1, io.EOF},
		{"comment in a full event", fits + "\n: comment\n\n", 1, io.EOF},
		{"large comment", "data: x\n\n:" + strings.Repeat("a", limit), 1, ErrEventTooLarge},
		{"whole object behind it", "data: {}\n" + fits, 0, ErrEventTooLarge},
	}
	for _, c := range cases {
		for _, src := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
			r := NewEventReader(src, limit)
			got, err := readAll(r)
			if len(got) != c.events || err != c.err {
				t.Errorf("%s: got %d events, %v; want %d, %v", c.name, len(got), err, c.events, c.err)
			}
			if _, again := r.Next(); again != c.err {
				t.Errorf("%s: the error became %v", c.name, again)
			}
			if len(r.buf) > limit+1 {
				t.Errorf("%s: the buffer grew to %d bytes", c.name, len(r.buf))
			}
		}
	}
}

func TestEventReaderGivesAwayItsEvents(t *testing.T) {
	r := NewEventReader(strings.NewReader("data: first\n\ndata: other\n\n"), 100)
	first, _ := r.Next()
	if _, err := r.Next(); err != nil || string(first.Data) != "first" {
		t.Errorf("the first event became %q, %v", first.Data, err)
	}
}

func TestEventWriter(t *testing.T) {
	var out bytes.Buffer
	flushed := 0
	w := NewEventWriter(&out, func() error { flushed++; return nil })
	for _, e := range []Event{
		{Data: []byte(`{"a":1}`)},
		{ID: "7", Retry: 1500 * time.Millisecond},
		{ID: "8", Name: "endpoint", Data: []byte("a\r\nb\rc\n")},
	} {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Comment(""); err != nil {
		t.Fatal(err)
	}
	want := "event: message\ndata: {\"a\":1}\n\n" +
		"id: 7\nretry: 1500\ndata: \n\n" +
		"id: 8\nevent: endpoint\ndata: a\ndata: b\ndata: c\ndata: \n\n" +
		": \n\n"
	if out.String() != want || flushed != 4 {
		t.Errorf("got %q, %d flushes; want %q, 4", out.String(), flushed, want)
	}
	out.Reset()
	for _, e := range []Event{{ID: "a\nb"}, {ID: "a\x00"}, {Name: "a\rb", Data: []byte("x")}} {
		if err := w.Write(e); err == nil || out.Len() != 0 {
			t.Errorf("%q: %v, wrote %q", e, err, out.String())
		}
	}
	if err := w.Comment("a\ndata: x"); err == nil || out.Len() != 0 {
		t.Errorf("comment: %v, wrote %q", err, out.String())
	}
}

func TestEventWriterErrors(t *testing.T) {
	broken := errors.New("broken pipe")
	w := NewEventWriter(io.Discard, func() error { return broken })
	if err := w.Write(Event{Data: []byte("x")}); !errors.Is(err, broken) {
		t.Errorf("flush: %v", err)
	}
	_, pipe := io.Pipe()
	pipe.CloseWithError(broken)
	if err := NewEventWriter(pipe, nil).Comment("x"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write: %v", err)
	}
}

func TestEventWriterConcurrently(t *testing.T) {
	var out bytes.Buffer
	w := NewEventWriter(&out, nil)
	large := []byte(`{"a":"` + strings.Repeat("x", 5*eventBuffer) + `"}`)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if w.Write(Event{Data: large}) != nil || w.Comment("alive") != nil {
					t.Error("write failed")
				}
			}
		})
	}
	wg.Wait()
	if cap(w.buf) > 4*eventBuffer {
		t.Errorf("the writer keeps %d bytes", cap(w.buf))
	}
	got, err := readAll(NewEventReader(&out, 1<<20))
	if err != io.EOF || len(got) != 200 {
		t.Fatalf("got %d events, %v", len(got), err)
	}
	for i := range got {
		if !bytes.Equal(got[i].Data, large) {
			t.Fatalf("event %d is %.40q", i, got[i].Data)
		}
	}
}
