//go:build unix

package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/regogate/regogate/e2e/pgserver"
	"github.com/regogate/regogate/e2e/redisserver"
)

// truth is a directory of catalogue files and a kind of source over it.
type truth struct {
	dir     string
	open    func(t *testing.T) Source
	publish func(t *testing.T) // makes what the directory says the source's; nil where it looks itself
	cfg     PostgresConfig     // where it is in PostgreSQL
}

func (tr *truth) write(t *testing.T, name, text string) {
	t.Helper()
	write(t, tr.dir, name, text)
	tr.changed(t)
}

func (tr *truth) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(tr.dir, name)); err != nil {
		t.Fatal(err)
	}
	tr.changed(t)
}

func (tr *truth) changed(t *testing.T) {
	t.Helper()
	if tr.publish != nil {
		tr.publish(t)
	}
}

// cachedBy puts a cache in that Redis before what a kind of source opens.
func cachedBy(addr string, kind func(t *testing.T) *truth) func(t *testing.T) *truth {
	return func(t *testing.T) *truth {
		tr := kind(t)
		open := tr.open
		tr.open = func(t *testing.T) Source {
			return NewCached(open(t), clientOf(t, addr), t.Name(), time.Hour, quiet())
		}
		return tr
	}
}

func fileTruth(t *testing.T) *truth {
	tr := &truth{dir: t.TempDir()}
	tr.open = func(t *testing.T) Source { return openFile(t, tr.dir) }
	return tr
}

// sources are the implementations that the suite is run for.
func sources(t *testing.T) map[string]func(t *testing.T) *truth {
	small := miniredis.RunT(t)
	real := redisserver.Start(t)
	postgres := postgresTruth(pgserver.Start(t))
	return map[string]func(t *testing.T) *truth{
		"file":                    fileTruth,
		"cached(miniredis)":       cachedBy(small.Addr(), fileTruth),
		"cached(redis)":           cachedBy(real.Addr, fileTruth),
		"postgres":                postgres,
		"cached(redis, postgres)": cachedBy(real.Addr, postgres),
	}
}

func TestSources(t *testing.T) {
	for name, kind := range sources(t) {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				run  func(t *testing.T, kind func(t *testing.T) *truth)
			}{
				{"content", testContent},
				{"change", testChange},
				{"replicas", testReplicas},
				{"bad edit", testBadEdit},
				{"gone", testGone},
				{"concurrent", testConcurrent},
				{"cancelled", testCancelled},
				{"revoked within a second", testRevoked},
			} {
				t.Run(c.name, func(t *testing.T) { c.run(t, kind) })
			}
		})
	}
}

func begin(t *testing.T, kind func(t *testing.T) *truth) (tr *truth, s Source) {
	t.Helper()
	tr = kind(t)
	write(t, tr.dir, "a.yaml", catalogueYAML("a", 3, "read"))
	tr.write(t, "b.yaml", catalogueYAML("b", 2, "write"))
	s = tr.open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr, s
}

func testContent(t *testing.T, kind func(t *testing.T) *truth) {
	_, s := begin(t, kind)
	want := Tool{Server: "b", Name: "tool_00001", Description: "Does the thing number 1.",
		Attributes: []string{"developer", "infrastructure"}, Effect: "write", Data: "internal", Reach: "external",
		Env: "production", Owner: "some-team", Labels: map[string]string{"tier": "gold", "number": "1"}}
	server := Server{Name: "b", Data: "internal", Reach: "external", Env: "production", Owner: "some-team"}
	for range 2 { // the second time from the cache, where there is one
		c := load(t, s)
		if len(c.Tools) != 5 || !reflect.DeepEqual(c.Tools[4], want) {
			t.Errorf("tools %+v", c.Tools)
		}
		if len(c.Servers) != 2 || !reflect.DeepEqual(c.Servers[1], server) {
			t.Errorf("servers %+v", c.Servers)
		}
		if c.Head != head(t, s) || c.Head.Revision == "" {
			t.Errorf("head %v, catalogue's %v", head(t, s), c.Head)
		}
		if index, _ := encoded(t, c); c.Head.Digest != digest([]byte(index)) {
			t.Errorf("digest %s of tools that have %s", c.Head.Digest, digest([]byte(index)))
		}
	}
}

func testChange(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := begin(t, kind)
	first := load(t, s)
	for _, effect := range []string{"admin", "read"} { // away and back again
		before := head(t, s)
		tr.write(t, "a.yaml", catalogueYAML("a", 3, effect))
		eventually(t, 20*time.Second, "the change shows", func() bool { return head(t, s) != before })
		if c := load(t, s); c.Tools[0].Effect != effect || len(c.Tools) != 5 {
			t.Errorf("after the change: %+v", c.Tools)
		}
	}
	if again := load(t, s); again.Head.Digest != first.Head.Digest || !reflect.DeepEqual(again.Tools, first.Tools) {
		t.Errorf("the old text gives head %v, gave %v", again.Head, first.Head)
	}
	tr.remove(t, "b.yaml")
	eventually(t, 20*time.Second, "the removal shows", func() bool { return len(load(t, s).Tools) == 3 })
}

func testReplicas(t *testing.T, kind func(t *testing.T) *truth) {
	tr, one := begin(t, kind)
	two := tr.open(t)
	defer two.Close()
	for i, effect := range []string{"admin", "execute", "write"} {
		tr.write(t, "a.yaml", catalogueYAML("a", 3+i, effect))
		for _, s := range []Source{one, two} {
			eventually(t, 20*time.Second, "a replica sees the change", func() bool {
				c := load(t, s)
				return len(c.Tools) == 5+i && c.Tools[0].Effect == effect
			})
		}
		if head(t, one) != head(t, two) || !reflect.DeepEqual(load(t, one), load(t, two)) {
			t.Error("the replicas differ")
		}
	}
}

func testBadEdit(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := begin(t, kind)
	if tr.publish != nil {
		t.Skip("nobody can publish it")
	}
	good := head(t, s)
	tr.write(t, "a.yaml", catalogueYAML("a", 3, "wirte"))
	eventually(t, 20*time.Second, "the problem shows", func() bool { head(t, s); return len(s.Problems()) > 0 })
	want := filepath.ToSlash(tr.dir) + `/a.yaml:12: servers.a.tools.tool_00000.effect: unknown value "wirte"; did you mean write?`
	if got := s.Problems(); len(got) != 3 || got[0] != want {
		t.Errorf("problems %q, want first %q", got, want)
	}
	if head(t, s) != good || load(t, s).Tools[0].Effect != "read" {
		t.Error("the last good catalogue was not kept")
	}
	tr.write(t, "a.yaml", catalogueYAML("a", 3, "write"))
	eventually(t, 20*time.Second, "the repair shows", func() bool { return head(t, s) != good })
	if got := s.Problems(); len(got) != 0 {
		t.Errorf("problems after the repair: %q", got)
	}
}

func testGone(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := begin(t, kind)
	if tr.publish != nil {
		t.Skip("the directory is not the truth")
	}
	good := head(t, s)
	dir := tr.dir
	moved := dir + "-moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if h, err := s.Head(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("head %v, error %v", h, err)
	}
	if err := os.Rename(moved, dir); err != nil {
		t.Fatal(err)
	}
	if head(t, s) != good {
		t.Error("another head after the directory came back")
	}
}

func testConcurrent(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := begin(t, kind)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				h, err := s.Head(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				c, err := s.Load(t.Context(), h)
				if err != nil || len(c.Tools) < 5 {
					t.Errorf("%v, %v", c, err)
				}
				s.Problems()
			}
		})
	}
	tr.write(t, "a.yaml", catalogueYAML("a", 4, "admin"))
	wg.Wait()
}

func testCancelled(t *testing.T, kind func(t *testing.T) *truth) {
	_, s := begin(t, kind)
	h := head(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Head(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Head: %v", err)
	}
	if _, err := s.Load(ctx, h); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: %v", err)
	}
	if len(load(t, s).Tools) != 5 {
		t.Error("what was given up spoiled the next load")
	}
}

// A keeper over the source shows a revocation within a second, of a tool and of
// what a server is, whether the watcher reports it or not.
func testRevoked(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := begin(t, kind)
	k := NewKeeper(s, Config{}, quiet())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.Run(ctx) })
	defer func() { cancel(); wg.Wait() }()
	eventually(t, 20*time.Second, "the first snapshot", func() bool { return k.Current() != nil })
	text := catalogueYAML("a", 3, "read")
	tr.write(t, "a.yaml", strings.Replace(text, "effect: read", "effect: read\n        suggested: true", 1))
	eventually(t, 20*time.Second, "the revocation", func() bool {
		_, found := k.Current().Lookup("a", "tool_00000")
		return !found
	})
	if _, found := k.Current().Lookup("a", "tool_00001"); !found || !k.Fresh(time.Now()) {
		t.Error("the rest of the registry is gone")
	}
	tr.write(t, "a.yaml", text)
	eventually(t, 20*time.Second, "the way back", func() bool {
		_, found := k.Current().Lookup("a", "tool_00000")
		return found
	})
	tr.write(t, "a.yaml", strings.Replace(text, "data: internal", "data: secret", 1))
	eventually(t, 20*time.Second, "what the server is now", func() bool {
		server, found := k.Current().Server("a")
		return found && server.Data == "secret"
	})
	tr.remove(t, "a.yaml")
	eventually(t, 20*time.Second, "the server's end", func() bool {
		_, found := k.Current().Server("a")
		return !found
	})
}
