package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway/policy"
)

// sink is a writer whose every Write waits for a turn and may fail.
type sink struct {
	turns chan func(p []byte) (int, error) // nil takes everything at once
	mu    sync.Mutex
	bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if s.turns != nil {
		n, err = (<-s.turns)(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Buffer.Write(p[:n])
	return n, err
}

// free gives every Write the same turn until the log has ended.
func (s *sink) free(l *Log, turn func([]byte) (int, error)) {
	for {
		select {
		case s.turns <- turn:
		case <-l.done:
			return
		}
	}
}

func (s *sink) ids() (ids []string) {
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

func record(n int) *Record {
	return &Record{ID: fmt.Sprint(n), Rule: "allow", Thing: policy.Name{Kind: policy.KindTool}}
}

func ids(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func TestLogOrder(t *testing.T) {
	s := &sink{}
	l := NewLog(s, discard())
	for i := range 1000 {
		if !l.Record(record(i)) {
			t.Fatalf("record %d is lost", i)
		}
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.ids()); got != fmt.Sprint(ids(1000)) {
		t.Errorf("got %s", got)
	}
	if l.Record(record(0)) {
		t.Error("taken after Close")
	}
	if got := l.Stats(); got != (LogStats{Written: 1000, Dropped: 1}) {
		t.Errorf("stats: %+v", got)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// A sink that is down keeps the records and gets them once, whole and in order,
// when it is up again.
func TestLogRecovers(t *testing.T) {
	logged := make(messages, 100)
	s := &sink{turns: make(chan func([]byte) (int, error))}
	l := NewLog(s, slog.New(logged))
	for i := range 100 {
		l.Record(record(i))
	}
	s.turns <- half
	logged.expect(t, "cannot write decision records", "no space left on device")
	s.turns <- half
	for i := range 100 {
		l.Record(record(100 + i))
	}
	go s.free(l, all)
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.ids()); got != fmt.Sprint(ids(200)) {
		t.Errorf("got %s", got)
	}
	if got := l.Stats(); got != (LogStats{Written: 200, Failed: 2}) {
		t.Errorf("stats: %+v", got)
	}
}

// A sink that hangs blocks nobody: what finds no room is counted and told, and
// Close waits no longer than it may.
func TestLogOverflows(t *testing.T) {
	logged := make(messages, 100)
	s := &sink{turns: make(chan func([]byte) (int, error))}
	l := NewLog(s, slog.New(logged))
	kept := 0
	for i := range maxQueued + 1000 {
		if l.Record(record(i)) {
			kept++
		}
	}
	logged.expect(t, "decision records are lost", "dropped_total=")
	dropped := maxQueued + 1000 - kept
	if got := l.Stats(); dropped < 500 || got != (LogStats{Dropped: int64(dropped), Waiting: int64(kept)}) {
		t.Errorf("kept %d, stats: %+v", kept, got)
	}
	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := l.Close(soon)
	if want := fmt.Sprintf("close the decision log with %d records not written: context deadline exceeded", kept); err == nil || err.Error() != want {
		t.Errorf("close: %v, want %s", err, want)
	}
	s.free(l, half)
	got := l.Stats()
	if got.Waiting != 0 || got.Written+got.Dropped != maxQueued+1000 {
		t.Errorf("stats at the end: %+v", got)
	}
}

// The memory of waiting records is bounded, not only their number.
func TestLogWeight(t *testing.T) {
	s := &sink{turns: make(chan func([]byte) (int, error))}
	l := NewLog(s, discard())
	big := &Record{ID: "big", List: &ListSeen{Allowed: make([]policy.Name, 100_000)}}
	kept := 0
	for range 100 {
		if l.Record(big) {
			kept++
		}
	}
	if limit := maxQueue/int(big.weight()) + 2; kept == 0 || kept > limit {
		t.Errorf("%d records of %d bytes wait", kept, big.weight())
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Close(done); err == nil {
		t.Error("closed although the sink hangs")
	}
	s.free(l, all)
}

func TestLogConcurrent(t *testing.T) {
	s := &sink{}
	l := NewLog(s, discard())
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for i := range 500 {
				l.Record(record(i))
			}
		})
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if got := l.Stats(); got.Written+got.Dropped != 4000 || got.Waiting != 0 || int64(strings.Count(s.String(), "\n")) != got.Written {
		t.Errorf("stats: %+v", got)
	}
}

func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.jsonl")
	for range 2 {
		f, err := OpenLogFile(path)
		if err != nil {
			t.Fatal(err)
		}
		l := NewLog(f, discard())
		l.Record(record(0))
		if err := errors.Join(l.Close(context.Background()), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if b, _ := os.ReadFile(path); bytes.Count(b, []byte("\n")) != 2 {
		t.Errorf("not appended: %s", b)
	}
	if _, err := OpenLogFile(t.TempDir()); err == nil {
		t.Error("a directory is opened")
	}
}
