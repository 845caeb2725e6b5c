package plane

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/logging"
)

// logger hands what OPA logs to slog, levels kept.
type logger struct {
	out *slog.Logger
	// whole keeps every field: for what an operator asked to see on the console.
	whole bool
}

// unlogged are fields in which OPA puts what a service was sent or answered:
// configured headers carry tokens that OPA does not mask.
var unlogged = [...]string{"headers", "response", "url"}

func (l logger) put(level slog.Level, format string, a []any) {
	ctx := context.Background()
	if !l.out.Enabled(ctx, level) {
		return
	}
	text := format
	if len(a) > 0 {
		text = fmt.Sprintf(format, a...)
	}
	l.out.Log(ctx, level, text)
}

func (l logger) Debug(format string, a ...any) { l.put(slog.LevelDebug, format, a) }
func (l logger) Info(format string, a ...any)  { l.put(slog.LevelInfo, format, a) }
func (l logger) Warn(format string, a ...any)  { l.put(slog.LevelWarn, format, a) }
func (l logger) Error(format string, a ...any) { l.put(slog.LevelError, format, a) }

func (l logger) WithFields(fields map[string]any) logging.Logger {
	attrs := make([]any, 0, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !l.whole && slices.Contains(unlogged[:], name) {
			continue
		}
		attrs = append(attrs, slog.Any(name, fields[name]))
	}
	return logger{out: l.out.With(attrs...), whole: l.whole}
}

func (l logger) GetLevel() logging.Level {
	ctx := context.Background()
	switch {
	case l.out.Enabled(ctx, slog.LevelDebug):
		return logging.Debug
	case l.out.Enabled(ctx, slog.LevelInfo):
		return logging.Info
	case l.out.Enabled(ctx, slog.LevelWarn):
		return logging.Warn
	}
	return logging.Error
}

// SetLevel does nothing: the level is slog's to set.
func (logger) SetLevel(logging.Level) {}
