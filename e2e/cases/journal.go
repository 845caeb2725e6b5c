package cases

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"

	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// journal is everything a gateway says of itself: its log lines and its decision
// records. It is safe for concurrent use.
type journal struct {
	mu       sync.Mutex
	lines    []string
	requests map[string]map[string]any // log line of each request, by request id
	records  []*decisionlog.Record

	written   strings.Builder // the decision log
	decisions *decisionlog.Log
}

func newJournal() *journal {
	j := &journal{requests: map[string]map[string]any{}}
	j.decisions = decisionlog.New(decisionlog.Options{Log: j.logger()})
	j.decisions.Attach("journal", (*decisionSink)(j))
	return j
}

// decisionSink takes the lines of the decision log.
type decisionSink journal

func (s *decisionSink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.Write(line)
}

// close waits until every decision is written down.
func (j *journal) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return j.decisions.Close(ctx)
}

// logger writes every level into the journal.
func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Write takes one line of the log.
func (j *journal) Write(line []byte) (int, error) {
	var attrs map[string]any
	if strings.Contains(string(line), `"msg":"request"`) {
		if err := json.Unmarshal(line, &attrs); err != nil {
			return 0, err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, strings.TrimSpace(string(line)))
	if id, ok := attrs["request_id"].(string); ok {
		j.requests[id] = attrs
	}
	return len(line), nil
}

// Record takes one decision record.
func (j *journal) Record(r *decisionlog.Record) bool {
	j.mu.Lock()
	j.records = append(j.records, r)
	j.mu.Unlock()
	return j.decisions.Record(r)
}

// Reserve implements decisionlog.Recorder.
func (j *journal) Reserve() (release func(), ok bool) { return j.decisions.Reserve() }

// request waits for the log line of a request, which comes after its records:
// from then on everything that it left behind is there.
func (j *journal) request(ctx context.Context, id string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		j.mu.Lock()
		attrs, ok := j.requests[id]
		j.mu.Unlock()
		if ok {
			return attrs, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no log line of request %s came", id)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// ids returns the ids of all decision records so far, in their order.
func (j *journal) ids() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	ids := []string{}
	for _, r := range j.records {
		ids = append(ids, r.ID)
	}
	return ids
}

// recordsOf returns the decision records of one request.
func (j *journal) recordsOf(id string) []*decisionlog.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []*decisionlog.Record
	for _, r := range j.records {
		if r.Request.ID == id {
			out = append(out, r)
		}
	}
	return out
}

// has reports whether a line of the log matches.
func (j *journal) has(expression string) (bool, error) {
	n, err := j.matches(expression)
	return n > 0, err
}

// matches returns how many lines of the log match.
func (j *journal) matches(expression string) (n int, err error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return 0, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if re.MatchString(line) {
			n++
		}
	}
	return n, nil
}

// faults returns what no run may leave behind: a panic, a token, a character
// that does not show, a record that names no revision. It is called after close.
func (j *journal) faults(secrets []string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, line := range append(slices.Clone(j.lines), strings.Split(j.written.String(), "\n")...) {
		switch {
		case strings.Contains(line, "panic") || strings.Contains(line, "superfluous"):
			out = append(out, "the log speaks of a panic: "+clip(line))
		case holdsAny(line, secrets):
			out = append(out, "the log holds a token: "+clip(line))
		case strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
			out = append(out, fmt.Sprintf("the log holds a character that does not show: %+q", line))
		}
	}
	for _, r := range j.records {
		if r.ID == "" || r.PolicyRevision() == "" || r.RegistryRevision == "" {
			out = append(out, fmt.Sprintf("a record lacks its id or a revision: %+v", r))
		}
	}
	if n := strings.Count(j.written.String(), "\n"); n != len(j.records) {
		out = append(out, fmt.Sprintf("the decision log has %d lines for %d records", n, len(j.records)))
	}
	return out
}

func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.lines)
}

// tail returns the end of the log, for whoever looks for the cause of a failure.
func (j *journal) tail(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, line := range slices.Backward(j.lines) {
		// While a world starts it is asked again and again.
		if len(out) < n && !strings.Contains(line, `"path":"/readyz"`) {
			out = append(out, clip(line))
		}
	}
	slices.Reverse(out)
	return strings.Join(out, "\n")
}

func holdsAny(text string, secrets []string) bool {
	for _, s := range secrets {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// clip keeps what a message shows short.
func clip(s string) string {
	const most = 400
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
