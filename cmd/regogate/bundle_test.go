package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReplace overwrites a file whole, leaves it where that fails, and writes into
// what is no file instead of putting one there.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b.tar.gz")
	for _, text := range []string{"a longer first text", "second"} {
		if err := replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Fatalf("the file holds %q, want %q: %v", got, text, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}

	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	go func() {
		text, err := os.ReadFile(pipe)
		if err != nil {
			text = []byte(err.Error())
		}
		read <- string(text)
	}()
	if err := replace(pipe, []byte("through")); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "through" {
		t.Errorf("the pipe gave %q", got)
	}
	if info, err := os.Stat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is now %v: %v", info.Mode(), err)
	}
	if err := replace(dir, []byte("x")); err == nil {
		t.Error("wrote into a directory")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("left %v: %v", list, err)
	}
}

func TestPlain(t *testing.T) {
	for s, want := range map[string]string{"v1": "v1", "é x": "é x", "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, "\xff": `"\xff"`, "": ""} {
		if got := plain(s); got != want {
			t.Errorf("%q is shown as %s, want %s", s, got, want)
		}
	}
}
