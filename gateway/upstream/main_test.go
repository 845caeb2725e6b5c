package upstream

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regogate/regogate/gateway/mcp"
)

// doubleEnv, when set, makes the test binary act as a stdio server.
const doubleEnv = "REGOGATE_TEST_DOUBLE"

func TestMain(m *testing.M) {
	if traits := os.Getenv(doubleEnv); traits != "" {
		runDouble(strings.Split(traits, ","))
		return
	}
	if os.Getenv(gatewayEnv) != "" {
		runGateway()
		return
	}
	goleak.VerifyTestMain(m)
}

// journal is a log that tests can read.
type journal struct {
	mu sync.Mutex
	b  strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// quick are options under which a test need not wait long for anything.
func quick(log io.Writer) Options {
	o := Options{
		Name: "gateway", Version: "1.2.3",
		Refresh: 200 * time.Millisecond, RetryMin: 10 * time.Millisecond, RetryMax: 100 * time.Millisecond,
	}
	if log != nil {
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return o
}

// newPool makes a pool that is closed with the test; it does not run yet.
func newPool(t *testing.T, servers map[string]Config, o Options) *Pool {
	t.Helper()
	p, err := New(servers, o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// running makes a pool that runs until the test ends.
func running(t *testing.T, servers map[string]Config, o Options) *Pool {
	t.Helper()
	p := newPool(t, servers, o)
	run(t, p)
	return p
}

// run runs a pool until the test ends, and waits for its first look at all
// servers.
func run(t *testing.T, p *Pool) {
	t.Helper()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	receive(t, p.Settled(), "the first look at all servers")
}

// receive waits for a channel, but not for ever.
func receive[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not come", what)
	}
	return v
}

// until waits for a state of the pool.
func until(t *testing.T, p *Pool, what string, ok func(*State) bool) *State {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if s := p.Current(); ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come; the state is %+v", what, p.Current())
		}
		select {
		case <-p.Changed():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// deadline is a context whose deadline passes when the test says so.
func deadline(t *testing.T) (_ context.Context, pass func()) {
	d := passing{t.Context(), make(chan struct{})}
	return d, func() { close(d.passed) }
}

type passing struct {
	context.Context
	passed chan struct{}
}

func (p passing) Done() <-chan struct{} { return p.passed }

func (p passing) Err() error {
	select {
	case <-p.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// eventually waits for what no channel tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come true", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func toolNames(s *Server) []string {
	var names []string
	for _, d := range s.Tools {
		names = append(names, d.Name)
	}
	return names
}

// callTool calls a tool with the given arguments.
func callTool(ctx context.Context, p *Pool, server, principal, name, arguments string) (*mcp.Message, error) {
	params := []byte(`{"name":` + string(mcp.String(name)) + `,"arguments":` + arguments + `}`)
	return p.Do(ctx, Call{Server: server, Peer: testPeer(principal), Method: "tools/call", Params: params})
}

// must returns the result of a call that has to succeed.
func must(t *testing.T, m *mcp.Message, err error) string {
	t.Helper()
	if err != nil {
		t.Fatalf("the call failed: %v", err)
	}
	if m.Error != nil {
		t.Fatalf("the call was answered with the error %s", m.Error)
	}
	return string(m.Result)
}

// wantKind checks the kind of an error and that its public text names the
// server and nothing else of it.
func wantKind(t *testing.T, err error, kind Kind, server string) {
	t.Helper()
	e, ok := err.(*Error)
	if !ok {
		t.Fatalf("the error is %T %v, want an *Error", err, err)
	}
	if e.Kind != kind || e.Server != server {
		t.Fatalf("the error is of kind %s of server %s (%v), want %s of %s", e.Kind, e.Server, e, kind, server)
	}
	for _, leak := range []string{"127.0.0.1", "http:", "/", "secret"} {
		if strings.Contains(e.Public(), leak) {
			t.Errorf("Public() = %q tells %q", e.Public(), leak)
		}
	}
	if !strings.Contains(e.Public(), "server "+server) {
		t.Errorf("Public() = %q does not name the server", e.Public())
	}
}

func wantNames(t *testing.T, s *Server, want ...string) {
	t.Helper()
	if got := toolNames(s); !slices.Equal(got, want) {
		t.Errorf("tools are %q, want %q", got, want)
	}
}
