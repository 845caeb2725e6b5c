package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/policy"
)

// writer is a sink whose every Write waits for a turn and may fail.
type writer struct {
	turns chan func(p []byte) (int, error) // nil takes everything at once
	mu    sync.Mutex
	bytes.Buffer
}

func (s *writer) Write(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if s.turns != nil {
		n, err = (<-s.turns)(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Buffer.Write(p[:n])
	return n, err
}

func hanging() *writer { return &writer{turns: make(chan func([]byte) (int, error))} }

// free gives every Write the same turn until the log has ended.
func (s *writer) free(l *Log, turn func([]byte) (int, error)) {
	for {
		select {
		case s.turns <- turn:
		case <-l.sinks[0].done:
			return
		}
	}
}

func (s *writer) ids() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range strings.Split(strings.TrimSpace(s.String()), "\n") {
		_, rest, _ := strings.Cut(l, `"decision_id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		ids = append(ids, id)
	}
	return ids
}

func all(p []byte) (int, error)  { return len(p), nil }
func half(p []byte) (int, error) { return len(p) / 2, errors.New("no space left on device") }
func none([]byte) (int, error)   { return 0, errors.New("connection refused") }

func ids(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func start(t *testing.T, o Options, sinks ...*writer) *Log {
	t.Helper()
	if o.Log == nil {
		o.Log = discard()
	}
	l := New(o)
	for i, s := range sinks {
		l.Attach(fmt.Sprint("sink", i), s)
	}
	return l
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestLogOrder(t *testing.T) {
	a, b := &writer{}, &writer{}
	l := start(t, Options{}, a, b)
	for i := range 1000 {
		if !l.Record(numbered(i)) {
			t.Fatalf("record %d is lost", i)
		}
	}
	closeLog(t, l)
	for _, s := range []*writer{a, b} {
		if got := fmt.Sprint(s.ids()); got != fmt.Sprint(ids(1000)) {
			t.Errorf("got %s", got)
		}
	}
	if l.Record(numbered(0)) {
		t.Error("taken after Close")
	}
	got := l.Stats()
	if got.Dropped != 1 || got.Waiting != 0 || got.MaskErrors != 1000 || got.Sinks[1] != (SinkStats{Name: "sink1", Written: 1000}) {
		t.Errorf("stats: %+v", got) // these records have no subject
	}
	closeLog(t, l)
}

// Without a sink nothing is kept and nothing is encoded.
func TestLogWithoutSink(t *testing.T) {
	l := start(t, Options{})
	for range maxQueued + 1 {
		if !l.Record(&Record{}) { // which could not be masked
			t.Fatal("lost")
		}
	}
	if _, ok := l.Reserve(); !ok {
		t.Error("no room")
	}
	if got := l.Stats(); got.Waiting != 0 || got.MaskErrors != 0 {
		t.Errorf("stats: %+v", got)
	}
	closeLog(t, l)
}

// A sink that is down keeps the records and gets them once, whole and in order,
// when it is up again; meanwhile another sink gets its own.
func TestLogRecovers(t *testing.T) {
	logged := make(messages, 100)
	s, other := hanging(), &writer{}
	l := start(t, Options{Log: slog.New(logged)}, s, other)
	for i := range 100 {
		l.Record(numbered(i))
	}
	s.turns <- half
	logged.expect(t, "cannot write decision records", "sink0", "no space left on device")
	s.turns <- none
	for i := range 100 {
		l.Record(numbered(100 + i))
	}
	eventually(t, "the other sink has all", func() bool { return len(other.ids()) == 200 })
	if got := l.Stats().Sinks[0]; !got.Failing || got.Waiting == 0 || got.Waiting+got.Written != 200 || got.Bytes == 0 {
		t.Errorf("while it fails: %+v", got)
	}
	go s.free(l, all)
	closeLog(t, l)
	if got := fmt.Sprint(s.ids()); got != fmt.Sprint(ids(200)) {
		t.Errorf("got %s", got)
	}
	if got := l.Stats().Sinks[0]; got != (SinkStats{Name: "sink0", Written: 200, Failed: 2}) {
		t.Errorf("stats: %+v", got)
	}
	logged.expect(t, "decision records are written again")
}

// A sink that hangs blocks nobody: what finds no room is counted and told, the
// memory of what waits is bounded, and Close waits no longer than it may.
func TestLogOverflows(t *testing.T) {
	logged := make(messages, 100)
	s, other := hanging(), &writer{}
	l := start(t, Options{Log: slog.New(logged)}, s, other)
	sent := 0
	for l.Stats().Sinks[0].Dropped == 0 {
		if !l.Record(numbered(sent)) {
			t.Fatal("the queue is full, since encoding is slow")
		}
		if sent++; sent%1000 == 0 {
			eventually(t, "all is encoded", func() bool { return l.Stats().Waiting == 0 })
		}
	}
	logged.expect(t, "decision records are lost", "sink0", "dropped_total=")
	eventually(t, "the other sink has all", func() bool { return l.Stats().Sinks[1].Written == int64(sent) })
	got := l.Stats().Sinks[0]
	if got.Bytes > maxPending || got.Bytes < maxPending/2 || got.Waiting+got.Dropped != int64(sent) || l.Stats().Sinks[1].Dropped != 0 {
		t.Errorf("stats: %+v", l.Stats())
	}
	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := l.Close(soon)
	if want := fmt.Sprintf("close the decision log with %d records not written to sink0: context deadline exceeded", got.Waiting); err == nil || err.Error() != want {
		t.Errorf("close: %v, want %s", err, want)
	}
	s.free(l, half)
	after := l.Stats().Sinks[0]
	if after.Waiting != 0 || after.Bytes != 0 || after.Written+after.Dropped != int64(sent) {
		t.Errorf("stats at the end: %+v", after)
	}
}

// Records that cannot be encoded as fast as they come are bounded, too, in number
// and in weight.
func TestLogQueue(t *testing.T) {
	logged := make(messages, 100)
	l := start(t, Options{Log: slog.New(logged)}, &writer{})
	set := func(records, bytes int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting, l.weight = records, bytes
	}
	set(maxQueued, 0)
	if l.Record(numbered(0)) {
		t.Error("more records than there may be")
	}
	logged.expect(t, "decision records are lost", "dropped_total=1")
	set(0, maxQueue-100)
	if l.Record(&Record{Arguments: make(jsontext.Value, MaxArguments)}) {
		t.Error("more bytes than there may be")
	}
	if got := l.Stats().Dropped; got != 2 {
		t.Errorf("%d are dropped", got)
	}
	closeLog(t, l)
}

// No record is uncounted at any moment, whoever has it in hand, and a log that is
// given up says how many it gives up.
func TestEveryRecordIsCounted(t *testing.T) {
	const sent = 5000
	works, fails := &writer{}, hanging()
	l := start(t, Options{}, works, fails)
	count := func(want int64) {
		t.Helper()
		now := l.Stats()
		for _, s := range now.Sinks {
			if got := now.Waiting + s.Waiting + s.Written + s.Dropped; got != want {
				t.Fatalf("%d are counted of %d: %+v", got, want, now)
			}
		}
	}
	for i := range sent {
		l.Record(numbered(i))
		count(int64(i + 1))
	}
	if err := l.Close(canceled()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("with %d records not written to sink1: ", sent)) {
		t.Errorf("close: %v", err)
	}
	for ended := false; !ended; count(sent) {
		select {
		case fails.turns <- half:
		case <-l.sinks[1].done:
			ended = true
		}
	}
}

func TestLogConcurrent(t *testing.T) {
	s := &writer{}
	l := start(t, Options{}, s)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for i := range 500 {
				release, _ := l.Reserve()
				l.Record(numbered(i))
				release()
			}
		})
	}
	closeLog(t, l)
	writers.Wait()
	if got := l.Stats(); got.Sinks[0].Written+got.Dropped != 4000 || got.Waiting != 0 || int64(strings.Count(s.String(), "\n")) != got.Sinks[0].Written {
		t.Errorf("stats: %+v", got)
	}
}

// Flush waits for what was recorded before it.
func TestFlush(t *testing.T) {
	s, other := hanging(), &writer{}
	l := start(t, Options{}, s, other)
	l.Record(numbered(0))
	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := l.Flush(soon); err == nil || err.Error() != "flush the decision log: context deadline exceeded" {
		t.Errorf("while a sink hangs: %v", err)
	}
	flushed := make(chan error)
	go func() { flushed <- l.Flush(context.Background()) }()
	s.turns <- all
	if err := <-flushed; err != nil || len(s.ids()) != 1 || len(other.ids()) != 1 {
		t.Errorf("%v, %v, %v", err, s.ids(), other.ids())
	}
	go s.free(l, all)
	closeLog(t, l)
	if err := l.Flush(context.Background()); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// What was reserved is never lost, whatever becomes of the sink; what could be
// lost is not reserved.
func TestReserve(t *testing.T) {
	s := hanging()
	l := start(t, Options{FailClosed: true}, s)
	release, ok := l.Reserve()
	if !ok {
		t.Fatal("no room in an empty log")
	}
	l.Record(numbered(0))
	release()
	s.turns <- none
	eventually(t, "it is known that the sink fails", func() bool { return l.Stats().Sinks[0].Failing })
	if _, ok := l.Reserve(); ok {
		t.Error("reserved while the sink fails")
	}
	s.turns <- all
	eventually(t, "it is known that the sink works", func() bool { return !l.Stats().Sinks[0].Failing })
	// The sink hangs now and does not fail: room is what counts.
	var reserved []func()
	for {
		release, ok := l.Reserve()
		if !ok {
			break
		}
		reserved = append(reserved, release)
	}
	if n := len(reserved); n != maxPending/reserve {
		t.Errorf("%d are reserved", n)
	}
	sent := 1
	for range reserved {
		for range 5 { // more than anybody expects of one
			if !l.Record(numbered(sent)) {
				t.Fatal("a record is lost")
			}
			sent++
		}
	}
	for _, release := range reserved {
		release()
	}
	if _, ok := l.Reserve(); ok && l.Stats().Waiting > maxQueued {
		t.Error("reserved without room")
	}
	go s.free(l, all)
	eventually(t, "all is written", func() bool { return l.Stats().Sinks[0].Written == int64(sent) })
	if release, ok := l.Reserve(); !ok {
		t.Error("no room although all is written")
	} else {
		release()
	}
	closeLog(t, l)
	if _, ok := l.Reserve(); ok {
		t.Error("reserved after the end")
	}
	if got := l.Stats(); got.Dropped != 0 || got.Sinks[0].Dropped != 0 || fmt.Sprint(s.ids()) != fmt.Sprint(ids(sent)) {
		t.Errorf("stats: %+v", got)
	}
}

// Room that was reserved is there even where a sink has had its fill meanwhile.
func TestReservedIsKept(t *testing.T) {
	for keep, want := range map[bool]int64{true: 3, false: 1} {
		w := hanging()
		s := newSink("x", w, keep, discard(), make(chan struct{}))
		for range 3 {
			s.push(append(make([]byte, maxPending*3/4), '\n'), nil)
		}
		if got := s.stats(); got.Waiting != want || got.Dropped != 3-want {
			t.Errorf("keep %v: %+v", keep, got)
		}
		s.close()
		for got := s.stats(); got.Waiting > 0; got = s.stats() {
			w.turns <- func(p []byte) (int, error) { return len(p), nil }
			eventually(t, "a line is counted", func() bool { return s.stats().Waiting < got.Waiting })
		}
		<-s.done
	}
}

// Reserving costs nothing where records may be lost.
func TestReserveIsFree(t *testing.T) {
	s := hanging()
	l := start(t, Options{}, s)
	l.Record(numbered(0))
	s.turns <- none
	eventually(t, "the sink fails", func() bool { return l.Stats().Sinks[0].Failing })
	if n := testing.AllocsPerRun(100, func() {
		release, ok := l.Reserve()
		if !ok {
			t.Fatal("refused")
		}
		release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	go s.free(l, all)
	closeLog(t, l)
}

// A mask that fails is counted, told, and loses no event.
func TestMaskErrorsAreTold(t *testing.T) {
	logged := make(messages, 100)
	s := &writer{}
	l := start(t, Options{Log: slog.New(logged)}, s)
	r := call(t, snapshot(t, "package system.log\n\nmask := 1\n"), `{"a":1}`)
	l.Record(r)
	l.Record(r)
	closeLog(t, l)
	logged.expect(t, "decision events could not be masked", "total=1", "decision_id=d1")
	if got := l.Stats(); got.MaskErrors != 2 || got.Sinks[0].Written != 2 {
		t.Errorf("stats: %+v", got)
	}
}

// Two snapshots that mask differently, in turns.
func TestEachSnapshotMasksItsOwn(t *testing.T) {
	s := &writer{}
	l := start(t, Options{Paths: policy.MaskPaths{}}, s)
	var snapshots []*policy.Snapshot
	for _, path := range []string{"claims", "tool", "request", "method", "arguments", "claims/sub"} {
		snapshots = append(snapshots, snapshot(t, "package system.log\n\nmask contains \"/input/"+path+"\"\n"))
	}
	for range 3 {
		for _, one := range snapshots {
			l.Record(call(t, one, `{"a":1}`))
		}
	}
	closeLog(t, l)
	var got []string
	for text := range strings.Lines(s.String()) {
		got = append(got, decode(t, text).Erased...)
	}
	const each = " /input/claims /input/tool /input/request /input/method /input/arguments /input/claims/sub"
	if strings.Join(got, " ") != strings.Repeat(each, 3)[1:] {
		t.Errorf("%s", got)
	}
}
