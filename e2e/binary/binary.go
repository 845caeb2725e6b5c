// Package binary gives tests a regogate to run.
package binary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	once   sync.Once
	path   string
	failed error
	made   string // directory of what was built
)

// Path returns a binary that is built once, with these flags of go build; without
// any it is $REGOGATE_BIN where that is set.
func Path(t testing.TB, flags ...string) string {
	t.Helper()
	once.Do(func() { path, failed = build(flags) })
	if failed != nil {
		t.Fatal(failed)
	}
	return path
}

func build(flags []string) (string, error) {
	if path := os.Getenv("REGOGATE_BIN"); path != "" && len(flags) == 0 {
		return path, nil
	}
	var err error
	if made, err = os.MkdirTemp("", "regogate-test-"); err != nil {
		return "", err
	}
	to := filepath.Join(made, "regogate")
	args := append(append([]string{"build"}, flags...), "-o", to, "github.com/regogate/regogate/cmd/regogate")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building regogate: %w\n%s", err, out)
	}
	return to, nil
}

// Run runs the tests of a package that uses Path and returns the exit status.
func Run(m *testing.M) int {
	defer func() {
		if made != "" {
			os.RemoveAll(made)
		}
	}()
	return m.Run()
}
