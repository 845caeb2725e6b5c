// Package fleet_test runs several regogate processes on one Redis, behind a
// balancer that sends each request to another of them, and looks at whether
// clients can tell.
package fleet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// scratch holds what is built once for all tests.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "regogate-fleet-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return m.Run()
}

// binary is $REGOGATE_BIN, or one that is built for these tests.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("REGOGATE_BIN"); path != "" {
		return path, nil
	}
	path := filepath.Join(scratch, "regogate")
	out, err := exec.Command("go", "build", "-race", "-o", path, "github.com/regogate/regogate/cmd/regogate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building regogate: %w\n%s", err, out)
	}
	return path, nil
})
