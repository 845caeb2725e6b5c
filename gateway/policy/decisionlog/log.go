package decisionlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits of a Log.
const (
	maxQueued   = 16_384   // records that wait
	maxQueue    = 32 << 20 // bytes that these may weigh
	maxBuffer   = 64 << 10 // bytes that are collected for one write
	writeRetry  = 500 * time.Millisecond
	dropsNotice = 10 * time.Second
)

// Log is a Recorder that writes records as lines of JSON, in the order in which
// they came. A sink that fails or is slow holds up nobody: records wait, within
// bounds, until it works again. Those that find no room are counted and told.
type Log struct {
	sink io.Writer
	log  *slog.Logger

	mu     sync.RWMutex // guards closed, and closing the channels
	closed bool
	queue  chan *Record
	giveUp chan struct{} // closed when nobody waits for the rest any more
	done   chan struct{} // closed when the writer has ended

	waiting atomic.Int64 // records taken and not yet written or lost
	weight  atomic.Int64 // bytes in the queue
	written atomic.Int64
	dropped atomic.Int64
	failed  atomic.Int64
	told    atomic.Int64 // when drops were told last, Unix nanoseconds
}

// LogStats counts records since the start.
type LogStats struct {
	Written int64 // taken by the sink
	Dropped int64 // lost
	Waiting int64 // for the sink, now
	Failed  int64 // writes that failed and were tried again
}

// NewLog starts a Log that writes to sink, one Write at a time. The caller closes
// the Log, then the sink.
func NewLog(sink io.Writer, log *slog.Logger) *Log {
	l := &Log{
		sink:   sink,
		log:    log,
		queue:  make(chan *Record, maxQueued),
		giveUp: make(chan struct{}),
		done:   make(chan struct{}),
	}
	go l.run()
	return l
}

// OpenLogFile opens a file to append records to. Where it is missing it is
// created, readable by its owner alone. A named pipe is an error as long as
// nobody reads it.
func OpenLogFile(path string) (*os.File, error) {
	// Without O_NONBLOCK, opening a pipe would wait for a reader.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the decision log: %w", err)
	}
	return f, nil
}

// Record implements Recorder.
func (l *Log) Record(r *Record) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed || l.weight.Load() > maxQueue {
		l.drop(1)
		return false
	}
	weight := r.weight()
	l.waiting.Add(1)
	l.weight.Add(weight)
	select {
	case l.queue <- r:
		return true
	default:
		l.waiting.Add(-1)
		l.weight.Add(-weight)
		l.drop(1)
		return false
	}
}

// Stats may be called at any time.
func (l *Log) Stats() LogStats {
	return LogStats{
		Written: l.written.Load(),
		Dropped: l.dropped.Load(),
		Waiting: l.waiting.Load(),
		Failed:  l.failed.Load(),
	}
}

// Close takes no more records and writes those that wait. When ctx is done first
// it gives up the rest and says in its error how many they are; a Write that
// never returns keeps its goroutine then. Closing again does the same again.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.givenUp() {
		close(l.giveUp)
	}
	return fmt.Errorf("close the decision log with %d records not written: %w", l.waiting.Load(), ctx.Err())
}

func (l *Log) givenUp() bool {
	select {
	case <-l.giveUp:
		return true
	default:
		return false
	}
}

// run collects as many records for one write as are there.
func (l *Log) run() {
	defer close(l.done)
	var buf []byte
	var records int64
	for r := range l.queue {
		l.weight.Add(-r.weight())
		var err error
		if buf, err = r.appendLine(buf); err != nil {
			l.settle(0, 1)
			l.log.Error("cannot encode a decision record", "decision_id", r.ID, "error", err)
		} else {
			records++
		}
		if len(l.queue) > 0 && len(buf) < maxBuffer {
			continue
		}
		rest := l.write(buf)
		lost := int64(bytes.Count(rest, []byte("\n")))
		l.settle(records-lost, lost)
		buf, records = buf[:0], 0
	}
}

// write returns what the sink did not take before it was given up.
func (l *Log) write(buf []byte) (rest []byte) {
	for failures := 0; len(buf) > 0 && !l.givenUp(); failures++ {
		if failures > 0 {
			select {
			case <-l.giveUp:
				continue
			case <-time.After(writeRetry):
			}
		}
		n, err := l.sink.Write(buf)
		if buf = buf[n:]; len(buf) == 0 {
			break
		}
		l.failed.Add(1)
		if failures == 0 {
			l.log.Error("cannot write decision records, trying again", "every", writeRetry, "error", err)
		}
	}
	return buf
}

func (l *Log) settle(written, lost int64) {
	l.waiting.Add(-written - lost)
	l.written.Add(written)
	if lost > 0 {
		l.drop(lost)
	}
}

// drop counts records that are lost, and tells of them now and then.
func (l *Log) drop(n int64) {
	dropped := l.dropped.Add(n)
	now, last := time.Now().UnixNano(), l.told.Load()
	if now-last >= int64(dropsNotice) && l.told.CompareAndSwap(last, now) {
		l.log.Error("decision records are lost", "dropped_total", dropped, "waiting", l.waiting.Load())
	}
}
