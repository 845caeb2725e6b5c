package session

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// alarms logs what goes wrong with Redis without repeating itself, and knows
// whether Redis answers. It is safe for concurrent use.
type alarms struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	last map[string]*repeated
	down string // why Redis cannot be used, or ""
	told bool   // that it is down
}

// quietly is how long an alarm is not repeated.
const quietly = 10 * time.Second

type repeated struct {
	until time.Time
	times int // since the last line
}

func newAlarms(log *slog.Logger, now func() time.Time) *alarms {
	return &alarms{log: log, now: now, last: map[string]*repeated{}}
}

// raise logs a message, of which there are a few constant ones, or counts it
// where it was logged a moment ago.
func (a *alarms) raise(level slog.Level, message string, attributes ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.line(level, message, attributes...)
}

func (a *alarms) line(level slog.Level, message string, attributes ...any) bool {
	now := a.now()
	r := a.last[message]
	if r == nil {
		r = &repeated{}
		a.last[message] = r
	}
	if now.Before(r.until) {
		r.times++
		return false
	}
	a.log.Log(context.Background(), level, message, append(attributes, "unreported", r.times)...)
	*r = repeated{until: now.Add(quietly)}
	return true
}

// lost notes that Redis does not answer.
func (a *alarms) lost(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down == "" {
		a.told = a.line(slog.LevelWarn, "sessions in Redis cannot be reached", "error", err)
	}
	a.down = "sessions in Redis cannot be reached: " + err.Error()
}

// found notes that Redis answers.
func (a *alarms) found() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told {
		a.log.Info("sessions in Redis can be reached again")
	}
	a.down, a.told = "", false
}

func (a *alarms) problems() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down == "" {
		return nil
	}
	return []string{a.down}
}
