package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/regogate/regogate/e2e/binary"
)

// The one server behind a gateway, and a policy that allows everything of it.
const (
	backend   = "suite"
	policyDir = "testdata/policies"
)

// stopTimeout bounds the end of a gateway.
const stopTimeout = 10 * time.Second

// gate is a running regogate process.
type gate struct {
	URL  string // of the server's own route
	Down bool   // the gateway could not make use of its server

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of the process, once exited is closed

	mu  sync.Mutex
	log strings.Builder
}

// open runs `regogate serve` in front of a server and returns when the gateway
// is ready, or knows that its server is of no use to it. The directory gets its
// configuration; policies may be relative to the working directory.
func open(ctx context.Context, binary, dir, policies, target, protocol string) (*gate, error) {
	policies, err := filepath.Abs(policies)
	if err != nil {
		return nil, fmt.Errorf("finding the policies: %w", err)
	}
	text, err := yaml.Marshal(map[string]any{
		"listen":  "127.0.0.1:0",
		"auth":    map[string]any{"insecure_anonymous": map[string]any{"claims": map[string]any{"sub": "conformance"}}},
		"servers": map[string]any{backend: map[string]any{"url": target, "protocol": protocol}},
		"policy":  map[string]any{"dir": policies},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	path := filepath.Join(dir, "regogate.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	g := &gate{cmd: exec.CommandContext(ctx, binary, "serve", "-c", path), exited: make(chan struct{})}
	stderr, err := g.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the gateway: %w", err)
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the gateway: %w", err)
	}
	started := make(chan started, 1)
	go func() {
		g.read(stderr, started)
		g.err = g.cmd.Wait()
		close(g.exited)
	}()
	select {
	case s := <-started:
		g.URL, g.Down = "http://"+s.address+"/mcp/"+backend, s.down
		if !s.down {
			err = ready("http://" + s.address + "/readyz")
		}
	case <-g.exited:
		err = fmt.Errorf("starting the gateway: it ended at once: %w", g.err)
	case <-time.After(startTimeout):
		err = fmt.Errorf("starting the gateway: it has not asked its server after %v", startTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", errors.Join(err, g.stop()), g.text())
	}
	return g, nil
}

// ready waits for the gateway to make use of what its server has told it.
func ready(url string) error {
	last := ""
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			return fmt.Errorf("asking whether the gateway is ready: %w", err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var answer struct{ Status string }
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil {
			return fmt.Errorf("asking whether the gateway is ready: %w", err)
		}
		if answer.Status == "ready" {
			return nil
		}
		last = string(text)
	}
	return fmt.Errorf("the gateway is not ready after %v: %s", startTimeout, last)
}

// started is what the log says once the gateway has asked its server.
type started struct {
	address string
	down    bool
}

// read keeps the log and picks the first news of the server out of it.
func (g *gate) read(stderr io.Reader, news chan<- started) {
	lines := bufio.NewReader(stderr)
	var s started
	told := false
	for {
		line, err := lines.ReadString('\n')
		var entry struct{ Msg, Address, Path string }
		_ = json.Unmarshal([]byte(line), &entry) // or it is a panic's
		if entry.Path != "/readyz" {
			g.mu.Lock()
			g.log.WriteString(line)
			g.mu.Unlock()
		}
		switch entry.Msg {
		case "serving":
			s.address = entry.Address
		case "server is down":
			s.down = true
			fallthrough
		case "server is up":
			if !told {
				news <- s
			}
			told = true
		}
		if err != nil {
			return
		}
	}
}

// text is the log so far.
func (g *gate) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

// stop ends the gateway as an operator does, and waits for it.
func (g *gate) stop() error {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping the gateway: %w", err)
	}
	select {
	case <-g.exited:
		if g.err != nil {
			return fmt.Errorf("the gateway ended with %w, want exit status 0", g.err)
		}
		return nil
	case <-time.After(stopTimeout):
		_ = g.cmd.Process.Kill()
		<-g.exited
		return fmt.Errorf("the gateway has not ended %v after SIGTERM", stopTimeout)
	}
}

// gateway starts one in front of a server and returns the URL of its route. It
// ends with the test, and has to end well.
func gateway(t testing.TB, target, protocol string) string {
	t.Helper()
	// Not the test's context, which ends before the cleanup.
	g, err := open(context.WithoutCancel(t.Context()), binary.Path(t), t.TempDir(), policyDir, target, protocol)
	if err != nil {
		t.Fatal(err)
	}
	if g.Down {
		t.Errorf("the gateway cannot use the server at %s", target)
	}
	t.Cleanup(func() {
		if err := g.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", tail(g.text(), 120))
		}
	})
	return g.URL
}
