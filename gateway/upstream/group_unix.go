//go:build unix

package upstream

import "syscall"

// endGroup asks every process of the group to end.
func endGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGTERM) }

// killGroup forces every process of the group to end. A group that is gone is
// no error.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
