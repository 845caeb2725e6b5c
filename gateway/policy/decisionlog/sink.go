package decisionlog

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	maxWrite   = 64 << 10 // bytes that are collected for one Write, or one line
	writeRetry = 500 * time.Millisecond
	overhead   = 64 // bytes that a line takes besides its own
)

// lostError is the error of a Write that passed over lines which its sink would
// never take: they count as written, and are lost.
type lostError struct {
	lines int64
	cause error
}

func (e *lostError) Error() string { return e.cause.Error() }

// sink is where lines go, and those that wait for it.
type sink struct {
	name   string
	w      io.Writer
	keep   bool // room was reserved: take everything
	log    *slog.Logger
	giveUp <-chan struct{}
	done   chan struct{} // closed when the writer has ended

	wake chan struct{} // holds one
	told occasion

	mu      sync.Mutex // guards what follows
	pending []item
	count   SinkStats
	closed  bool
}

// item is a line, or a mark: it is done when all lines before it are.
type item struct {
	line []byte
	mark *sync.WaitGroup
}

func newSink(name string, w io.Writer, keep bool, log *slog.Logger, giveUp <-chan struct{}) *sink {
	s := &sink{
		name: name, w: w, keep: keep, log: log, giveUp: giveUp,
		done: make(chan struct{}), wake: make(chan struct{}, 1), count: SinkStats{Name: name},
	}
	go s.run()
	return s
}

// room reports whether the sink works and can keep as many bytes more.
func (s *sink) room(more int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.count.Failing && s.count.Bytes+more < maxPending
}

// push takes a line or a mark; it never blocks. Of more than there is room for,
// the last are lost.
func (s *sink) push(line []byte, mark *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	weight := int64(len(line)) + overhead
	if line != nil && !s.keep && s.count.Bytes+weight > maxPending {
		s.drop(1)
		return
	}
	if line != nil {
		s.count.Bytes += weight
		s.count.Waiting++
	}
	s.pending = append(s.pending, item{line, mark})
	s.signal()
}

func (s *sink) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close lets the writer end when nothing is pending.
func (s *sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.signal()
}

func (s *sink) stats() SinkStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// run collects as many lines for one Write as are there.
func (s *sink) run() {
	defer close(s.done)
	buf := make([]byte, 0, maxWrite)
	for range s.wake {
		for {
			s.mu.Lock()
			items, closed := s.pending, s.closed
			s.pending = nil
			s.mu.Unlock()
			if len(items) == 0 {
				if closed {
					return
				}
				break
			}
			buf = s.deliver(items, buf)
		}
	}
}

// deliver writes the items in their order and returns the buffer that it used.
func (s *sink) deliver(items []item, buf []byte) []byte {
	buf = buf[:0]
	for i, it := range items {
		if len(buf) > 0 && (len(buf)+len(it.line) > maxWrite || it.mark != nil) {
			s.write(buf)
			buf = buf[:0]
		}
		buf = append(buf, it.line...)
		items[i].line = nil // what is written must not be kept until the rest is
		if it.mark != nil {
			it.mark.Done()
		}
	}
	s.write(buf)
	if cap(buf) > 4*maxWrite {
		buf = nil
	}
	return buf
}

// write has the sink take whole lines, however often it fails, until it is given
// up.
func (s *sink) write(buf []byte) {
	for failures := 0; len(buf) > 0; failures++ {
		if failures > 0 && s.wait() {
			s.lose(buf)
			return
		}
		n, err := s.w.Write(buf)
		s.settle(buf[:n], err, n == len(buf))
		buf = buf[n:]
	}
}

// wait waits before the next try, and reports whether there is none.
func (s *sink) wait() bool {
	retry := time.NewTimer(writeRetry)
	defer retry.Stop()
	select {
	case <-s.giveUp:
		return true
	case <-retry.C:
		return false
	}
}

// settle counts what a Write has taken, and tells when Writes begin to fail and
// when they work again.
func (s *sink) settle(taken []byte, err error, all bool) {
	var lost *lostError
	if !errors.As(err, &lost) {
		lost = &lostError{}
	}
	s.mu.Lock()
	was := s.count.Failing
	s.forget(taken)
	s.count.Written += lines(taken) - lost.lines
	s.count.Failing = !all
	if !all {
		s.count.Failed++
	}
	if lost.lines > 0 {
		s.drop(lost.lines)
	}
	s.mu.Unlock()
	if lost.lines > 0 {
		s.log.Error("decision records are lost: the sink does not take them", "sink", s.name, "records", lost.lines, "error", lost.cause)
	}
	switch {
	case !all && !was:
		s.log.Error("cannot write decision records, trying again", "sink", s.name, "every", writeRetry, "error", err)
	case all && was:
		s.log.Info("decision records are written again", "sink", s.name)
	}
}

// lose counts what is not written any more.
func (s *sink) lose(rest []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(rest)
	s.drop(lines(rest))
}

// forget takes lines from those that wait. s.mu is held.
func (s *sink) forget(gone []byte) {
	n := lines(gone)
	s.count.Waiting -= n
	s.count.Bytes -= int64(len(gone)) + n*overhead
}

func lines(b []byte) int64 { return int64(bytes.Count(b, []byte("\n"))) }

// drop counts lines that are lost, and tells of them now and then. s.mu is held.
func (s *sink) drop(n int64) {
	if s.count.Dropped += n; s.told.now() {
		s.log.Error("decision records are lost", "sink", s.name, "dropped_total", s.count.Dropped, "waiting", s.count.Waiting)
	}
}
