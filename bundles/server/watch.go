package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/regogate/regogate/bundles"
)

// settle is how long nothing may change before a source is read: saving, or
// checking out a branch, is many events.
const settle = 150 * time.Millisecond

// watch publishes the source whenever it changes.
func (s *Server) watch(ctx context.Context, b *served) {
	events := make(<-chan fsnotify.Event)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		s.config.Log.Warn("cannot watch, reading at intervals", "bundle", b.name, "every", lookEvery, "error", err)
	} else {
		defer watcher.Close()
		events = watcher.Events
		follow(watcher, b.source)
	}
	settled := time.NewTimer(settle)
	defer settled.Stop()
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			settled.Reset(settle)
			continue
		case <-settled.C:
		case <-every.C:
		}
		if watcher != nil {
			follow(watcher, b.source)
		}
		s.publish(b)
	}
}

// follow watches a directory and all below it, or where a file is. What cannot be
// watched is looked at in intervals.
func follow(watcher *fsnotify.Watcher, source string) {
	info, err := os.Stat(source)
	if err != nil {
		return
	}
	if !info.IsDir() {
		_ = watcher.Add(filepath.Dir(source))
		return
	}
	_ = filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = watcher.Add(path)
		}
		return nil
	})
}

// publish makes a revision of the source if that has changed and is good.
func (s *Server) publish(b *served) {
	body, r, err := s.make(b)
	switch {
	case errors.Is(err, errKnown):
		return
	case err != nil:
		b.refuse(r.Content, oneLine(err.Error()), s.config.Log)
		return
	}
	r.Published = time.Now().UTC()
	if _, err := s.config.Store.Publish(b.name, body, r, s.config.Retain); err != nil {
		b.refuse("", oneLine(err.Error()), s.config.Log)
		return
	}
	b.mended()
	if err := s.show(b); err != nil {
		b.refuse("", oneLine(err.Error()), s.config.Log)
	}
}

// errKnown says that the source is as it was when it was published, or refused.
var errKnown = errors.New("unchanged")

// make builds the bundle, or takes the one that is there.
func (s *Server) make(b *served) (body []byte, r Revision, err error) {
	info, err := os.Stat(b.source)
	if err != nil {
		return nil, r, fmt.Errorf("read the source: %w", err)
	}
	if info.IsDir() {
		built, err := bundles.Build(b.source, bundles.Options{})
		if err != nil {
			return nil, r, err
		}
		body, r.Revision = built.Bytes, built.Revision
	} else {
		if body, err = os.ReadFile(b.source); err != nil {
			return nil, r, fmt.Errorf("read the source: %w", err)
		}
	}
	r.Content = digest(body)
	if s.known(b, r.Content) {
		return nil, r, errKnown
	}
	if info.IsDir() && s.config.Check != nil {
		if err := s.config.Check(b.source); err != nil {
			return nil, r, err
		}
	}
	if !info.IsDir() {
		i, err := bundles.Inspect(body)
		if err != nil {
			return nil, r, fmt.Errorf("%s: %w", b.source, err)
		}
		if r.Revision = i.Revision; r.Revision == "" {
			r.Revision = r.Content[:12]
		}
	}
	if s.config.Key != nil {
		if body, err = bundles.Sign(body, s.config.Key, s.config.Claims()); err != nil {
			return nil, r, err
		}
	}
	return body, r, nil
}

// known reports whether the content is the newest that was published, or what was
// refused last.
func (s *Server) known(b *served, content string) bool {
	b.mu.Lock()
	failed := b.failed
	b.mu.Unlock()
	if content == failed {
		return true
	}
	list, err := s.config.Store.Revisions(b.name)
	if err != nil || len(list) == 0 || list[len(list)-1].Content != content {
		return false
	}
	b.mended()
	return true
}
