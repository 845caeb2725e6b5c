package registry

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestOpenFileRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenFile(filepath.Join(dir, "absent.yaml"), quiet()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := OpenFile(dir, quiet()); err == nil || !strings.HasSuffix(err.Error(), "it has no *.yaml file") {
		t.Errorf("empty directory: %v", err)
	}
	write(t, dir, "a.yaml", "version: 1\nservers:\n  s: {ownr: x}\n")
	write(t, dir, "b.yml", "version: 2\n")
	want := dir + "/a.yaml:3: servers.s.ownr: unknown key; did you mean owner?\n" + dir + "/b.yml:1: version: want version: 1"
	if _, err := OpenFile(dir, quiet()); err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestOneFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "c.yaml", catalogueYAML("a", 1, "read"))
	write(t, dir, "other.yaml", "not a catalogue")
	f := openFile(t, filepath.Join(dir, "c.yaml"))
	defer f.Close()
	if c := load(t, f); len(c.Tools) != 1 {
		t.Errorf("%d tools", len(c.Tools))
	}
	write(t, dir, "c.yaml", catalogueYAML("a", 2, "read"))
	eventually(t, 20*time.Second, "the file is read again after a rename over it", func() bool { return len(load(t, f).Tools) == 2 })
	os.Remove(filepath.Join(dir, "c.yaml"))
	if _, err := f.Head(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
}

func TestEmbedded(t *testing.T) {
	f, err := OpenFS(fstest.MapFS{
		"a.yaml":        {Data: []byte(catalogueYAML("a", 1, "read"))},
		"b.yml":         {Data: []byte(catalogueYAML("b", 1, "read"))},
		".hidden.yaml":  {Data: []byte("not a catalogue")},
		"notes.txt":     {Data: []byte("not a catalogue")},
		"deeper/c.yaml": {Data: []byte("not a catalogue")},
	}, "embedded", quiet())
	if err != nil {
		t.Fatal(err)
	}
	if c := load(t, f); len(c.Tools) != 2 {
		t.Errorf("%d tools", len(c.Tools))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A mounted volume is changed by swapping the symbolic link that all files go
// through.
func TestSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	for i, version := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version), "c.yaml", catalogueYAML("a", i+1, "read"))
	}
	link := func(old, new string) {
		if err := os.Symlink(old, filepath.Join(dir, new)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link("..data/c.yaml", "c.yaml")
	f := openFile(t, dir)
	defer f.Close()
	link("..2", "..next")
	if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the new link is followed", func() bool { return len(load(t, f).Tools) == 2 })
}

// What else is written in the directory, such as a log, neither counts as a
// change of the catalogue nor keeps one from being noticed.
func TestBusyDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "c.yaml", catalogueYAML("a", 1, "read"))
	for _, name := range []string{dir, filepath.Join(dir, "c.yaml")} {
		f := openFile(t, name)
		log, err := os.Create(filepath.Join(dir, "decisions.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for tick := time.NewTicker(rest / 20); ; {
				select {
				case <-stop:
					return
				case <-tick.C:
					_, _ = log.WriteString("{}\n")
				}
			}
		}()
		select {
		case <-f.Changed():
			t.Errorf("%s: another file counts as a change", name)
		case <-time.After(3 * rest):
		}
		write(t, dir, "c.yaml", catalogueYAML("a", 2, "read"))
		select {
		case <-f.Changed():
		case <-time.After(10 * time.Second):
			t.Errorf("%s: no change noticed beside a log that is written all the time", name)
		}
		close(stop)
		<-stopped
		log.Close()
		f.Close()
	}
}

// polled is a file source whose watcher sees nothing.
func polled(t *testing.T, dir string) *File {
	t.Helper()
	f := openFile(t, dir)
	if err := f.watch.close(); err != nil {
		t.Fatal(err)
	}
	f.watch = nil
	return f
}

// Without the watcher a change has to look the same twice, so a file that is
// being written never counts, although its beginning is a valid catalogue.
func TestPolledFileMustRest(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "c.yaml")
	write(t, dir, "c.yaml", catalogueYAML("a", 3, "read"))
	f := polled(t, dir)
	text := catalogueYAML("a", 4, "read")
	for _, part := range []int{1, 2, 3} { // each a whole tool more
		cut := strings.Index(text, "      tool_0000"+string(rune('0'+part)))
		if err := os.WriteFile(name, []byte(text[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := len(load(t, f).Tools); n != 3 {
			t.Fatalf("%d tools of a file that is being written", n)
		}
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	head(t, f)
	if n := len(load(t, f).Tools); n != 4 {
		t.Errorf("%d tools after the file came to rest", n)
	}
}

// A file that was cut off is refused where it no longer is a document, and
// the last good catalogue stays.
func TestTruncatedFile(t *testing.T) {
	dir := t.TempDir()
	text := catalogueYAML("a", 3, "read")
	write(t, dir, "c.yaml", text)
	f := polled(t, dir)
	good := head(t, f)
	for _, bad := range []string{"", text[:len(text)-3], text[:strings.LastIndex(text, "effect")], "\xff\xfe"} {
		write(t, dir, "c.yaml", bad)
		for range 2 {
			if head(t, f) != good {
				t.Errorf("accepted %q", bad)
			}
		}
		if len(f.Problems()) == 0 {
			t.Errorf("no problem with %q", bad)
		}
	}
}
