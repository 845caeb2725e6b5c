package decisionlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// messages is a handler that keeps what is logged.
type messages chan string

func (m messages) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (m messages) WithAttrs([]slog.Attr) slog.Handler               { return m }
func (m messages) WithGroup(string) slog.Handler                    { return m }
func (m messages) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	m <- line
	return nil
}

// expect waits until something is logged that holds all parts.
func (m messages) expect(t *testing.T, parts ...string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	var seen []string
	for {
		select {
		case line := <-m:
			seen = append(seen, line)
			missing := false
			for _, p := range parts {
				missing = missing || !strings.Contains(line, p)
			}
			if !missing {
				return
			}
		case <-timeout:
			t.Fatalf("nothing was logged with %q, but\n%s", parts, strings.Join(seen, "\n"))
		}
	}
}
