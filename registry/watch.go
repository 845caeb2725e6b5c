package registry

import (
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rest is how long a directory must be quiet before its files count as
// written.
const rest = 100 * time.Millisecond

// watcher calls a function when files of a directory have come to rest after a
// change.
type watcher struct {
	fs   *fsnotify.Watcher
	done sync.WaitGroup
}

// watch watches a directory rather than its files, because an editor replaces
// a file by renaming another one over it. matters tells by a path whether it
// counts: what else lies in the directory, such as a log, may never rest.
func watch(dir string, matters func(path string) bool, atRest func()) (*watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := fs.Add(dir); err != nil {
		fs.Close()
		return nil, err
	}
	w := &watcher{fs: fs}
	w.done.Go(func() { w.run(matters, atRest) })
	return w, nil
}

func (w *watcher) run(matters func(path string) bool, atRest func()) {
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		select {
		case event, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if event.Op != fsnotify.Chmod && matters(event.Name) {
				timer.Reset(rest)
			}
		case _, ok := <-w.fs.Errors:
			if !ok {
				return
			}
			// Events may have been lost, so something may have changed.
			timer.Reset(rest)
		case <-timer.C:
			atRest()
		}
	}
}

func (w *watcher) close() error {
	err := w.fs.Close()
	w.done.Wait()
	return err
}
