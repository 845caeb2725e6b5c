package registry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
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

// server is a real redis-server on a port of its own.
type server struct {
	t    testing.TB
	addr string
	args []string
	cmd  *exec.Cmd
}

func startRedis(t testing.TB, args ...string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: l.Addr().String(), args: args}
	l.Close()
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("these tests need a redis-server on the PATH: %v", err)
	}
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", s.t.TempDir()}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, 10*time.Second, "redis-server answers", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		fmt.Fprint(c, "PING\r\n")
		n, _ := c.Read(make([]byte, 64))
		return n > 0
	})
}

func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.cmd = nil
}

func clientOf(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := NewClient(RedisConfig{Addrs: []string{addr}})
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
