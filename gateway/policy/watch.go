package policy

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing may change before the files are read, and how
	// long they have to stay as they were read: saving, or checking out a
	// branch, is many events.
	quiet = 100 * time.Millisecond
	// patience bounds the wait where changes never cease.
	patience = time.Second
	// recheck is when the files are read even so. Network and shared file
	// systems report nothing, nor does a link in the path that is pointed
	// elsewhere.
	recheck = 5 * time.Second
)

// watch reloads on changes below the directory until ctx is done.
func (e *Engine) watch(ctx context.Context) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		e.log.Warn("cannot watch the policy directory, reading it at intervals", "dir", e.config.Dir, "every", e.recheck, "error", err)
	} else {
		defer watcher.Close()
		events, errs = watcher.Events, watcher.Errors
	}
	settle := time.NewTimer(quiet)
	defer settle.Stop()
	settle.Stop()
	var first time.Time // of the events that are not dealt with yet
	noticed := func() {
		if first.IsZero() {
			first = time.Now()
		}
		settle.Reset(min(quiet, max(0, patience-time.Since(first))))
	}
	rescan := func() {
		first = time.Time{}
		// What changed in a new directory after it was read and before it was
		// watched is seen by looking again.
		dirs, settled := e.look()
		if found := e.follow(watcher, dirs); found || !settled {
			noticed()
		}
	}
	rescan()
	ticker := time.NewTicker(e.recheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			noticed()
		case <-errs: // events were lost
			noticed()
		case <-ticker.C:
			if first.IsZero() {
				rescan()
			}
		case <-settle.C:
			rescan()
		}
	}
}

// follow has the watcher look at every directory, and reports whether one of them
// is new to it. One that it cannot look at is still read at intervals.
func (e *Engine) follow(watcher *fsnotify.Watcher, dirs []string) (found bool) {
	if watcher == nil {
		return false
	}
	known := watcher.WatchList()
	for _, dir := range dirs {
		path := filepath.Join(e.config.Dir, filepath.FromSlash(dir))
		if err := watcher.Add(path); err != nil {
			e.log.Debug("cannot watch a policy directory", "dir", path, "error", err)
			continue
		}
		found = found || !slices.Contains(known, path)
	}
	return found
}
