package upstream

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regogate/regogate/registry/strictyaml"
)

// TestStdioStderr is B049.
func TestStdioStderr(t *testing.T) {
	var log journal
	c, _ := doubleConfig(t, "chatty", "endless")
	p := running(t, one(c), quick(&log))
	for range 3 {
		m, err := callTool(t.Context(), p, "gamma", "a", "chat", "{}")
		must(t, m, err)
	}
	text := log.String()
	if !strings.Contains(text, "server=gamma") || !strings.Contains(text, `on standard error \\u{001B}[31m\\u{202E}`) {
		t.Errorf("standard error is not in the log, or not escaped:\n%.2000s", text)
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Error("the log holds raw control characters")
	}
	if len(text) > 1<<20 {
		t.Errorf("6 MB of standard error made %d bytes of log", len(text))
	}
}

func TestStdioIdleAndBounded(t *testing.T) {
	c, record := doubleConfig(t)
	c.MaxSessions, c.IdleTimeout = 2, 300*time.Millisecond
	p := newPool(t, one(c), quick(nil))
	first := pidOf(t, p, "a")
	pidOf(t, p, "b")
	pidOf(t, p, "c") // takes the place of a, the one idle for longest
	eventually(t, "the end of the evicted process", func() bool { return !alive(first) })

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, principal := range []string{"x", "y"} {
		wg.Go(func() { callTool(ctx, p, "gamma", principal, "slow", "{}") })
	}
	eventually(t, "two calls", func() bool { return countRecorded(t, record, `"name":"slow"`) == 2 })
	_, err := callTool(t.Context(), p, "gamma", "z", "echo", "{}")
	wantKind(t, err, Unavailable, "gamma")
	if want := "all of its 2 sessions are in use"; !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
	run(t, p) // and discovers, though there is room for no more
	if s := p.Current().Server("gamma"); !s.Up {
		t.Errorf("the server is down: %s", s.Problem)
	}
	cancel()
	wg.Wait()
	last := pidOf(t, p, "d")
	eventually(t, "the end of an idle process", func() bool { return !alive(last) })
}

func TestStdioEnvironment(t *testing.T) {
	t.Setenv("GATEWAY_SECRET", "must not leak")
	t.Setenv("HOME", "/home/of/gateway")
	c, _ := doubleConfig(t)
	c.Env["EXTRA"], c.Env["LANG"] = "given", "xx_XX"
	c.Dir = t.TempDir()
	p := running(t, one(c), quick(nil))
	m, err := callTool(t.Context(), p, "gamma", "a", "env", "{}")
	var v struct{ Env string }
	if err := json.Unmarshal([]byte(must(t, m, err)), &v); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(v.Env) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "PATH", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER", "GORACE", doubleEnv, recordEnv:
		case "PWD":
			if value != c.Dir {
				t.Errorf("PWD is %q", value)
			}
		case "HOME", "EXTRA", "LANG":
			if want := map[string]string{"HOME": "/home/of/gateway", "EXTRA": "given", "LANG": "xx_XX"}[name]; value != want {
				t.Errorf("%s is %q, want %q", name, value, want)
			}
		default:
			t.Errorf("the process inherits %s", name)
		}
	}
}

// TestStdioDeath is the part of B051 on processes that end when they should
// not.
func TestStdioDeath(t *testing.T) {
	c, record := doubleConfig(t)
	p := running(t, one(c), quick(nil))
	began := time.Now()
	_, err := callTool(t.Context(), p, "gamma", "a", "die", "{}")
	wantKind(t, err, Broken, "gamma")
	if !strings.Contains(err.Error(), "exit status 7") || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	m, err := callTool(t.Context(), p, "gamma", "a", "echo", "{}")
	must(t, m, err)

	_, err = callTool(t.Context(), p, "gamma", "a", "hush", "{}")
	wantKind(t, err, Broken, "gamma")
	m, err = callTool(t.Context(), p, "gamma", "a", "echo", "{}")
	must(t, m, err)

	pid := pidOf(t, p, "a")
	done := make(chan error, 1)
	go func() {
		_, err := callTool(t.Context(), p, "gamma", "a", "slow", "{}")
		done <- err
	}()
	eventually(t, "the call", func() bool { return countRecorded(t, record, `"name":"slow"`) == 1 })
	syscall.Kill(pid, syscall.SIGKILL)
	err = receive(t, done, "the error of the killed call")
	wantKind(t, err, Broken, "gamma")
	if !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("the error is %v", err)
	}
	// Killed between calls: the next one is simply carried out by a new one.
	m, err = callTool(t.Context(), p, "gamma", "a", "echo", "{}")
	must(t, m, err)
	pid = pidOf(t, p, "a")
	syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, "the end of the process", func() bool { return !alive(pid) })
	// It may take a moment until the end is noticed.
	eventually(t, "a new process", func() bool {
		_, err := callTool(t.Context(), p, "gamma", "a", "pid", "{}")
		return err == nil
	})
}

// TestStdioKeepsDying: a process that dies of every request is started less
// and less often, and only for those whose it is.
func TestStdioKeepsDying(t *testing.T) {
	c, record := doubleConfig(t)
	o := quick(nil)
	o.RetryMin, o.RetryMax = time.Minute, time.Minute
	p := running(t, one(c), o)
	for range 2 {
		_, err := callTool(t.Context(), p, "gamma", "a", "die", "{}")
		wantKind(t, err, Broken, "gamma")
	}
	for range 20 {
		_, err := callTool(t.Context(), p, "gamma", "a", "die", "{}")
		wantKind(t, err, Unavailable, "gamma")
	}
	if n := countRecorded(t, record, `"name":"die"`); n != 2 {
		t.Errorf("the process died %d times, want twice", n)
	}
	m, err := callTool(t.Context(), p, "gamma", "b", "echo", "{}")
	must(t, m, err)
}

// TestStdioCrashLoop is the part of B051 on a child that ends at once, and
// B041 for a command that does not exist.
func TestStdioCrashLoop(t *testing.T) {
	c, _ := doubleConfig(t, "exits")
	missing := Config{Command: "no-such-command-anywhere"}
	o := quick(nil)
	o.RetryMin, o.RetryMax = 100*time.Millisecond, time.Minute
	p := running(t, map[string]Config{"gamma": c, "missing": missing}, o)
	want := `unavailable: greet it: the process ended: exit status 1`
	if s := p.Current().Server("gamma"); s.Up || s.Problem != want {
		t.Errorf("the state is up %v, %q; want %q", s.Up, s.Problem, want)
	}
	if s := p.Current().Server("missing"); s.Up || !strings.Contains(s.Problem, "executable file not found") {
		t.Errorf("the state is up %v, %q", s.Up, s.Problem)
	}
	for range 100 {
		_, err := callTool(t.Context(), p, "gamma", "a", "echo", "{}")
		wantKind(t, err, Unavailable, "gamma")
	}
	eventually(t, "an answer without a try", func() bool {
		_, err := callTool(t.Context(), p, "gamma", "a", "echo", "{}")
		return strings.Contains(err.Error(), "several times in a row")
	})
}

// TestStdioClose is the part of B051 on what must not be left behind.
func TestStdioClose(t *testing.T) {
	for _, traits := range [][]string{{"grandchild"}, {"stubborn"}, {"grandchild", "stubborn"}} {
		t.Run(strings.Join(traits, "+"), func(t *testing.T) {
			t.Parallel()
			c, record := doubleConfig(t, traits...)
			c.StopTimeout = 300 * time.Millisecond
			p := running(t, one(c), quick(nil))
			pidOf(t, p, "a")
			pidOf(t, p, "b")
			began := time.Now()
			p.Close()
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("Close took %s", d)
			}
			pids := map[int]bool{}
			for _, line := range recorded(t, record) {
				pid, rest, _ := strings.Cut(line, " ")
				n, _ := strconv.Atoi(pid)
				pids[n] = true
				if child, ok := strings.CutPrefix(rest, "grandchild "); ok {
					n, _ = strconv.Atoi(child)
					pids[n] = true
				}
			}
			if want := 3 * len(slices.DeleteFunc(slices.Clone(traits), func(s string) bool { return s == "stubborn" })); len(pids) < 3+want {
				t.Errorf("only %d processes are known", len(pids))
			}
			for pid := range pids {
				if pid == 0 || pid == os.Getpid() {
					t.Fatalf("the record names the process %d", pid)
				}
				eventually(t, "the end of process "+strconv.Itoa(pid), func() bool { return !alive(pid) })
			}
		})
	}
}

func TestEnvironmentPrefersConfigured(t *testing.T) {
	lookup := func(name string) (string, bool) { return "of-" + name, name == "PATH" || name == "HOME" }
	got := environment(map[string]strictyaml.Secret{"HOME": "mine", "B": "2"}, lookup)
	if want := []string{"B=2", "HOME=mine", "PATH=of-PATH"}; !slices.Equal(got, want) {
		t.Errorf("environment is %q, want %q", got, want)
	}
}
