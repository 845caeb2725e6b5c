package upstream

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// escape makes text of a server safe to log: control characters, invisible and
// bidirectional ones and bytes that are not UTF-8 become escapes.
func escape(text []byte) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02X`, text[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%04X}`, r)
		}
		text = text[size:]
	}
	return b.String()
}

// noise logs, at a bounded rate, what a server should not have sent. It is safe
// for concurrent use.
type noise struct {
	server string
	log    *slog.Logger
	limit  *throttle
}

func newNoise(server string, log *slog.Logger) *noise {
	return &noise{server: server, log: log, limit: newThrottle(10, 1)}
}

// report logs what the server did, with the beginning of the text that it sent
// where there is one.
func (n *noise) report(what string, text []byte) {
	const shown = 256
	ok, dropped := n.limit.allow(time.Now())
	if !ok {
		return
	}
	attrs := []any{"server", n.server, "suppressed", dropped}
	if text != nil {
		attrs = append(attrs, "text", escape(text[:min(len(text), shown)]), "bytes", len(text))
	}
	n.log.Warn("server "+what, attrs...)
}

// throttle lets a burst pass, then a steady rate, and counts what it holds
// back. It is safe for concurrent use.
type throttle struct {
	burst, rate float64 // tokens, tokens per second

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	dropped int
}

func newThrottle(burst, rate float64) *throttle {
	return &throttle{burst: burst, rate: rate, tokens: burst}
}

// allow reports whether one more may pass now and, if so, how many were held
// back since the last that did.
func (t *throttle) allow(now time.Time) (ok bool, dropped int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.last.IsZero() {
		t.tokens = min(t.burst, t.tokens+now.Sub(t.last).Seconds()*t.rate)
	}
	t.last = now
	if t.tokens < 1 {
		t.dropped++
		return false, 0
	}
	t.tokens--
	dropped, t.dropped = t.dropped, 0
	return true, dropped
}
