package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Dir returns the directory with the drivers and their packages, whatever
// package of this module the test is in. It skips the test when the packages
// are not installed as the lock files here say, or fails it if REGOGATE_E2E is
// 1, as it is where these tests have to run.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := find()
	if err == nil {
		err = installed(dir)
	}
	switch {
	case err == nil:
		return dir
	case os.Getenv("REGOGATE_E2E") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return ""
}

// find looks for this package's directory from the working directory upwards.
func find() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding e2e/clients: %w", err)
	}
	for {
		dir := filepath.Join(at, "e2e", "clients")
		if _, err := os.Stat(filepath.Join(dir, "install.sh")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(at)
		if parent == at {
			return "", fmt.Errorf("finding e2e/clients: no directory above the working directory has it")
		}
		at = parent
	}
}

// installed compares the links that install.sh made with the lock files. Each
// leads into a directory that has the lock file's digest in its name.
func installed(dir string) error {
	for link, lock := range map[string]string{"node_modules": "package-lock.json", ".venv": "requirements.txt"} {
		text, err := os.ReadFile(filepath.Join(dir, lock))
		if err != nil {
			return fmt.Errorf("reading the lock file of e2e/clients: %w", err)
		}
		sum := sha256.Sum256(text)
		target, _ := os.Readlink(filepath.Join(dir, link))
		_, err = os.Stat(filepath.Join(dir, link))
		if err != nil || !strings.Contains(target, hex.EncodeToString(sum[:])) {
			return fmt.Errorf("the third-party MCP clients are not installed as e2e/clients/%s says: run e2e/clients/install.sh", lock)
		}
	}
	return nil
}
