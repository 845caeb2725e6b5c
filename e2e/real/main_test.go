// Package real_test runs the regogate binary between MCP clients and servers
// that other people wrote. What a persona may see is worked out by OPA's own
// command line, on inputs that are built here from the catalogue file and the
// servers' own answers; what arrived is read from recorders in front of the
// servers. Nothing of the gateway's code takes part in either.
package real_test

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

func TestMain(m *testing.M) {
	if log := os.Getenv(teeVariable); log != "" {
		os.Exit(tee(log, os.Args[1:]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "regogate-real-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return m.Run()
}

// build makes the binary, where nobody has made one already.
var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("REGOGATE_BIN"); path != "" {
		return path, nil
	}
	path := filepath.Join(scratch, "regogate")
	out, err := exec.Command("go", "build", "-tags", "opacli", "-o", path, "github.com/regogate/regogate/cmd/regogate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building regogate: %w\n%s", err, out)
	}
	return path, nil
})

// binary returns the path of a regogate that has OPA's command line in it:
// $REGOGATE_BIN, or one that is built for these tests.
func binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// regogate runs the binary to its end and returns what it printed.
func regogate(t testing.TB, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("regogate %v: %v\n%s", args, err, out)
	}
	return out
}
