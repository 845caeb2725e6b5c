package real_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/regogate/regogate/e2e/binary"
)

// gate is a running regogate process.
type gate struct {
	URL string // of the listener, without a path

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of the process, once exited is closed

	mu  sync.Mutex
	log []string
}

// startTimeout bounds how long a gateway may take to become ready, with all of
// its servers. stopTimeout bounds its end.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 20 * time.Second
)

// start writes the configuration into dir, runs `regogate serve` and returns
// when it is ready. It is ended with the test, and has to end well.
func start(t testing.TB, dir string, config map[string]any, env ...string) *gate {
	t.Helper()
	config["listen"] = "127.0.0.1:0"
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "regogate.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gate{cmd: exec.Command(binary.Path(t, "-tags", "opacli"), "serve", "-c", path), exited: make(chan struct{})}
	g.cmd.Env = append(os.Environ(), env...)
	stderr, err := g.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		g.read(stderr, address)
		g.err = g.cmd.Wait()
		close(g.exited)
	}()
	t.Cleanup(func() {
		if g.URL != "" { // or else it is known to have failed
			g.stop(t)
		}
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", g.text())
		}
	})
	select {
	case a := <-address:
		g.URL = "http://" + a
	case <-g.exited:
		t.Fatalf("the gateway ended at once: %v", g.err)
	case <-time.After(startTimeout):
		_ = g.cmd.Process.Kill()
		t.Fatalf("the gateway does not serve after %v", startTimeout)
	}
	within(t, startTimeout, "ready", func() bool { return g.status(t) == "ready" })
	return g
}

// read keeps the log and picks the address out of it.
func (g *gate) read(stderr io.Reader, address chan<- string) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			g.mu.Lock()
			g.log = append(g.log, strings.TrimSuffix(line, "\n"))
			g.mu.Unlock()
		}
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
			address <- entry.Address
		}
		if err != nil {
			return
		}
	}
}

func (g *gate) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	const most = 60
	lines := slices.DeleteFunc(slices.Clone(g.log), func(line string) bool { return strings.Contains(line, `"path":"/readyz"`) })
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// logged reports whether a line of the log holds all of the texts.
func (g *gate) logged(texts ...string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, line := range g.log {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return true
		}
	}
	return false
}

// stop ends the gateway as an operator does and waits for it. It has to exit
// with 0.
func (g *gate) stop(t testing.TB) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	select {
	case <-g.exited:
		if g.err != nil {
			t.Errorf("the gateway ended with %v, want exit status 0", g.err)
		}
	case <-time.After(stopTimeout):
		t.Errorf("the gateway has not ended %v after SIGTERM", stopTimeout)
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
}

// readyz is the answer of the readiness endpoint.
type readyz struct {
	code   int
	Status string
	Parts  map[string]string
}

func (g *gate) ready(t testing.TB) readyz {
	t.Helper()
	resp, err := http.Get(g.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := readyz{code: resp.StatusCode}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatalf("reading /readyz: %v", err)
	}
	return r
}

func (g *gate) status(t testing.TB) string {
	t.Helper()
	return g.ready(t).Status
}

// within waits until a condition holds and returns how long that took. It fails
// the test when it takes longer than d.
func within(t testing.TB, d time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	from := time.Now()
	for {
		ok := holds()
		took := time.Since(from)
		if ok && took <= d {
			return took
		}
		if took > d {
			t.Fatalf("%s: not so within %v", what, d)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
