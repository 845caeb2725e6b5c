//go:build unix && !linux

package upstream

import "syscall"

// groupLeader makes the child lead a group of its own.
func groupLeader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
