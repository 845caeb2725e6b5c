//go:build unix

package decisionlog

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A pipe that nobody reads is an error at once, one with a reader takes records.
func TestLogToNamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "decisions")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		f, err := OpenFile(pipe, 10, 1)
		if err == nil {
			f.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, syscall.ENXIO) {
			t.Errorf("without a reader: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("opening waits for a reader")
	}
	// Opened for both, a pipe needs nobody else.
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	f, err := OpenFile(pipe, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 5)
	if _, err := f.Write([]byte("line\n")); err != nil {
		t.Error(err)
	}
	if n, err := reader.Read(got); string(got[:n]) != "line\n" {
		t.Errorf("read %q, %v", got[:n], err)
	}
}
