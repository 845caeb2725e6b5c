package server

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/regogate/regogate/bundles"
)

const (
	// settle is how long nothing may change before a source is read: saving, or
	// checking out a branch, is many events. Where it does not settle, it is read
	// after unsettled all the same.
	settle    = 150 * time.Millisecond
	unsettled = 10 * time.Second
	// How often the source and the pin are looked at, beside what the file system
	// reports.
	lookEvery = 2 * time.Second
	pinEvery  = 500 * time.Millisecond
)

// watch looks after a bundle until ctx is done.
func (s *Server) watch(ctx context.Context, b *served) {
	var events chan fsnotify.Event
	var faults chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		s.config.Log.Warn("cannot watch, reading at intervals", "bundle", b.name, "every", lookEvery, "error", err)
	} else {
		defer watcher.Close()
		events, faults = watcher.Events, watcher.Errors
		follow(watcher, b.source)
	}
	s.look(b)
	settled := time.NewTimer(settle)
	defer settled.Stop()
	every, pins := time.NewTicker(lookEvery), time.NewTicker(pinEvery)
	defer every.Stop()
	defer pins.Stop()
	var first time.Time // of the events since the last look
	for {
		select {
		case <-ctx.Done():
			return
		case <-pins.C:
			s.show(b)
			continue
		case <-faults: // such as events that were lost
			settled.Reset(settle)
			continue
		case <-events:
			if first.IsZero() {
				first = time.Now()
			}
			if time.Since(first) < unsettled {
				settled.Reset(settle)
			}
			continue
		case <-every.C:
			if !first.IsZero() {
				continue
			}
		case <-settled.C:
			first = time.Time{}
		}
		if watcher != nil {
			follow(watcher, b.source)
		}
		s.look(b)
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

// look publishes the source where that is new, and serves what the store has then.
func (s *Server) look(b *served) {
	defer s.show(b)
	list, err := s.config.Store.Revisions(b.name)
	if err != nil {
		return // show says so
	}
	sign, err := s.signer()
	var body []byte
	var r Revision
	if err == nil {
		b.sign = sign
		body, r, err = s.make(b, list)
	}
	s.tell(b, &b.sourceProblem, "bundle not published", err)
	b.unkept = nil
	if body != nil {
		b.unkept = s.config.Store.Publish(b.name, body, r, s.config.Retain)
	}
}

// make makes a revision of the source; there is no body where that is as it was
// when it was published last.
func (s *Server) make(b *served, list []Revision) (body []byte, r Revision, err error) {
	made, err := read(b.source)
	if err != nil {
		return nil, r, err
	}
	content := digest(made)
	if content == b.refused {
		return nil, r, b.why
	}
	if n := len(list); n > 0 && list[n-1].Content == content && list[n-1].Digest != b.lost {
		// Without a key what the server signed itself is published again, unsigned.
		if b.sign.key != nil || list[n-1].Signed == (Signing{}) {
			return nil, r, nil
		}
	}
	if r, err = s.examine(b.source, made, b.sign.key != nil); err != nil {
		b.refused, b.why = content, err
		return nil, r, err
	}
	r.Content, r.Published = content, time.Now().UTC()
	body, err = b.sign.sign(made, &r)
	return body, r, err
}

// read builds the bundle of a directory, or takes the one that is there.
func read(source string) ([]byte, error) {
	info, err := os.Stat(source)
	if err == nil && info.IsDir() {
		built, err := bundles.Build(source, bundles.Options{})
		if err != nil {
			return nil, err
		}
		return built.Bytes, nil
	}
	body, err := readFile(source, bundles.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read the source: %w", err)
	}
	return body, nil
}

// examine refuses what no client could use, and what Check finds fault with. A
// bundle whose roots leave some of mcp to others is a part of a policy, which only
// those who have all parts can judge.
func (s *Server) examine(source string, body []byte, signs bool) (r Revision, err error) {
	info, err := bundles.Inspect(body)
	switch {
	case err != nil:
		return r, fmt.Errorf("%s: %w", source, err)
	case info.Problem != "":
		return r, fmt.Errorf("%s: %s", source, info.Problem)
	case info.Kind != "snapshot":
		return r, fmt.Errorf("%s: is a %s bundle, which says nothing by itself: serve the whole one", source, info.Kind)
	}
	for _, signature := range info.Signatures {
		r.Expires = signature.Expires
		if !signs && !r.Expires.IsZero() && !r.Expires.After(time.Now()) {
			return r, fmt.Errorf("%s: the signature expired at %s: sign it again", source, r.Expires.Format(time.RFC3339))
		}
	}
	r.Revision = cmp.Or(info.Revision, digest(body)[:12])
	if err := checkRevision(r.Revision); err != nil {
		return r, fmt.Errorf("%s: %w", source, err)
	}
	whole := slices.Contains(info.Roots, "") || slices.Contains(info.Roots, "mcp")
	if whole && s.config.Check != nil {
		err = s.config.Check(source, body)
	}
	return r, err
}
