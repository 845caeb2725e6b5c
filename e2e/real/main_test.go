// Package real_test runs the regogate binary between MCP clients and servers
// that other people wrote. What a persona may see is worked out by OPA's own
// command line, on inputs that are built here from the catalogue file and the
// servers' own answers; what arrived is read from recorders in front of the
// servers. Nothing of the gateway's code takes part in either.
package real_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/regogate/regogate/e2e/binary"
)

func TestMain(m *testing.M) {
	if log := os.Getenv(teeVariable); log != "" {
		os.Exit(tee(log, os.Args[1:]))
	}
	os.Exit(binary.Run(m))
}

// regogate runs the binary to its end and returns what it printed.
func regogate(t testing.TB, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary.Path(t, "-tags", "opacli"), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("regogate %v: %v\n%s", args, err, out)
	}
	return out
}
