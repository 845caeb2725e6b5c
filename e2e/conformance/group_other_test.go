//go:build !unix

package conformance_test

import (
	"os/exec"
	"time"
)

// group has the process that cmd starts end when cmd's context is done.
func group(cmd *exec.Cmd) { cmd.WaitDelay = 2 * time.Second }
