//go:build unix

package registry

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Who takes a tool out of use as root does not take the catalogue away from a
// gateway that runs as somebody else.
func TestFileKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 1, "read"))
	name := filepath.Join(dir, quarantineFile)
	write(t, dir, quarantineFile, "version: 1\n")
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(name, 4711, 4712); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, dir)
	defer f.Close()
	if _, err := f.Quarantine(t.Context(), Author{Name: "root"}, Quarantined{Server: "a", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if is := info.Sys().(*syscall.Stat_t); is.Uid != 4711 || is.Gid != 4712 || info.Mode() != 0o640 {
		t.Errorf("owner %d, group %d, mode %v", is.Uid, is.Gid, info.Mode())
	}
}
