//go:build unix

package gateway_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// TestNothingWithoutAFile takes away the file of the decision log in every way
// that there is: lists and calls are refused before a backend hears of them, and
// go through again when it is back, without a restart.
func TestNothingWithoutAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	path := filepath.Join(dir, "decisions.jsonl")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o700))
	g, d := filedRig(t, path)
	p := modern(t, g.World, "/mcp", "developer")
	call := func() string {
		_, answer := p.do("tools/call", `{"name":"shop__open","arguments":{}}`)
		return answer
	}
	gone := func() { must(os.RemoveAll(path)) }
	const taken = "a pipe that nobody reads any more is in its place"
	for _, c := range []struct {
		name        string
		needs       bool
		spoil, mend func()
	}{
		{"the disk is full", exists("/dev/full"), func() { gone(); must(os.Symlink("/dev/full", path)) }, gone},
		{"the directory is removed", true, func() { must(os.RemoveAll(dir)) }, func() { must(os.Mkdir(dir, 0o700)) }},
		{"a file is in the place of the directory", true,
			func() { must(os.RemoveAll(dir)); must(os.WriteFile(dir, nil, 0o600)) }, func() { must(os.Remove(dir)); must(os.Mkdir(dir, 0o700)) }},
		{"a directory is in its place", true, func() { gone(); must(os.Mkdir(path, 0o700)) }, gone},
		{"nobody may write there", os.Geteuid() != 0, func() { gone(); must(os.Chmod(dir, 0o500)) }, func() { must(os.Chmod(dir, 0o700)) }},
		{"a pipe that nobody reads is in its place", true, func() { gone(); must(syscall.Mkfifo(path, 0o600)) }, gone},
		{taken, true, func() {
			gone()
			must(syscall.Mkfifo(path, 0o600))
			reader, err := os.OpenFile(path, os.O_RDWR, 0)
			must(err)
			call()
			must(d.Flush(t.Context()))
			must(reader.Close())
		}, gone},
	} {
		if !c.needs {
			continue
		}
		if answer := call(); !strings.Contains(answer, "shop ran open") {
			t.Fatalf("before %s: %s", c.name, answer)
		}
		must(d.Flush(t.Context()))
		decided := len(g.Records.All())
		c.spoil()
		if c.name == taken {
			decided = len(g.Records.All())
		}
		eventually(t, c.name, func() bool { return call() == unlogged })
		before := len(g.arrived())
		for _, ask := range asks() {
			if _, answer := p.do(ask[0], ask[1]); answer != unlogged {
				t.Errorf("%s: %s %s: %s", c.name, ask[0], ask[1], answer)
			}
		}
		if got := len(g.arrived()); got != before {
			t.Errorf("%s: %d requests arrived", c.name, got-before)
		}
		c.mend()
		eventually(t, "not any more: "+c.name, func() bool { return strings.Contains(call(), "shop ran open") })
		eventually(t, "every decision since "+c.name+" is on record", func() bool {
			text, err := os.ReadFile(path)
			must(err)
			return !slices.ContainsFunc(g.Records.All()[decided:], func(r *decisionlog.Record) bool { return !strings.Contains(string(text), r.ID) })
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// filedRig is a rig whose decisions go to a file, or are not taken.
func filedRig(t *testing.T, path string) (*rig, *gateway.Decisions) {
	t.Helper()
	rules := newRules(t)
	config := gateway.Config{DecisionLog: gateway.DecisionLog{File: path, MaxSize: 1 << 20, Keep: 1, FailClosed: true}}
	d, err := gateway.OpenDecisions(&config, "v1", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // when the world has ended
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	w := start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		Servers:   []*world.Server{shop()}, Record: func(*gateway.Config) decisionlog.Recorder { return d },
		Adjust: func(c *gateway.Config) { c.Policy.Dir, c.Policy.Deadline = rules.dir, 10*time.Second },
	})
	return &rig{w, t, rules}, d
}
