package plane

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/logging"
)

// logger is OPA's logger on top of ours.
type logger struct {
	log    *slog.Logger
	fields map[string]any
}

func (l logger) Debug(format string, a ...any) { l.write(slog.LevelDebug, format, a) }
func (l logger) Info(format string, a ...any)  { l.write(slog.LevelInfo, format, a) }
func (l logger) Warn(format string, a ...any)  { l.write(slog.LevelWarn, format, a) }
func (l logger) Error(format string, a ...any) { l.write(slog.LevelError, format, a) }

// retold are messages of OPA's that come again at each try. The plane tells what
// is behind them once.
var retold = [...]string{"Bundle load failed", "Bundle activation failed"}

func (l logger) write(level slog.Level, format string, a []any) {
	for _, message := range retold {
		if strings.HasPrefix(format, message) {
			level = slog.LevelDebug
		}
	}
	ctx := context.Background()
	if !l.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("from", "opa")}
	for _, key := range slices.Sorted(maps.Keys(l.fields)) {
		attrs = append(attrs, slog.Any(key, l.fields[key]))
	}
	text := format
	if len(a) > 0 {
		text = fmt.Sprintf(format, a...)
	}
	l.log.LogAttrs(ctx, level, strings.Join(strings.Fields(text), " "), attrs...)
}

// WithFields implements logging.Logger.
func (l logger) WithFields(fields map[string]any) logging.Logger {
	all := maps.Clone(l.fields)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, fields)
	return logger{l.log, all}
}

// GetLevel implements logging.Logger.
func (l logger) GetLevel() logging.Level {
	ctx := context.Background()
	switch {
	case l.log.Enabled(ctx, slog.LevelDebug):
		return logging.Debug
	case l.log.Enabled(ctx, slog.LevelInfo):
		return logging.Info
	case l.log.Enabled(ctx, slog.LevelWarn):
		return logging.Warn
	}
	return logging.Error
}

// SetLevel does nothing: the level is the operator's.
func (logger) SetLevel(logging.Level) {}

// silent is for looking at a configuration that is not used.
func silent() logging.Logger { return logger{log: slog.New(slog.DiscardHandler)} }
