//go:build !unix

package upstream

import (
	"os"
	"syscall"
)

// Without process groups only the process itself can be ended.

func groupLeader() *syscall.SysProcAttr { return nil }

func endGroup(leader int) { killGroup(leader) }

func killGroup(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill()
	}
}
