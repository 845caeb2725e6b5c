package policy

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// messages is a log handler that hands on what is logged.
type messages chan string

func (m messages) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (m messages) WithAttrs([]slog.Attr) slog.Handler               { return m }
func (m messages) WithGroup(string) slog.Handler                    { return m }
func (m messages) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	m <- line
	return nil
}

// expect waits until something is logged that holds all parts.
func (m messages) expect(t *testing.T, parts ...string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	var seen []string
	for {
		select {
		case line := <-m:
			seen = append(seen, line)
			missing := false
			for _, p := range parts {
				missing = missing || !strings.Contains(line, p)
			}
			if !missing {
				return
			}
		case <-timeout:
			t.Fatalf("nothing was logged with %q, but\n%s", parts, strings.Join(seen, "\n"))
		}
	}
}

// run starts an engine on dir; it ends with the test.
func run(t *testing.T, dir string, recheck time.Duration) (*Engine, messages) {
	t.Helper()
	logged := make(messages, 1000)
	e, err := New(Config{Dir: dir}, slog.New(logged))
	if err != nil {
		t.Fatal(err)
	}
	e.recheck = recheck
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e, logged
}

// save replaces a file the way editors do.
func save(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+"~", []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, e *Engine) string {
	t.Helper()
	s := e.Current()
	if s == nil {
		return "no policy"
	}
	return show(s.Allow(context.Background(), ask(t, `{}`, alpha())))
}

func module(value string) string { return "package mcp.authz\n\nallow := " + value + "\n" }

func TestReload(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "authz.rego")
	write(t, dir, map[string]string{"authz.rego": module("false")})
	e, logged := run(t, dir, time.Hour)
	first := e.Status()
	if got := answer(t, e); got != "false" || first.Revision == "" || first.Revision != e.Current().Revision() {
		t.Fatalf("at start: %s, %+v", got, first)
	}
	logged.expect(t, "policy in force", "policy_revision="+first.Revision)
	<-e.Changed()

	save(t, path, module("true"))
	<-e.Changed()
	if got := answer(t, e); got != "true" {
		t.Errorf("after a save: %s", got)
	}
	second := e.Status()
	if second.Revision == first.Revision || second.Tried != second.Revision || second.Since.Before(first.Since) {
		t.Errorf("status after a save: %+v", second)
	}

	save(t, path, module("tru"))
	logged.expect(t, "policy refused", "authz.rego:3: var tru is unsafe", "policy_revision="+second.Revision)
	broken := e.Status()
	if got := answer(t, e); got != "true" || broken.Revision != second.Revision || len(broken.Problems) != 1 || broken.Tried == second.Revision {
		t.Errorf("broken: %s, %+v", got, broken)
	}

	save(t, path, module("true"))
	logged.expect(t, "in force again", second.Revision)
	if s := e.Status(); len(s.Problems) != 0 || s.Revision != second.Revision {
		t.Errorf("taken back: %+v", s)
	}

	write(t, dir, map[string]string{"grants/data.json": `{"a": [`})
	logged.expect(t, "policy refused", "data.json:1: not valid JSON")
	save(t, filepath.Join(dir, "grants", "data.json"), `{"a": []}`)
	logged.expect(t, "policy refused", "data.grants lies outside mcp and system.log")
	if err := os.Mkdir(filepath.Join(dir, "mcp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "grants"), filepath.Join(dir, "mcp", "grants")); err != nil {
		t.Fatal(err)
	}
	logged.expect(t, "policy in force")
	if got := answer(t, e); got != "true" {
		t.Errorf("with data: %s", got)
	}
	save(t, filepath.Join(dir, "mcp", "grants", "data.json"), `{"a": [1]}`)
	logged.expect(t, "policy in force")

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	logged.expect(t, "policy refused")
	if got := answer(t, e); got != "true" {
		t.Errorf("with the directory gone: %s", got)
	}
}

// What a policy says is wrong with it keeps it from coming into force, and the
// last good one stays until that is mended.
func TestReloadWithProblems(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "data.json")
	write(t, dir, map[string]string{
		"authz.rego": "package mcp.authz\n\nallow := data.mcp.answer\n\n" +
			"problems contains \"mcp.answer: want true or false\" if not is_boolean(data.mcp.answer)\n",
		"data.json": `{"mcp": {"answer": "yes"}}`,
	})
	e, logged := run(t, dir, time.Hour)
	want := dir + ": mcp.answer: want true or false"
	expect := func(when, allow, problems string) {
		t.Helper()
		if got := answer(t, e); got != allow {
			t.Errorf("%s: %s, want %s", when, got, allow)
		}
		if got := e.Status().Problems.Error(); got != problems {
			t.Errorf("%s: the status tells %q, want %q", when, got, problems)
		}
		if got := Check(Config{Dir: dir}).Error(); got != problems {
			t.Errorf("%s: Check tells %q, want %q", when, got, problems)
		}
	}
	logged.expect(t, "policy refused", want)
	expect("at start", "no policy", want)

	save(t, path, `{"mcp": {"answer": true}}`)
	logged.expect(t, "policy in force")
	expect("mended", "true", "")

	save(t, path, `{"mcp": {"answer": null}}`)
	logged.expect(t, "policy refused", want, "policy_revision="+e.Current().Revision())
	expect("spoilt", "true", want)

	save(t, path, `{"mcp": {"answer": false}}`)
	logged.expect(t, "policy in force")
	expect("mended again", "false", "")
}

// A policy without anything to say about itself comes into force.
func TestNoProblems(t *testing.T) {
	for name, rule := range map[string]string{
		"a set":     "problems := set()",
		"an array":  "problems := []",
		"members":   `problems contains "x" if data.mcp.none`,
		"undefined": `problems := ["x"] if data.mcp.none`,
		"the input": `problems contains "x" if input != {}`,
	} {
		if problems := Check(Config{FS: files("allow := true\n\n"+rule, "")}); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// An engine can start before its policy is there or good. Meanwhile there is
// none.
func TestStartBroken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	e, logged := run(t, dir, 10*time.Millisecond)
	if got := answer(t, e); got != "no policy" {
		t.Errorf("without a directory: %s", got)
	}
	if got := e.Status().Problems.Error(); got != dir+": no such policy directory: create it, or correct the path" {
		t.Errorf("without a directory: %s", got)
	}
	write(t, dir, map[string]string{"authz.rego": "package"})
	logged.expect(t, "policy refused", "authz.rego:1")
	if got := answer(t, e); got != "no policy" {
		t.Errorf("broken: %s", got)
	}
	save(t, filepath.Join(dir, "authz.rego"), module("true"))
	logged.expect(t, "policy in force")
	if got := answer(t, e); got != "true" {
		t.Errorf("mended: %s", got)
	}
}

// A link in the path to the directory that is pointed elsewhere is no event.
func TestReleases(t *testing.T) {
	parent := t.TempDir()
	write(t, parent, map[string]string{"1/authz.rego": module("false"), "2/authz.rego": module("true"), "now": "-> 1"})
	e, logged := run(t, filepath.Join(parent, "now"), 10*time.Millisecond)
	if got := answer(t, e); got != "false" {
		t.Errorf("release 1: %s", got)
	}
	logged.expect(t, "policy in force")
	write(t, parent, map[string]string{"next": "-> 2"})
	if err := os.Rename(filepath.Join(parent, "next"), filepath.Join(parent, "now")); err != nil {
		t.Fatal(err)
	}
	logged.expect(t, "policy in force")
	if got := answer(t, e); got != "true" {
		t.Errorf("release 2: %s", got)
	}
}

// A policy that is being written is not read halfway, whenever the files are
// rechecked: without the file that is away for a moment it would be a policy, and
// one that allows more.
func TestHalfWritten(t *testing.T) {
	dir := t.TempDir()
	gate := map[string]string{"call.rego": "package mcp.authz\n\ncall if input.claims.sub\n"}
	write(t, dir, map[string]string{"authz.rego": module("true")})
	write(t, dir, gate)
	e, logged := run(t, dir, time.Millisecond)
	logged.expect(t, "policy in force", "call_gate=true")
	for range 10 {
		if err := os.Remove(filepath.Join(dir, "call.rego")); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if time.Sleep(2 * time.Millisecond); !e.Current().HasCall() {
				t.Fatal("the gate is gone")
			}
		}
		write(t, dir, gate)
		time.Sleep(3 * quiet)
	}
	if err := os.Remove(filepath.Join(dir, "call.rego")); err != nil {
		t.Fatal(err)
	}
	logged.expect(t, "policy in force", "call_gate=false")
}

// Requests keep to one snapshot while policies come and go under them: every
// answer is that of the revision it was asked of.
func TestReloadWhileEvaluating(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) map[string]string {
		return map[string]string{
			"authz.rego": fmt.Sprintf("package mcp.authz\n\nallow if data.mcp.version == %d\n\ncall := allow\n", n),
			"data.json":  fmt.Sprintf(`{"mcp": {"version": %d, "grants": {"a": ["read"]}}}`, n),
		}
	}
	write(t, dir, version(0))
	e, err := New(Config{Dir: dir, Deadline: time.Minute, ListDeadline: time.Minute}, discard())
	if err != nil {
		t.Fatal(err)
	}
	q := ask(t, `{"roles": ["a"], "n": 12345678901234567890}`, alpha())
	items := NewItems([]*Item{q.Item, item(t, Tool{Server: "beta", Name: "x"}), q.Item})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				s := e.Current()
				if d := s.Allow(context.Background(), q); show(d) != "true" {
					t.Errorf("allow: %s", show(d))
				}
				if d := s.Call(context.Background(), q, []byte(`{"x": 1}`)); show(d) != "true" {
					t.Errorf("call: %s", show(d))
				}
				for _, d := range each(t, s, q.Subject, items) {
					if show(d) != "true" {
						t.Errorf("each: %s", show(d))
					}
				}
			}
		})
	}
	revisions := map[string]bool{}
	for n := range 30 {
		write(t, dir, version(n))
		e.reload()
		revisions[e.Current().Revision()] = true
	}
	stop()
	readers.Wait()
	if len(revisions) != 30 {
		t.Errorf("%d revisions", len(revisions))
	}
}

func TestConfig(t *testing.T) {
	c := Config{Deadline: -1, ListDeadline: -1, InsecureBuiltins: []string{"http.send", "startswith"}}
	const want = `dir: no policy is given
deadline: -1ns is negative
list_deadline: -1ns is negative
insecure_builtins: "startswith" is not off; names that can stand here are http.send, net.lookup_ip_addr, opa.runtime, rand.intn, uuid.rfc4122`
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if _, err := New(c, discard()); err == nil || err.Error() != want {
		t.Errorf("New: %v", err)
	}
	logged := make(messages, 10)
	e, err := New(Config{FS: files("allow if rand.intn(\"a\", 1) == 0", ""), InsecureBuiltins: []string{"rand.intn"}}, slog.New(logged))
	if err != nil {
		t.Fatal(err)
	}
	logged.expect(t, "builtin=rand.intn")
	if got := answer(t, e); got != "true" {
		t.Errorf("rand.intn turned on: %s", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Whatever OPA trips over while loading is a problem, not the end of the process.
func TestPanicWhileLoading(t *testing.T) {
	tree, _ := readTree(files("allow := true", ""), "dir")
	const want = "dir: loading the policy panicked: runtime error: invalid memory address or nil pointer dereference"
	if _, problems := newSnapshot(tree, Config{}, nil); problems.Error() != want {
		t.Errorf("got %s", problems)
	}
}

// What a policy prints goes to the log where somebody listens at debug level.
func TestPrint(t *testing.T) {
	var out strings.Builder
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: `level=DEBUG msg="policy print" at=authz.rego:3 text="seen read"` + "\n",
		slog.LevelInfo:  "",
	} {
		out.Reset()
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		e, err := New(Config{FS: files(`allow if { print("seen", input.tool.name) }`, "")}, log)
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if got := answer(t, e); got != "true" || out.String() != want {
			t.Errorf("at %v: %s, logged %s", level, got, out.String())
		}
	}
}
