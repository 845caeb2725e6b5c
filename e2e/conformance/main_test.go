// Package conformance_test runs the official conformance suite of the Model
// Context Protocol against the Go SDK's server for it, directly and through
// `regogate serve`, and against the Go SDK's client, directly and with the
// gateway between the suite and the client. Nothing of the gateway's code takes
// part in what is judged; README.md says how the two are compared.
package conformance_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// scratch holds what is built once for all tests.
var scratch string

func TestMain(m *testing.M) {
	if gateway := os.Getenv(driverVariable); gateway != "" {
		os.Exit(drive(context.Background(), gateway, os.Args[1:]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "regogate-conformance-")
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
	out, err := exec.Command("go", "build", "-o", path, "github.com/regogate/regogate/cmd/regogate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building regogate: %w\n%s", err, out)
	}
	return path, nil
})

// binary returns the path of regogate: $REGOGATE_BIN, or one that is built for
// these tests.
func binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// rounds runs a test as often as $REGOGATE_CONFORMANCE_ROUNDS says, or once.
func rounds(t *testing.T, test func(*testing.T)) {
	t.Helper()
	n := 1
	if text := os.Getenv("REGOGATE_CONFORMANCE_ROUNDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("REGOGATE_CONFORMANCE_ROUNDS is %q, want a number above 0", text)
		}
	}
	for i := range n {
		t.Run("round "+strconv.Itoa(i+1), test)
	}
}
