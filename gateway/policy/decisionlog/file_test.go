package decisionlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func openFile(t *testing.T, path string, max int64, keep int) *File {
	t.Helper()
	f, err := OpenFile(path, max, keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// files are the contents of the directory by name.
func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Name()+"="+strings.ReplaceAll(string(b), "\n", ";"))
	}
	return strings.Join(out, " ")
}

func writeTo(t *testing.T, f *File, text string) {
	t.Helper()
	if n, err := f.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestFileRotates(t *testing.T) {
	dir := t.TempDir()
	f := openFile(t, filepath.Join(dir, "log"), 10, 2)
	for i := range 9 {
		writeTo(t, f, fmt.Sprintf("line%d\n", i))
		if i == 1 {
			if got, want := files(t, dir), "log=line1; log.1=line0;"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	writeTo(t, f, "x\n")
	if got, want := files(t, dir), "log=line8;x; log.1=line7; log.2=line6;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// What is larger than the bound has a file of its own.
	writeTo(t, f, "a line of many bytes\n")
	writeTo(t, f, "y\n")
	if got, want := files(t, dir), "log=y; log.1=a line of many bytes; log.2=line8;x;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A gap among the rotated files is filled before the oldest goes.
func TestFileRotatesIntoGaps(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"log": "new\n", "log.2": "two\n", "log.3": "three\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeTo(t, openFile(t, filepath.Join(dir, "log"), 5, 3), "newer\n")
	if got, want := files(t, dir), "log=newer; log.1=new; log.2=two; log.3=three;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A line of which the sink took a part is not divided by a rotation.
func TestFileKeepsLinesWhole(t *testing.T) {
	dir := t.TempDir()
	f := openFile(t, filepath.Join(dir, "log"), 10, 2)
	writeTo(t, f, "123456")
	writeTo(t, f, "7890123\n")
	writeTo(t, f, "next\n")
	if got, want := files(t, dir), "log=next; log.1=1234567890123;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Somebody else may move, remove or truncate the file.
func TestFileMoves(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	f := openFile(t, path, 100, 2)
	writeTo(t, f, "one\n")
	if err := os.Rename(path, filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	writeTo(t, f, "two\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	writeTo(t, f, "three\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	writeTo(t, f, "four\n")
	if got, want := files(t, dir), "log=four; moved=one;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A process that was killed may leave half a line; a started log goes on after it.
func TestFileAppends(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	for i := range 3 {
		f := openFile(t, path, 1000, 2)
		writeTo(t, f, fmt.Sprintf("line%d\nhalf", i))
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := files(t, dir), "log=line0;half;line1;half;line2;half"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := OpenFile(dir, 1000, 2); err == nil || !strings.HasPrefix(err.Error(), "open the decision log: ") {
		t.Errorf("a directory: %v", err)
	}
}

// Something in the way of a rotation makes the sink fail until it is gone; nothing
// is lost.
func TestFileCannotRotate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	f := openFile(t, path, 10, 1)
	writeTo(t, f, "line0\n")
	if err := os.MkdirAll(filepath.Join(path+".1", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write([]byte("line1\n")); n != 0 || err == nil {
		t.Fatalf("%d, %v", n, err)
	}
	if err := os.RemoveAll(path + ".1"); err != nil {
		t.Fatal(err)
	}
	writeTo(t, f, "line1\n")
	if got, want := files(t, dir), "log=line1; log.1=line0;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A disk that is full keeps everything waiting.
func TestFullDisk(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("there is no device that is full")
	}
	logged := make(messages, 100)
	l := New(Options{Log: slog.New(logged)})
	l.Attach("file", openFile(t, full, 1000, 2))
	for i := range 10 {
		l.Record(numbered(i))
	}
	logged.expect(t, "cannot write decision records", "no space left on device")
	if got := l.Stats(); got.Waiting+got.Sinks[0].Waiting != 10 || got.Sinks[0].Written != 0 || !got.Sinks[0].Failing {
		t.Errorf("stats: %+v", got)
	}
	if err := l.Close(canceled()); err == nil || err.Error() != "close the decision log with 10 records not written to file: context canceled" {
		t.Errorf("close: %v", err)
	}
}

// A log in a file that is rotated loses nothing.
func TestLogRotates(t *testing.T) {
	dir := t.TempDir()
	f := openFile(t, filepath.Join(dir, "log"), 20_000, 100)
	l := New(Options{Log: discard()})
	l.Attach("file", f)
	for i := range 2000 {
		l.Record(numbered(i))
		if i%50 == 0 {
			if err := l.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeLog(t, l)
	var whole bytes.Buffer
	for n := 100; n >= 0; n-- {
		name := fmt.Sprint("log.", n)
		if n == 0 {
			name = "log"
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if len(b) > 20_000 || !bytes.HasSuffix(b, []byte("\n")) {
			t.Errorf("%s has %d bytes", name, len(b))
		}
		whole.Write(b)
	}
	s := &writer{Buffer: whole}
	if got := fmt.Sprint(s.ids()); got != fmt.Sprint(ids(2000)) {
		t.Errorf("got %.500s", got)
	}
}
