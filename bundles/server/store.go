package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/regogate/regogate/bundles"
)

// nameRule is what bundles may be called: their names are part of paths.
var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Revision is one published bundle.
type Revision struct {
	Revision  string    `json:"revision"`
	Digest    string    `json:"digest"`  // SHA-256 of the bytes, hex
	Content   string    `json:"content"` // of what it was made from: equal contents are one publication
	Published time.Time `json:"published"`
	Size      int       `json:"size"`             // bytes
	Signed    Signing   `json:"signed,omitzero"`  // by the server; zero: it was left as it came
	Expires   time.Time `json:"expires,omitzero"` // the signature
}

var digestRule = regexp.MustCompile(`^[0-9a-f]{64}$`)

// maxRevision is how long a revision's name gets, in bytes.
const maxRevision = 256

func checkRevision(name string) error {
	unprintable := func(c rune) bool { return !unicode.IsPrint(c) }
	if name == "" || len(name) > maxRevision || !utf8.ValidString(name) || strings.ContainsFunc(name, unprintable) {
		return fmt.Errorf("the revision %.40q: want 1 to %d printable bytes", name, maxRevision)
	}
	return nil
}

// check holds an entry of the index to what its user builds on.
func (r Revision) check() error {
	if err := checkRevision(r.Revision); err != nil {
		return err
	}
	switch {
	case !digestRule.MatchString(r.Digest) || !digestRule.MatchString(r.Content):
		return fmt.Errorf("revision %q: want digests of 64 lower-case hex digits", r.Revision)
	case r.Size < 1 || r.Size > bundles.MaxSize:
		return fmt.Errorf("revision %q: a size of %d bytes, want 1 to %d", r.Revision, r.Size, bundles.MaxSize)
	}
	return nil
}

// Store keeps the revisions of bundles in a directory: for each bundle one with
// the archives by digest, an index, and a pin where one is set. Files are written
// whole or not at all, and what is read is held against its digest. Several
// processes may read and pin, one may publish, a bundle at a time. Every name of a
// bundle is held to the rule.
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
	maxIndex  = 16 << 20 // bytes
)

func checkName(name string) error {
	if !nameRule.MatchString(name) {
		return fmt.Errorf("bundle name %q: want lower-case letters, digits, - and _, at most 64", name)
	}
	return nil
}

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

// Revisions are those retained of a bundle, the oldest first. An index with anything
// wrong in it is an error that says what to do.
func (s *Store) Revisions(name string) ([]Revision, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	path := s.path(name, indexFile)
	text, err := readFile(path, maxIndex)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the index of bundle %s: %w", name, err)
	}
	var list []Revision
	err = json.Unmarshal(text, &list)
	for i := 0; i < len(list) && err == nil; i++ {
		err = list[i].check()
	}
	if err != nil {
		return nil, fmt.Errorf("the index of bundle %s is broken (%s): remove %s to begin anew", name, oneLine(err.Error()), path)
	}
	return list, nil
}

// Read returns the bytes of a revision.
func (s *Store) Read(name string, r Revision) ([]byte, error) {
	path := s.path(name, archive(r.Digest))
	body, err := readFile(path, int64(r.Size))
	if err != nil {
		return nil, fmt.Errorf("read revision %s of bundle %s: %w", r.Revision, name, err)
	}
	if digest(body) != r.Digest {
		return nil, fmt.Errorf("revision %s of bundle %s is damaged: %s is not what was published: pin another, or save the source again", r.Revision, name, path)
	}
	return body, nil
}

// Publish adds a revision, in place of one with the same content, and drops the
// oldest beyond retain, but for the pinned one. Digest and size are the store's to
// say.
func (s *Store) Publish(name string, body []byte, r Revision, retain int) error {
	list, err := s.Revisions(name)
	if err != nil {
		return err
	}
	pin, err := s.Pinned(name)
	if err != nil {
		return err
	}
	sum := digest(body)
	list = slices.DeleteFunc(list, func(o Revision) bool { return o.Content == r.Content || o.Digest == sum })
	list = append(list, r)
	pinned, _ := find(list, pin)
	var kept []Revision
	for i, o := range list {
		if len(list)-i <= retain || o.Content == pinned.Content {
			kept = append(kept, o)
		}
	}
	_, err = s.put(name, body, kept, len(kept)-1)
	return err
}

// Renew puts other bytes, and r, in the place of what is retained with r's content
// and digest, and returns what is there then.
func (s *Store) Renew(name string, body []byte, r Revision) (Revision, error) {
	list, err := s.Revisions(name)
	if err != nil {
		return r, err
	}
	i := slices.IndexFunc(list, func(o Revision) bool { return o.Content == r.Content && o.Digest == r.Digest })
	if i < 0 {
		return r, errors.New("it is not retained any more")
	}
	list[i] = r
	return s.put(name, body, list, i)
}

// put writes the bytes of the entry at i, and then the index.
func (s *Store) put(name string, body []byte, list []Revision, i int) (r Revision, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("publish bundle %s: %w", name, err)
		}
	}()
	list[i].Digest, list[i].Size = digest(body), len(body)
	if err := list[i].check(); err != nil {
		return r, err
	}
	if err := os.MkdirAll(filepath.Join(s.dir, name), 0o755); err != nil {
		return r, err
	}
	if err := replace(s.path(name, archive(list[i].Digest)), body); err != nil {
		return r, err
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return r, err
	}
	if err := replace(s.path(name, indexFile), append(text, '\n')); err != nil {
		return r, err
	}
	s.sweep(name, list)
	return list[i], nil
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
	if err := checkName(name); err != nil {
		return "", err
	}
	text, err := readFile(s.path(name, pinFile), maxRevision+2)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the pin of bundle %s: %w", name, err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// Retains fails for a revision that there is none of, and says which there are.
func (s *Store) Retains(name, revision string) error {
	list, err := s.Revisions(name)
	if err != nil {
		return err
	}
	if _, ok := find(list, revision); ok {
		return nil
	}
	if len(list) == 0 {
		return fmt.Errorf("bundle %s has no revision %q: none is retained yet", name, revision)
	}
	var names []string
	for _, r := range list {
		if !slices.Contains(names, r.Revision) {
			names = append(names, r.Revision)
		}
	}
	return fmt.Errorf("bundle %s has no revision %q: retained are %s", name, revision, strings.Join(names, ", "))
}

// Pin has a retained revision served whatever is published.
func (s *Store) Pin(name, revision string) error {
	if err := s.Retains(name, revision); err != nil {
		return err
	}
	if err := replace(s.path(name, pinFile), []byte(revision+"\n")); err != nil {
		return fmt.Errorf("pin bundle %s: %w", name, err)
	}
	return nil
}

// Unpin has the newest served again, and does nothing where it is.
func (s *Store) Unpin(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := os.Remove(s.path(name, pinFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpin bundle %s: %w", name, err)
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

// readFile reads no more of a file than shows that it is too large. Opening a pipe
// would wait for a writer.
func readFile(path string, limit int64) ([]byte, error) {
	large := fmt.Errorf("%s: is larger than %d bytes", path, limit)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is no regular file", path)
	case info.Size() > limit:
		return nil, large
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, large
	}
	return text, nil
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
