// Package estate_test runs several regogate processes on one registry, in
// PostgreSQL behind Redis, breaks what they share in every way, and holds each
// call that reaches a backend against what the registry said at the time.
package estate_test

import (
	"os"
	"testing"

	"github.com/regogate/regogate/e2e/binary"
)

func TestMain(m *testing.M) { os.Exit(binary.Run(m)) }
