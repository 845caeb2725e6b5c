package registry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// eventually waits for something that a background goroutine or another
// process brings about.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %s: %s", within, what)
}

// catalogueYAML is a catalogue of n tools of one server, all with the effect.
func catalogueYAML(server string, n int, effect string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nservers:\n  %s:\n    owner: some-team\n    env: production\n    data: internal\n    reach: external\n    tools:\n", server)
	for i := range n {
		fmt.Fprintf(&b, "      tool_%05d:\n        description: Does the thing number %d.\n        attributes: [developer, infrastructure]\n        effect: %s\n        labels: {tier: gold, number: \"%d\"}\n", i, i, effect, i)
	}
	return b.String()
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, ".new")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func openFile(t testing.TB, name string) *File {
	t.Helper()
	f, err := OpenFile(name, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func head(t testing.TB, s Source) Head {
	t.Helper()
	h, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func load(t testing.TB, s Source) *Catalogue {
	t.Helper()
	c, err := s.Load(t.Context(), head(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clientOf waits long for a server on a busy machine.
func clientOf(t testing.TB, addrs ...string) redis.UniversalClient {
	return clientWithin(t, maxTimeout, addrs...)
}

func clientWithin(t testing.TB, timeout time.Duration, addrs ...string) redis.UniversalClient {
	t.Helper()
	c, err := NewClient(RedisConfig{Addrs: addrs, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hung is a Redis that accepts connections and never says a word.
func hung(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
		}
	}()
	return l.Addr().String()
}
