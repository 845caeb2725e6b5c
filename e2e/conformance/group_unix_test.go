//go:build unix

package conformance_test

import (
	"os/exec"
	"syscall"
	"time"
)

// group puts the process that cmd starts at the head of a group, all of which
// ends when cmd's context is done.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
}
