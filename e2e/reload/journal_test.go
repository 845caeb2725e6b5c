package reload_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
)

// journal is the gateway's log.
type journal struct {
	mu      sync.Mutex
	lines   []string
	forced  []int // revisions that came into force, in this order
	at      map[int]time.Time
	refused []string // problems that bundles were refused for
	address string   // of the listener for operators
}

func newJournal() *journal { return &journal{at: map[int]time.Time{}} }

func (*journal) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "request" {
		return nil
	}
	line := r.Message
	attrs := map[string]slog.Value{}
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	switch {
	case r.Message == "policy in force":
		bundles, _ := attrs["bundles"].Any().(map[string]string)
		if n, err := strconv.Atoi(strings.TrimPrefix(bundles["main"], "rev")); err == nil {
			j.forced = append(j.forced, n)
			j.at[n] = time.Now()
		}
	case strings.HasPrefix(r.Message, "bundle refused"):
		j.refused = append(j.refused, attrs["problem"].String())
	case r.Message == "serving operators":
		j.address = attrs["address"].String()
	}
	return nil
}

func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }
func (j *journal) WithGroup(string) slog.Handler      { return j }

// newest is the revision that came into force last; 0 is none.
func (j *journal) newest() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.forced) == 0 {
		return 0
	}
	return j.forced[len(j.forced)-1]
}

// activations returns the revisions that came into force, in this order.
func (j *journal) activations() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]int(nil), j.forced...)
}

// problems returns what bundles were refused for, after the first n.
func (j *journal) problems(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.refused[min(n, len(j.refused)):]...)
}

func (j *journal) operators() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.address
}

func (j *journal) tail(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, line := range j.lines[max(0, len(j.lines)-n):] {
		out = append(out, line[:min(len(line), 600)])
	}
	return strings.Join(out, "\n")
}
