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
)

const sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func readText(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFileQuarantine(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 2, "read"))
	f := openFile(t, dir)
	defer f.Close()
	by := Author{Name: "someone"}
	before := head(t, f)
	after, err := f.Quarantine(t.Context(), by, Quarantined{Server: "a", Tool: "tool_00001", Reason: "it leaks: see the log"})
	if err != nil || after == before || head(t, f) != after {
		t.Fatalf("%v, %v", after, err)
	}
	if _, err := f.Quarantine(t.Context(), by, Quarantined{Server: "gone", Reason: "not \u2014 there"}); err != nil {
		t.Fatal(err)
	}
	c := load(t, f)
	if len(c.Quarantine) != 2 || c.Quarantine[0].By != "someone" || time.Since(c.Quarantine[0].Since) > time.Minute || c.Quarantine[1].Server != "gone" {
		t.Errorf("%+v", c.Quarantine)
	}
	s := NewSnapshot(c, time.Now())
	for _, x := range []struct {
		server, tool string
		want         bool
	}{{"a", "tool_00001", true}, {"a", "tool_00000", false}, {"a", "", false}, {"gone", "", true}, {"gone", "x", true}} {
		if _, got := s.Quarantined(x.server, x.tool); got != x.want {
			t.Errorf("%s/%s: %v", x.server, x.tool, got)
		}
	}
	if _, err := f.Quarantine(t.Context(), by, Quarantined{Server: "a", Tool: "tool_00001", Reason: "another"}); err != nil {
		t.Fatal(err)
	}
	if c := load(t, f); len(c.Quarantine) != 2 || c.Quarantine[0].Reason != "another" {
		t.Errorf("%+v", c.Quarantine)
	}
	other := openFile(t, dir) // as after a restart
	defer other.Close()
	if !reflect.DeepEqual(load(t, other), load(t, f)) {
		t.Error("another reader has another catalogue")
	}
	for _, server := range []string{"a", "gone"} {
		tool := map[string]string{"a": "tool_00001"}[server]
		if _, err := f.Release(t.Context(), by, server, tool); err != nil {
			t.Error(err)
		}
	}
	if got := head(t, f); got != before {
		t.Errorf("after the release %v, before the quarantine %v", got, before)
	}
	if _, err := f.Release(t.Context(), by, "a", "tool_00001"); !errors.Is(err, ErrUnknown) || err.Error() != "release a/tool_00001: a quarantine of that is not in the registry" {
		t.Errorf("a second release: %v", err)
	}
}

// What people wrote is theirs, and what cannot be read is not replaced.
func TestFileQuarantineRefused(t *testing.T) {
	by := Author{Name: "someone"}
	for _, c := range []struct{ name, file, text, want string }{
		{"by hand", "b.yaml", "version: 1\nquarantine:\n  - {server: a, reason: mine}\n", "a is in quarantine already, in DIR/b.yaml:3: change the reason there"},
		{"broken", "quarantine.yaml", "version: 1\nquarantin: []\n", "DIR/quarantine.yaml:2: quarantin: unknown key; did you mean quarantine?"},
		{"with servers", "quarantine.yaml", "version: 1\nservers: {b: {}}\n", "DIR/quarantine.yaml: has servers, and a command would lose their comments: move them to another file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "a.yaml", catalogueYAML("a", 2, "read"))
			f := openFile(t, dir)
			defer f.Close()
			write(t, dir, c.file, c.text)
			_, err := f.Quarantine(t.Context(), by, Quarantined{Server: "a", Reason: "no"})
			if want := strings.ReplaceAll(c.want, "DIR", filepath.ToSlash(dir)); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if got := readText(t, filepath.Join(dir, c.file)); got != c.text {
				t.Errorf("the file is now %s", got)
			}
		})
	}
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 2, "read"))
	embedded, err := OpenFS(os.DirFS(dir), "embedded", quiet())
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*File{"one file": openFile(t, filepath.Join(dir, "a.yaml")), "embedded": embedded} {
		if _, err := f.Quarantine(t.Context(), by, Quarantined{Server: "a", Reason: "no"}); !errors.Is(err, ErrReadOnly) || !strings.HasSuffix(err.Error(), "is not a directory; name a directory in registry.path, such as regogate init writes") {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
	f := openFile(t, dir)
	defer f.Close()
	for _, c := range []struct {
		q    Quarantined
		want string
	}{
		{Quarantined{Server: "a"}, "quarantine of a.reason: is missing; say why, in a line"},
		{Quarantined{Server: "a", Reason: "x\ny"}, "quarantine of a.reason: contains a character that does not show"},
		{Quarantined{Server: "a b", Reason: "x"}, "quarantine of a b.server: " + ServerRule},
		{Quarantined{Server: "a", Tool: "b c", Reason: "x"}, "quarantine of a/b c.tool: " + ToolRule},
	} {
		if _, err := f.Quarantine(t.Context(), by, c.q); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// Digests are replaced where they stand; nothing else in the file changes.
func TestFileApprove(t *testing.T) {
	dir := t.TempDir()
	inline := strings.Replace(catalogueYAML("a", 3, "read"), "effect: read", "effect: read # stays\n        sha256: "+strings.Repeat("a", 64)+" # stays too", 1)
	write(t, dir, "a.yaml", inline)
	write(t, dir, "b.yaml", catalogueYAML("b", 1, "read")+"pins:\n  a: {tool_00001: \""+strings.Repeat("b", 64)+"\"}\n")
	f := openFile(t, dir)
	defer f.Close()
	definition := []byte(`{"inputSchema":{"type":"object"},"name":"x","n":1.50}`)
	for _, x := range []string{"a/tool_00000", "a/tool_00001", "a/tool_00002", "b/tool_00000"} {
		server, tool, _ := strings.Cut(x, "/")
		if _, err := f.Definition(t.Context(), server, tool, sha); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: the definition before: %v", x, err)
		}
		if _, err := f.Approve(t.Context(), Author{}, server, tool, sha, definition); err != nil {
			t.Errorf("%s: %v", x, err)
		}
		kept, err := f.Definition(t.Context(), server, tool, sha)
		if want := "{\n  \"inputSchema\": {\n    \"type\": \"object\"\n  },\n  \"name\": \"x\",\n  \"n\": 1.50\n}\n"; err != nil || string(kept) != want {
			t.Errorf("%s: kept %q, %v", x, kept, err)
		}
	}
	for _, tool := range load(t, f).Tools {
		if tool.SHA256 != sha {
			t.Errorf("%s/%s is pinned to %q", tool.Server, tool.Name, tool.SHA256)
		}
	}
	if got, want := readText(t, filepath.Join(dir, "a.yaml")), strings.Replace(inline, strings.Repeat("a", 64), sha, 1); got != want {
		t.Errorf("a.yaml is now\n%s", got)
	}
	if got, want := readText(t, filepath.Join(dir, "pins.yaml")), written+"version: 1\npins:\n  a:\n    tool_00002: "+sha+"\n  b:\n    tool_00000: "+sha+"\n"; got != want {
		t.Errorf("pins.yaml is\n%s", got)
	}
	if _, err := f.Approve(t.Context(), Author{}, "a", "nothing", sha, definition); !errors.Is(err, ErrUnknown) || err.Error() != "approve a/nothing: the tool is not in the registry; give it an entry that is not suggested" {
		t.Errorf("no such tool: %v", err)
	}
	if _, err := f.Approve(t.Context(), Author{}, "a", "tool_00000", "0X", definition); err == nil || err.Error() != "approve a/tool_00000: want 64 lower-case hexadecimal digits" {
		t.Errorf("no digest: %v", err)
	}
}

// What a backend can make long when it is written for people is kept as it is, and
// nothing is kept that could not be read again.
func TestFileApproveWide(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 1, "read"))
	f := openFile(t, dir)
	defer f.Close()
	deep := `{"inputSchema":` + strings.Repeat("[", 126) + strings.Repeat("0,", 50_000) + "0" + strings.Repeat("]", 126) + `}`
	if _, err := f.Approve(t.Context(), Author{Name: "x"}, "a", "tool_00000", sha, []byte(deep)); err != nil {
		t.Fatal(err)
	}
	if kept, err := f.Definition(t.Context(), "a", "tool_00000", sha); err != nil || string(kept) != deep+"\n" {
		t.Errorf("%d bytes, %v", len(kept), err)
	}
	huge := `{"description":"` + strings.Repeat("x", maxDefinition) + `"}`
	if _, err := f.Approve(t.Context(), Author{Name: "x"}, "a", "tool_00000", sha, []byte(huge)); err == nil {
		t.Error("a definition was kept that cannot be read again")
	}
}

// A change that was given up before it began changes nothing.
func TestFileChangeGivenUp(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 1, "read"))
	f := openFile(t, dir)
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Approve(ctx, Author{Name: "x"}, "a", "tool_00000", sha, []byte("{}"))
	if !errors.Is(err, context.Canceled) || load(t, f).Tools[0].SHA256 != "" {
		t.Errorf("%v, pinned to %q", err, load(t, f).Tools[0].SHA256)
	}
}

func TestPinsApart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", strings.Replace(catalogueYAML("a", 2, "read"), "effect: read", "effect: read\n        sha256: "+strings.Repeat("a", 64), 1))
	for _, c := range []struct{ pins, want string }{
		{"a: {tool_00000: " + sha + "}", "DIR/pins.yaml:2: pins.a.tool_00000: the tool is pinned to aaaaaaaaaaaa already; remove one of the two"},
		{"a: {nothing: " + sha + "}", "DIR/pins.yaml:2: pins.a.nothing: no server's entry has this tool; remove the pin, or add the tool"},
		{"a: {tool_00001: abc}", "DIR/pins.yaml:2: pins.a.tool_00001: want 64 lower-case hexadecimal digits"},
	} {
		write(t, dir, "pins.yaml", "version: 1\npins: {"+c.pins+"}\n")
		_, err := OpenFile(dir, quiet())
		if want := strings.ReplaceAll(c.want, "DIR", filepath.ToSlash(dir)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", c.pins, err, want)
		}
	}
}

// Commands at the same time lose nothing of each other's.
func TestFileChangedAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 9, "read"))
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			f := openFile(t, dir)
			defer f.Close()
			tool := "tool_0000" + string(rune('0'+i))
			if _, err := f.Quarantine(t.Context(), Author{}, Quarantined{Server: "a", Tool: tool, Reason: "r"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f := openFile(t, dir)
	defer f.Close()
	if got := load(t, f).Quarantine; len(got) != 9 {
		t.Errorf("%d of 9: %+v", len(got), got)
	}
}
