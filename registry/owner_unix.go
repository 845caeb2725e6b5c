//go:build unix

package registry

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and the group of another one, as far as whoever
// runs this may: root does not take a catalogue away from who reads it.
func keepOwner(to *os.File, from fs.FileInfo) {
	if was, ok := from.Sys().(*syscall.Stat_t); ok && to.Chown(int(was.Uid), int(was.Gid)) != nil {
		_ = to.Chown(-1, int(was.Gid))
	}
}
