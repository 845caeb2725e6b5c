//go:build unix

package registry

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Opening a named pipe would wait for a writer, and the gateway with it: at
// start, and where one takes the catalogue's place later.
func TestNamedPipe(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe.yaml"), filepath.Join(dir, "c.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	within := func(what string, try func() error) {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- try() }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: no error", what)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: waits for a writer", what)
		}
	}
	within("at start", func() error { _, err := OpenFile(pipe, quiet()); return err })
	write(t, dir, "c.yaml", catalogueYAML("a", 1, "read"))
	f := openFile(t, file)
	defer f.Close()
	if err := os.Rename(pipe, file); err != nil {
		t.Fatal(err)
	}
	within("in its place", func() error {
		for {
			if _, err := f.Head(t.Context()); err != nil {
				return err
			}
		}
	})
}
