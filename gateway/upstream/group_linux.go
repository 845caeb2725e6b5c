package upstream

import "syscall"

// groupLeader makes the child lead a group of its own, and has the kernel kill
// it when the gateway dies without a chance to do so itself. That reaches the
// child alone, not what it started in turn.
func groupLeader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
