// Package fleet_test runs several regogate processes on one Redis, behind a
// balancer that sends each request to another of them, and looks at whether
// clients can tell.
package fleet_test

import (
	"os"
	"testing"

	"github.com/regogate/regogate/e2e/binary"
)

func TestMain(m *testing.M) { os.Exit(binary.Run(m)) }
