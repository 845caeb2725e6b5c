package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrEventTooLarge ends a stream at an event beyond the reader's limit.
var ErrEventTooLarge = errors.New("event is larger than the limit")

// Event is one server-sent event.
type Event struct {
	ID    string        // read: the stream's last id so far; written: "" for none
	Name  string        // "" means message
	Data  []byte        // may be empty, as in the first event of a stream that can be polled
	Retry time.Duration // what the event says of reconnecting, in whole milliseconds; 0 for nothing
}

// The reader's buffer is this large, and grows only while a longer line passes
// through it.
const eventBuffer = 16 << 10

var byteOrderMark = []byte("\ufeff")

// EventReader reads server-sent events as the HTML standard defines them: a
// line ends in CR, LF or CRLF, an event in an empty line, wherever the reads
// cut it. An event is handed out at its last byte, never at the first one of
// what follows. It is for one goroutine.
//
// It departs from the standard in one point. An event that the stream's end
// cuts off before its empty line is still delivered if its data is one whole
// JSON object: some servers close without the empty line, and an object that
// is complete has lost nothing.
type EventReader struct {
	src      io.Reader
	srcErr   error
	limit    int
	buf      []byte
	from, to int // buf[from:to] is unread
	scanned  int // buf[from:scanned] holds no line end
	skipLF   bool
	started  bool

	event Event
	size  int // bytes of the event's lines so far
	retry time.Duration
	id    string // committed by the empty line
}

// NewEventReader returns a reader of src. The lines of one event, comments
// apart, may sum up to limit bytes, and so may a single comment.
func NewEventReader(src io.Reader, limit int) *EventReader {
	return &EventReader{src: src, limit: limit, buf: make([]byte, min(eventBuffer, limit+1))}
}

// LastID is the id for Last-Event-ID when the stream is resumed: that of the
// last whole event, also of one without data. "" means that there is none.
func (r *EventReader) LastID() string { return r.id }

// Retry is the last reconnection time that the stream asked for, or 0.
func (r *EventReader) Retry() time.Duration { return r.retry }

// Next returns the next event that has a data field; the caller owns it. At
// the end of the stream the error is io.EOF, or io.ErrUnexpectedEOF where that
// cut an event off, or the source's error, or ErrEventTooLarge. After an error
// it returns the same error again.
func (r *EventReader) Next() (Event, error) {
	for {
		line, err := r.line()
		switch {
		case err != nil:
			return r.end(err)
		case len(line) > 0:
			r.field(line)
			continue
		}
		if e, ok := r.dispatch(); ok {
			return e, nil
		}
	}
}

func (r *EventReader) dispatch() (Event, bool) {
	e, complete := r.event, r.event.Data != nil
	r.id = e.ID
	r.event, r.size = Event{ID: e.ID}, 0
	return e, complete
}

// end delivers what the end of the stream left over, if it is whole.
func (r *EventReader) end(err error) (Event, error) {
	if errors.Is(err, ErrEventTooLarge) {
		return Event{}, err
	}
	if r.from < r.to {
		r.field(r.buf[r.from:r.to])
		r.from = r.to
	}
	if isWholeObject(r.event.Data) {
		e, _ := r.dispatch()
		return e, nil
	}
	if err == io.EOF && r.size > 0 {
		err = io.ErrUnexpectedEOF
	}
	return Event{}, err
}

func isWholeObject(data jsontext.Value) bool {
	return data.Kind() == '{' && data.IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// field takes one line that is not empty into the event.
func (r *EventReader) field(line []byte) {
	if line[0] == ':' {
		return
	}
	r.size += len(line)
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if r.event.Data != nil {
			r.event.Data = append(r.event.Data, '\n')
		} else {
			r.event.Data = make([]byte, 0, len(value))
		}
		r.event.Data = append(r.event.Data, value...)
	case "event":
		r.event.Name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.event.ID = string(value)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 63); err == nil && ms <= math.MaxInt64/uint64(time.Millisecond) {
			r.event.Retry = time.Duration(ms) * time.Millisecond
			r.retry = r.event.Retry
		}
	}
}

// line returns the next line without its end; it is valid until the next call.
func (r *EventReader) line() ([]byte, error) {
	for {
		r.skip()
		n := lineEnd(r.buf[r.scanned:r.to])
		end := r.to
		if n >= 0 {
			end = r.scanned + n
		}
		line := r.buf[r.from:end]
		if r.isOver(line) {
			return nil, ErrEventTooLarge
		}
		if n >= 0 {
			r.skipLF = r.buf[end] == '\r'
			r.from, r.scanned = end+1, end+1
			return line, nil
		}
		r.scanned = r.to
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// skip drops the LF of a CRLF whose CR ended the line before, and the byte
// order mark that a stream may begin with.
func (r *EventReader) skip() {
	if r.from == r.to {
		return
	}
	if r.skipLF && r.buf[r.from] == '\n' {
		r.from++
	}
	r.skipLF = false
	if !r.started {
		unread := r.buf[r.from:r.to]
		// Nothing but a part of the mark leaves the question open.
		r.started = len(unread) >= len(byteOrderMark) || !bytes.HasPrefix(byteOrderMark, unread)
		r.from += len(unread) - len(bytes.TrimPrefix(unread, byteOrderMark))
	}
	r.scanned = max(r.scanned, r.from)
}

// isOver does not depend on how much of the line has arrived, as long as what
// has is too much.
func (r *EventReader) isOver(line []byte) bool {
	if len(line) > 0 && line[0] == ':' {
		return len(line) > r.limit
	}
	return r.size+len(line) > r.limit
}

func lineEnd(b []byte) int {
	n := bytes.IndexByte(b, '\n')
	if n >= 0 {
		b = b[:n]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return n
}

// fill reads more bytes. It makes room first: unread bytes move to the front,
// and only a line that fills the whole buffer makes it grow.
func (r *EventReader) fill() error {
	if r.srcErr != nil {
		return r.srcErr
	}
	switch {
	case r.from == r.to:
		if len(r.buf) > eventBuffer {
			r.buf = make([]byte, eventBuffer)
		}
		r.from, r.to, r.scanned = 0, 0, 0
	case r.to == len(r.buf):
		into := r.buf
		if r.from == 0 {
			into = make([]byte, min(2*len(r.buf), r.limit+1))
		}
		r.to = copy(into, r.buf[r.from:r.to])
		r.from, r.scanned, r.buf = 0, r.to, into
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.to:])
		r.to += n
		r.srcErr = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	r.srcErr = io.ErrNoProgress
	return r.srcErr
}

// EventWriter writes server-sent events, each with one write and one flush. It
// may be used by several goroutines; what they write never mixes.
type EventWriter struct {
	mu    sync.Mutex
	dst   io.Writer
	flush func() error
	buf   []byte
}

// NewEventWriter returns a writer to dst. flush is called after each write; it
// may be nil.
func NewEventWriter(dst io.Writer, flush func() error) *EventWriter {
	return &EventWriter{dst: dst, flush: flush}
}

// Write writes e. An event with data is named message where it has no name,
// since clients written by hand wait for that name. A line end in the data
// begins a new data line, so JSON keeps its meaning; CR and CRLF arrive as LF.
// It fails, and writes nothing, where the id or the name holds a line end or
// NUL; otherwise the error is dst's or flush's. It does not keep e.Data.
func (w *EventWriter) Write(e Event) error {
	for _, field := range []string{e.ID, e.Name} {
		if strings.ContainsAny(field, "\r\n\x00") {
			return fmt.Errorf("write event: %q cannot be the id or name of an event", shorten(field))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.buf[:0]
	if e.ID != "" {
		b = appendField(b, "id: ", e.ID)
	}
	if e.Retry > 0 {
		b = appendField(b, "retry: ", strconv.FormatInt(e.Retry.Milliseconds(), 10))
	}
	switch {
	case e.Name != "":
		b = appendField(b, "event: ", e.Name)
	case len(e.Data) > 0:
		b = appendField(b, "event: ", "message")
	}
	return w.send(append(appendData(b, e.Data), '\n'))
}

// Comment writes a comment, which clients ignore: a sign of life. It fails, and
// writes nothing, where text holds a line end.
func (w *EventWriter) Comment(text string) error {
	if strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("write comment: %q holds a line end", shorten(text))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.send(append(appendField(w.buf[:0], ": ", text), '\n'))
}

func (w *EventWriter) send(b []byte) error {
	// A stream lives long; one large event must not stay in memory with it.
	if cap(b) <= 4*eventBuffer {
		w.buf = b
	}
	if _, err := w.dst.Write(b); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if w.flush == nil {
		return nil
	}
	if err := w.flush(); err != nil {
		return fmt.Errorf("flush event: %w", err)
	}
	return nil
}

func appendField(b []byte, name, value string) []byte {
	return append(append(append(b, name...), value...), '\n')
}

func appendData(b, data []byte) []byte {
	for {
		n := lineEnd(data)
		if n < 0 {
			break
		}
		b = append(append(append(b, "data: "...), data[:n]...), '\n')
		if data[n] == '\r' && n+1 < len(data) && data[n+1] == '\n' {
			n++
		}
		data = data[n+1:]
	}
	return append(append(append(b, "data: "...), data...), '\n')
}
