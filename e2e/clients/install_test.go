package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkout makes a directory with lock files and links to what install.sh
// would have made for them.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for lock, link := range map[string]string{"package-lock.json": "node_modules", "requirements.txt": ".venv"} {
		write(t, filepath.Join(dir, lock), "lock")
		sum := sha256.Sum256([]byte("lock"))
		cache := filepath.Join(t.TempDir(), hex.EncodeToString(sum[:]))
		if err := os.Mkdir(cache, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(cache, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestInstalled(t *testing.T) {
	const hint = "are not installed as e2e/clients/package-lock.json says: run e2e/clients/install.sh"
	tests := []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string // in the error; none when empty
	}{
		{"as locked", func(*testing.T, string) {}, ""},
		{"link missing", func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "node_modules")) }, hint},
		{"lock changed", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "package-lock.json"), "newer") }, hint},
		{"cache cleared", func(t *testing.T, dir string) {
			target, _ := os.Readlink(filepath.Join(dir, "node_modules"))
			_ = os.RemoveAll(target)
		}, hint},
		{"lock missing", func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "package-lock.json")) }, "reading the lock file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := checkout(t)
			test.change(t, dir)
			err := installed(dir)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestLocks keeps addresses of registries out of the lock files: packages come
// from wherever the machine's own settings say.
func TestLocks(t *testing.T) {
	for lock, address := range map[string]string{"package-lock.json": `"resolved"`, "requirements.txt": "://"} {
		text, err := os.ReadFile(lock)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), address) {
			t.Errorf("%s has %s in it", lock, address)
		}
	}
}
