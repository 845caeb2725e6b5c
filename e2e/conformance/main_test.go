// Package conformance_test runs the official conformance suite of the Model
// Context Protocol against the Go SDK's server for it, directly and through
// `regogate serve`, and against the Go SDK's client, directly and with the
// gateway between the suite and the client. Nothing of the gateway's code takes
// part in what is judged; README.md says how the two are compared.
package conformance_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/regogate/regogate/e2e/binary"
)

func TestMain(m *testing.M) {
	if gateway := os.Getenv(driverVariable); gateway != "" {
		os.Exit(drive(context.Background(), gateway, os.Args[1:]))
	}
	os.Exit(binary.Run(m))
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
