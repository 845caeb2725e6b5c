//go:build unix

package policy

import (
	"path/filepath"
	"syscall"
	"testing"
)

// Opening a named pipe would wait for a writer, and the gateway with it.
func TestNamedPipe(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"authz.rego": goodModule})
	pipe := filepath.Join(dir, "x.rego")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := Check(Config{Dir: dir}).Error(), pipe+": not a regular file: remove it from the policy directory"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
