package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regogate/regogate/gateway/policy"
)

// Limits of a Log. What is reserved counts as if it was there.
const (
	maxQueued  = 16_384   // records that wait to be encoded
	maxQueue   = 32 << 20 // bytes that these may weigh
	maxPending = 32 << 20 // bytes of lines that wait for one sink
	reserve    = 8 << 10  // bytes of lines to be expected of one reservation

	gather = 2 * time.Millisecond // that records wait for others: waking up for each costs more than encoding it
	notice = 10 * time.Second     // between two messages about the same
)

// Options of a Log.
type Options struct {
	Log    *slog.Logger
	Labels map[string]string // of the process, in every event
	// FailClosed has Reserve refuse what could not be put on record, and then never
	// drops a record that was reserved.
	FailClosed bool
	Paths      policy.MaskPaths
	// Local masks and drops where the policy that decided has no rule for it.
	Local *policy.Masker
}

// Log is a Recorder that gives records as lines of JSON to its sinks, to each in
// the order in which they came. A sink that fails or is slow holds up nobody, and
// no other sink: lines wait, within bounds, until it works again. Those that find
// no room are counted and told.
type Log struct {
	log        *slog.Logger
	failClosed bool
	encoder    *encoder

	mu       sync.Mutex // guards what follows
	sinks    []*sink
	queue    []entry
	waiting  int64 // records that no sink has yet: in the queue, and being encoded
	weight   int64 // bytes of these
	reserved int64
	dropped  int64
	closed   bool

	wake   chan struct{} // holds one: there may be something in the queue
	giveUp chan struct{} // closed when nobody waits for the rest any more
	done   chan struct{} // closed when the encoder has ended

	maskErrors atomic.Int64
	told       occasion // that records are dropped
	warned     occasion // that masks fail
}

// entry is a record, or a mark: something to do when all before it is done.
type entry struct {
	record *Record
	mark   *sync.WaitGroup
}

// Stats counts since the start. At each moment every record that was taken, and
// that no mask dropped, is counted once for each sink: as Waiting here, or as
// Written, Dropped or Waiting there.
type Stats struct {
	Dropped    int64       `json:"dropped"`     // records that found no room before they were encoded
	Waiting    int64       `json:"waiting"`     // records to be encoded, now
	MaskErrors int64       `json:"mask_errors"` // events that could not be masked as the policy says
	Sinks      []SinkStats `json:"sinks"`
}

// SinkStats counts the lines of one sink since the start.
type SinkStats struct {
	Name    string `json:"name"`
	Written int64  `json:"written"` // taken by the sink
	Dropped int64  `json:"dropped"` // lost: they found no room, or the sink would never take them
	Waiting int64  `json:"waiting"` // for the sink, now
	Bytes   int64  `json:"bytes"`   // of those that wait
	Failed  int64  `json:"failed"`  // writes that failed and were tried again
	Failing bool   `json:"failing"` // the last write failed
}

// New starts a Log without sinks, which takes every record and does nothing with
// it. The caller closes it.
func New(o Options) *Log {
	l := &Log{
		log: o.Log, failClosed: o.FailClosed,
		encoder: newEncoder(maps.Clone(o.Labels), newMasking(o.Paths, o.Local)),
		wake:    make(chan struct{}, 1), giveUp: make(chan struct{}), done: make(chan struct{}),
	}
	go l.run()
	return l
}

// Attach adds a sink that gets everything that is recorded from now on, in
// Writes of one or more whole lines, one Write at a time. A Write that takes less
// is repeated with the rest. The name is for logs and Stats. w is not closed.
func (l *Log) Attach(name string, w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.sinks = append(l.sinks, newSink(name, w, l.failClosed, l.log, l.giveUp))
	}
}

// Record implements Recorder.
func (l *Log) Record(r *Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sinks) == 0 && !l.closed {
		return true
	}
	weight := r.weight()
	full := l.waiting >= maxQueued || l.weight+weight > maxQueue
	if l.closed || full && !l.failClosed {
		l.drop()
		return false
	}
	l.waiting++
	l.weight += weight
	l.queue = append(l.queue, entry{record: r})
	l.signal()
	return true
}

// signal wakes the encoder. l.mu is held.
func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Reserve implements Recorder. Under Options.FailClosed there is no room while a
// sink fails, nor where records wait up to the bounds.
func (l *Log) Reserve() (release func(), ok bool) {
	if !l.failClosed {
		return nothing, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.waiting+l.reserved >= maxQueued || l.weight+l.reserved*reserve > maxQueue {
		return nil, false
	}
	for _, s := range l.sinks {
		if !s.room(l.reserved * reserve) {
			return nil, false
		}
	}
	l.reserved++
	return l.release, true
}

func nothing() {}

func (l *Log) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
}

// Stats may be called at any time.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Dropped: l.dropped, Waiting: l.waiting, MaskErrors: l.maskErrors.Load()}
	for _, sink := range l.sinks {
		s.Sinks = append(s.Sinks, sink.stats())
	}
	return s
}

// Flush waits until every sink has taken what was recorded before, or until ctx
// is done; its error says that then.
func (l *Log) Flush(ctx context.Context) error {
	var mark sync.WaitGroup
	l.mu.Lock()
	if !l.closed {
		mark.Add(1)
		l.queue = append(l.queue, entry{mark: &mark})
		l.signal()
	}
	l.mu.Unlock()
	flushed := make(chan struct{})
	go func() {
		mark.Wait()
		close(flushed)
	}()
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush the decision log: %w", ctx.Err())
	}
}

// Close takes no more records and has the sinks take those that wait. When ctx is
// done first it gives up the rest and says in its error how many lines of which
// sink they are; a Write that never returns keeps its goroutine then. Closing
// again does the same again.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.signal()
	}
	sinks := l.sinks
	l.mu.Unlock()
	ended := append(make([]<-chan struct{}, 0, 1+len(sinks)), l.done)
	for _, s := range sinks {
		ended = append(ended, s.done)
	}
	for _, done := range ended {
		select {
		case <-done:
			continue
		case <-ctx.Done():
		}
		return l.abandon(ctx.Err())
	}
	return nil
}

func (l *Log) abandon(cause error) error {
	var errs []error
	now := l.Stats()
	for _, s := range now.Sinks {
		if n := s.Waiting + now.Waiting; n > 0 {
			errs = append(errs, fmt.Errorf("close the decision log with %d records not written to %s: %w", n, s.Name, cause))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.giveUp:
	default:
		close(l.giveUp)
	}
	return errors.Join(errs...)
}

// run encodes what is recorded.
func (l *Log) run() {
	defer close(l.done)
	for range l.wake {
		time.Sleep(gather)
		l.mu.Lock()
		entries, sinks, closed := l.queue, l.sinks, l.closed
		l.queue = nil
		l.mu.Unlock()
		for _, e := range entries {
			l.encode(e, sinks)
		}
		if closed {
			for _, s := range sinks {
				s.close()
			}
			return
		}
	}
}

func (l *Log) encode(e entry, sinks []*sink) {
	if e.mark != nil {
		for _, s := range sinks {
			e.mark.Add(1)
			s.push(nil, e.mark)
		}
		e.mark.Done()
		return
	}
	line, maskFailed := l.encoder.line(context.Background(), e.record)
	if maskFailed {
		n := l.maskErrors.Add(1)
		if l.warned.now() {
			l.log.Error("decision events could not be masked: they were cut down to method and names", "total", n, "decision_id", e.record.ID)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range sinks {
		if line != nil {
			s.push(line, nil)
		}
	}
	l.waiting--
	l.weight -= e.record.weight()
}

// drop counts a record that is lost, and tells of it now and then. l.mu is held.
func (l *Log) drop() {
	if l.dropped++; l.told.now() {
		l.log.Error("decision records are lost: they come faster than they can be encoded, or after the end", "dropped_total", l.dropped)
	}
}

// occasion is what is worth telling only now and then.
type occasion struct{ last atomic.Int64 }

func (o *occasion) now() bool {
	now, last := time.Now().UnixNano(), o.last.Load()
	return now-last >= int64(notice) && o.last.CompareAndSwap(last, now)
}
