package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// nameRule is what bundles may be called: their names are part of paths.
var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Revision is one published bundle.
type Revision struct {
	Revision  string    `json:"revision"`
	Digest    string    `json:"digest"`  // SHA-256 of the bytes, hex
	Content   string    `json:"content"` // of what it was made from: equal contents are one publication
	Published time.Time `json:"published"`
	Size      int       `json:"size"` // bytes
}

// Store keeps the revisions of bundles in a directory: for each bundle one with
// the archives by digest, an index, and a pin where one is set. Files are written
// whole or not at all, and what is read is held against its digest. Several
// processes may read, one may publish.
type Store struct{ dir string }

// OpenStore makes the directory where it is missing.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return &Store{dir}, nil
}

const (
	indexFile = "index.json"
	pinFile   = "pin"
)

func (s *Store) path(name, file string) string { return filepath.Join(s.dir, name, file) }

func archive(digest string) string { return digest + ".tar.gz" }

// Names are the bundles that the store has, sorted.
func (s *Store) Names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && nameRule.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Revisions are those retained of a bundle, the oldest first.
func (s *Store) Revisions(name string) ([]Revision, error) {
	text, err := os.ReadFile(s.path(name, indexFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the index of bundle %s: %w", name, err)
	}
	var list []Revision
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the index of bundle %s is broken (%w): remove %s to begin anew", name, err, s.path(name, indexFile))
	}
	return list, nil
}

// Read returns the bytes of a revision.
func (s *Store) Read(name string, r Revision) ([]byte, error) {
	body, err := os.ReadFile(s.path(name, archive(r.Digest)))
	if err != nil {
		return nil, fmt.Errorf("read revision %s of bundle %s: %w", r.Revision, name, err)
	}
	if digest(body) != r.Digest {
		return nil, fmt.Errorf("revision %s of bundle %s is damaged: %s is not what was published", r.Revision, name, s.path(name, archive(r.Digest)))
	}
	return body, nil
}

// Publish adds a revision, and drops the oldest beyond retain, but for the pinned
// one.
func (s *Store) Publish(name string, body []byte, r Revision, retain int) (Revision, error) {
	if err := os.MkdirAll(filepath.Join(s.dir, name), 0o755); err != nil {
		return r, fmt.Errorf("publish bundle %s: %w", name, err)
	}
	list, err := s.Revisions(name)
	if err != nil {
		return r, err
	}
	pin, err := s.Pinned(name)
	if err != nil {
		return r, err
	}
	r.Digest, r.Size = digest(body), len(body)
	if err := replace(s.path(name, archive(r.Digest)), body); err != nil {
		return r, fmt.Errorf("publish bundle %s: %w", name, err)
	}
	list = append(slices.DeleteFunc(list, func(o Revision) bool { return o.Digest == r.Digest }), r)
	var kept []Revision
	for i, o := range list {
		if len(list)-i <= retain || o.Revision == pin {
			kept = append(kept, o)
		}
	}
	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return r, err
	}
	if err := replace(s.path(name, indexFile), append(text, '\n')); err != nil {
		return r, fmt.Errorf("publish bundle %s: %w", name, err)
	}
	s.sweep(name, kept)
	return r, nil
}

// sweep removes archives that the index does not have, such as what a process
// that was killed left behind. What stays is only in the way.
func (s *Store) sweep(name string, kept []Revision) {
	entries, err := os.ReadDir(filepath.Join(s.dir, name))
	if err != nil {
		return
	}
	for _, e := range entries {
		used := e.Name() == indexFile || e.Name() == pinFile ||
			slices.ContainsFunc(kept, func(r Revision) bool { return archive(r.Digest) == e.Name() })
		if !used {
			_ = os.Remove(s.path(name, e.Name()))
		}
	}
}

// Pinned is the revision that a bundle is pinned to, "" where it is not.
func (s *Store) Pinned(name string) (string, error) {
	text, err := os.ReadFile(s.path(name, pinFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the pin of bundle %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Pin has a retained revision served whatever is published; "" ends that.
func (s *Store) Pin(name, revision string) error {
	if revision == "" {
		if err := os.Remove(s.path(name, pinFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unpin bundle %s: %w", name, err)
		}
		return nil
	}
	list, err := s.Revisions(name)
	if err != nil {
		return err
	}
	if _, ok := find(list, revision); !ok {
		var names []string
		for _, r := range list {
			names = append(names, r.Revision)
		}
		return fmt.Errorf("bundle %s has no revision %s: retained are %s", name, revision, strings.Join(names, ", "))
	}
	if err := replace(s.path(name, pinFile), []byte(revision+"\n")); err != nil {
		return fmt.Errorf("pin bundle %s: %w", name, err)
	}
	return nil
}

// find takes the newest of several with the same name.
func find(list []Revision, revision string) (Revision, bool) {
	for _, r := range slices.Backward(list) {
		if r.Revision == revision {
			return r, true
		}
	}
	return Revision{}, false
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// replace writes a file whole or not at all.
func replace(path string, body []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(body)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
