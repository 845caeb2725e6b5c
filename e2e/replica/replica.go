// Package replica runs a regogate process for a test.
package replica

import (
	"bufio"
	"encoding/json"
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

	"github.com/regogate/regogate/e2e/binary"
)

// Bad is what the log of a replica must never hold.
func Bad() []string { return []string{"panic", "DATA RACE", `"level":"ERROR"`} }

// Options of a replica.
type Options struct {
	Dir     string // where its configuration is written
	Name    string // of it, for people
	Config  map[string]any
	Bad     []string // Bad() where nil
	Unready bool     // Start returns when it serves, ready or not
}

// Replica is one regogate process, built with the race detector.
type Replica struct {
	URL    string // without a path
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // once exited is closed

	mu  sync.Mutex
	log strings.Builder
}

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
	shown        = 6000 // of a log, in bytes, in a test's messages
)

// Start runs `regogate serve` and returns when it is ready. It is ended with the
// test, and has to end well. Its address is its own to choose where the
// configuration says so.
func Start(t testing.TB, o Options) *Replica {
	t.Helper()
	program := binary.Path(t, "-race")
	config := map[string]any{}
	for key, value := range o.Config {
		config[key] = value
	}
	config["log"] = map[string]any{"level": "info"} // for the address
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Dir, o.Name+".yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Replica{name: o.Name, cmd: exec.Command(program, "serve", "-c", path), exited: make(chan struct{})}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		r.read(stderr, address)
		r.err = r.cmd.Wait()
		close(r.exited)
	}()
	bad := o.Bad
	if bad == nil {
		bad = Bad()
	}
	t.Cleanup(func() {
		r.Stop(t)
		for _, bad := range bad {
			if strings.Contains(r.Log(), bad) {
				t.Errorf("%s: %s in its log:\n%s", r.name, bad, r.tail())
			}
		}
	})
	select {
	case a := <-address:
		r.URL = "http://" + a
	case <-r.exited:
		t.Fatalf("%s ended at once: %v\n%s", r.name, r.err, r.tail())
	case <-time.After(startTimeout):
		t.Fatalf("%s does not serve after %v", r.name, startTimeout)
	}
	if !o.Unready {
		Within(t, startTimeout, r.name+" is ready", func() bool { return r.Status() == "ready" })
	}
	return r
}

func (r *Replica) read(stderr io.Reader, address chan<- string) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		var entry struct{ Msg, Address string }
		known := json.Unmarshal([]byte(line), &entry) == nil
		if known && entry.Msg == "serving" {
			address <- entry.Address
		}
		if !known || entry.Msg != "request" {
			r.mu.Lock()
			r.log.WriteString(line)
			r.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// Log is what it has logged so far, requests apart.
func (r *Replica) Log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *Replica) tail() string {
	text := r.Log()
	return text[max(0, len(text)-shown):]
}

// Status is what readiness says in one word, "" where nobody answers.
func (r *Replica) Status() string {
	resp, err := http.Get(r.URL + "/readyz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var is struct{ Status string }
	_ = json.NewDecoder(resp.Body).Decode(&is)
	return is.Status
}

// Stop ends the replica as an operator does; it has to exit with 0.
func (r *Replica) Stop(t testing.TB) {
	t.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-r.exited:
		if r.err != nil {
			t.Errorf("%s ended with %v, want exit status 0", r.name, r.err)
		}
	case <-time.After(stopTimeout):
		t.Errorf("%s has not ended %v after SIGTERM", r.name, stopTimeout)
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
}

// Within waits until a condition holds and returns how long that took. The bound
// finds what hangs, not what is slow.
func Within(t testing.TB, d time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	from := time.Now()
	for !holds() {
		if time.Since(from) > d {
			t.Fatalf("%s: not so within %v", what, d)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(from)
}
