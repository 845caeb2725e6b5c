package limit

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/regogate/regogate/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is for a Redis that a loaded machine is slow with.
const patient = 5 * time.Second

// clock is a time that passes when the test says so.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// text is a log that a test reads.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines are the messages so far.
func (l *text) lines() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		_, rest, _ := strings.Cut(line, `msg="`)
		message, _, _ := strings.Cut(rest, `"`)
		list = append(list, message)
	}
	return list
}

// limiter is a new one, and its log.
func limiter(t testing.TB, c Config, now func() time.Time) (*Limiter, *text) {
	t.Helper()
	if problems := c.Validate("rate"); len(problems) > 0 {
		t.Fatal(problems)
	}
	log := &text{}
	l, err := New(c, []byte("a key"), now, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, log
}

func at(addrs ...string) *registry.RedisConfig {
	return &registry.RedisConfig{Addrs: addrs, Timeout: patient}
}

func raw(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := registry.NewClient(*at(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func perHour(n int) *Limit { return &Limit{Rate: Rate{n, time.Hour}} }

// eventually waits for what another process brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("did not happen: " + what)
}
