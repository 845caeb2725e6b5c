package registry

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// quarantined are the tools of server a that a snapshot has in quarantine.
func quarantined(s *Snapshot) (tools []string) {
	for _, tool := range s.Tools() {
		if _, yes := s.Quarantined(tool.Server, tool.Name); yes {
			tools = append(tools, tool.Name)
		}
	}
	return tools
}

// TestQuarantineWhileBroken changes a directory in which somebody broke a file, and
// looks at what a gateway has in force after each change.
func TestQuarantineWhileBroken(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 4, "read"))
	f := polled(t, dir)
	k := NewKeeper(f, Config{}, quiet())
	defer k.Close()
	if err := k.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := k.Current()
	problem := func(file, text string) string { return filepath.ToSlash(dir) + "/" + file + text }
	typo := problem("b.yaml", ":2: servres: unknown key; did you mean servers?")
	misspelt := problem("quarantine.yaml", ":2: quarantin: unknown key; did you mean quarantine?")
	nameless := problem("quarantine.yaml", ":4: quarantine[1].server: "+ServerRule)
	operator := func(t *testing.T) Store {
		store, err := OpenStore(Config{Path: dir}, nil, quiet())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
	for _, step := range []struct {
		name     string
		change   func(t *testing.T)
		want     []string // in quarantine
		problems []string
	}{
		{"a typo", func(t *testing.T) { write(t, dir, "b.yaml", "version: 1\nservres: {}\n") }, nil, []string{typo}},
		{"a quarantine", func(t *testing.T) {
			head, err := operator(t).Quarantine(t.Context(), Author{Name: "someone"}, Quarantined{Server: "a", Tool: "tool_00001", Reason: "r"})
			if err != nil || head != (Head{}) {
				t.Errorf("%v, %v", head, err)
			}
		}, []string{"tool_00001"}, []string{typo}},
		{"nothing is given back", func(t *testing.T) {
			was := readText(t, filepath.Join(dir, "quarantine.yaml"))
			for _, store := range []Store{operator(t), f} {
				if _, err := store.Release(t.Context(), Author{}, "a", "tool_00001"); err == nil || err.Error() != typo+"\nrelease a/tool_00001: no gateway takes it over before that is mended" {
					t.Errorf("release: %v", err)
				}
				if _, err := store.Approve(t.Context(), Author{}, "a", "tool_00001", sha, []byte("{}")); err == nil || err.Error() != typo+"\napprove a/tool_00001: no gateway takes it over before that is mended" {
					t.Errorf("approve: %v", err)
				}
			}
			if now := readText(t, filepath.Join(dir, "quarantine.yaml")); now != was {
				t.Errorf("quarantine.yaml is now %s", now)
			}
		}, []string{"tool_00001"}, []string{typo}},
		{"also not by hand", func(t *testing.T) { write(t, dir, "quarantine.yaml", "version: 1\n") }, []string{"tool_00001"}, []string{typo}},
		{"a misspelt quarantine", func(t *testing.T) { write(t, dir, "quarantine.yaml", "version: 1\nquarantin: []\n") }, []string{"tool_00001"}, []string{typo, misspelt}},
		{"a wrong entry after a right one", func(t *testing.T) {
			write(t, dir, "quarantine.yaml", "version: 1\nquarantine:\n  - {server: a, tool: tool_00002, reason: r}\n  - {server: a b, reason: r}\n")
		}, []string{"tool_00001", "tool_00002"}, []string{typo, nameless}},
		{"other changes do not count", func(t *testing.T) { write(t, dir, "a.yaml", catalogueYAML("a", 3, "write")) },
			[]string{"tool_00001", "tool_00002"}, []string{typo, nameless}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.change(t)
			rested(t, k)
			s := k.Current()
			if got := quarantined(s); !reflect.DeepEqual(got, step.want) {
				t.Errorf("in quarantine %q, want %q", got, step.want)
			}
			if !reflect.DeepEqual(s.Tools(), before.Tools()) {
				t.Error("the tools are others")
			}
			if got := k.Status().Problems; !reflect.DeepEqual(got, step.problems) {
				t.Errorf("problems %q, want %q", got, step.problems)
			}
		})
	}
	if len(quarantined(before)) > 0 {
		t.Error("a snapshot was changed")
	}
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "quarantine.yaml", "version: 1\nquarantine:\n  - {server: a, tool: tool_00000, reason: r}\n")
	rested(t, k)
	other := openFile(t, dir)
	defer other.Close()
	if got, want := load(t, f), load(t, other); !reflect.DeepEqual(got, want) || k.Current().Digest() != want.Head.Digest || len(k.Status().Problems) > 0 {
		t.Errorf("after the repair %+v, want what is written, %+v; problems %q", got, want, k.Status().Problems)
	}
}

// rested refreshes as often as a change needs that the watcher does not report.
func rested(t *testing.T, k *Keeper) {
	t.Helper()
	for range 2 {
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What is signed stays as signed.
func TestQuarantineBesideBrokenSignature(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 1, "read"))
	write(t, dir, signatureName, "a.b.c\n")
	f := openFile(t, dir)
	defer f.Close()
	good := load(t, f)
	write(t, dir, signatureName, "two\nlines\n")
	head, err := f.Quarantine(t.Context(), Author{Name: "someone"}, Quarantined{Server: "a", Reason: "r"})
	if err != nil {
		t.Fatal(err)
	}
	c := load(t, f)
	if c.Head != head || c.Signature != good.Signature || c.Content != good.Content || len(c.Quarantine) != 1 || c.Head == good.Head {
		t.Errorf("%+v", c)
	}
	want := filepath.ToSlash(dir) + "/" + signatureName + ": want one line, as regogate registry sign writes it: sign the catalogue again"
	if got := f.Problems(); len(got) != 1 || got[0] != want {
		t.Errorf("problems %q, want %q", got, want)
	}
	if _, err := f.Release(t.Context(), Author{}, "a", ""); err == nil || !strings.HasPrefix(err.Error(), want+"\nrelease a: ") {
		t.Errorf("release: %v", err)
	}
}

// Files with problems open for a change, and are told by everything else.
func TestOpenBrokenStore(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "version: 1\nservres: {}\n")
	for _, name := range []string{dir, filepath.Join(dir, "a.yaml")} {
		store, err := OpenStore(Config{Path: name}, nil, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		want := filepath.ToSlash(dir) + "/a.yaml:2: servres: unknown key; did you mean servers?"
		if _, err := store.Head(t.Context()); err == nil || err.Error() != want {
			t.Errorf("head: %v", err)
		}
		if _, err := store.Load(t.Context(), Head{}); err == nil || err.Error() != want {
			t.Errorf("load: %v", err)
		}
	}
	store, err := OpenStore(Config{Path: dir}, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	write(t, dir, "a.yaml", catalogueYAML("a", 1, "read"))
	if head, err := store.Quarantine(t.Context(), Author{}, Quarantined{Server: "a", Reason: "r"}); err != nil || head != load(t, store).Head {
		t.Errorf("after the repair: %v, %v", head, err)
	}
}
