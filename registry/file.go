package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/regogate/regogate/registry/strictyaml"
)

// maxCatalogue bounds one file of a catalogue and the encoding of all, in
// bytes.
const maxCatalogue = 32 << 20

// File is the source that reads a YAML catalogue: one file, or every *.yaml
// and *.yml file of a directory, each a whole document. It notices changes by
// itself. A changed catalogue that has a problem is refused: the last good one
// stays the truth, with what the files that can be read put into quarantine
// besides, and Problems says why. Files that cannot be read at all make Head fail.
type File struct {
	name string // what the operator called it
	dir  string // what problems put before a file's name
	fsys fs.FS
	only string // the one file, or "" for the directory
	root string // of the file system, where it is a directory that can be changed
	sig  string // the file with the signature; "" where none is looked for
	log  *slog.Logger

	touched  atomic.Bool // the watcher saw the files come to rest after a change
	problems atomic.Pointer[[]string]
	changed  chan struct{}
	watch    *watcher

	mu      sync.Mutex
	current *Catalogue // nil where none of the files was good yet
	loaded  string     // fingerprint of the files that were judged last
	pending string     // fingerprint of changed files that may still be written to
}

// OpenFile opens the catalogue at a path of the file system, with the signature
// that is beside it, and watches both. It fails with a line for every problem.
func OpenFile(name string, log *slog.Logger) (*File, error) {
	f, err := at(name, log)
	if err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	f.follow()
	return f, nil
}

// openToChange is OpenFile for whoever changes the files. Those with problems open
// too: Head and Load fail with a line for each until they are mended.
func openToChange(name string, log *slog.Logger) (*File, error) {
	f, err := at(name, log)
	if err != nil {
		return nil, err
	}
	if err := f.open(); err != nil && f.Problems() == nil {
		return nil, err
	}
	f.follow()
	return f, nil
}

func (f *File) follow() {
	var err error
	if f.watch, err = watch(filepath.FromSlash(f.dir), f.matters, f.touch); err != nil {
		f.log.Warn("the catalogue cannot be watched and is polled instead", "path", f.name, "error", err)
	}
}

// at is the file or directory of the path, not opened.
func at(name string, log *slog.Logger) (*File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("open the catalogue: %w", err)
	}
	if info.IsDir() {
		return &File{name: name, dir: filepath.ToSlash(name), fsys: os.DirFS(name), root: name, sig: signatureName, log: log}, nil
	}
	dir, only := filepath.Dir(name), filepath.Base(name)
	return &File{name: name, dir: filepath.ToSlash(dir), fsys: os.DirFS(dir), only: only, sig: only + signatureExt, log: log}, nil
}

// OpenFS opens a catalogue that never changes, such as an embedded one: every
// *.yaml file at the root of fsys. name is what problems and logs call it.
func OpenFS(fsys fs.FS, name string, log *slog.Logger) (*File, error) {
	f := &File{name: name, dir: name, fsys: fsys, log: log}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) open() error {
	f.changed = make(chan struct{}, 1)
	mark, names, err := f.fingerprint()
	if err != nil {
		return err
	}
	found, err := f.read(names)
	if err != nil {
		return err
	}
	f.loaded = mark
	if len(found.problems) > 0 {
		f.refuse(found.problems)
		return f.refused()
	}
	f.current, err = f.catalogue(found)
	return err
}

func (f *File) refuse(problems []strictyaml.Problem) {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	f.problems.Store(&lines)
}

// refused is the error of files none of which was good yet.
func (f *File) refused() error { return errors.New(strings.Join(f.Problems(), "\n")) }

// Head looks whether the files have changed, and reads them where they have
// and have come to rest. File systems know no deadlines: on one that hangs,
// Head hangs.
func (f *File) Head(ctx context.Context) (Head, error) {
	if err := ctx.Err(); err != nil {
		return Head{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.poll(); err != nil {
		return Head{}, err
	}
	if f.current == nil {
		return Head{}, f.refused()
	}
	return f.current.Head, nil
}

// Load returns the catalogue whose head Head returned last.
func (f *File) Load(ctx context.Context, _ Head) (*Catalogue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return nil, f.refused()
	}
	return f.current, nil
}

// Changed hints at changes that the operating system reported.
func (f *File) Changed() <-chan struct{} { return f.changed }

// Problems returns what is wrong with the files as they are now.
func (f *File) Problems() []string {
	if p := f.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Close ends the watch.
func (f *File) Close() error {
	if f.watch == nil {
		return nil
	}
	return f.watch.close()
}

func (f *File) touch() {
	f.touched.Store(true)
	hint(f.changed)
}

// hint puts a value into a channel of one slot unless one is there.
func hint(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// poll reads the files when they differ from those judged last. A change that
// the watcher did not report has to look the same twice first, because a
// file that is half written may well be valid, and say less than it will.
func (f *File) poll() error {
	touched := f.touched.Swap(false)
	mark, names, err := f.fingerprint()
	if err != nil {
		return err
	}
	if mark == f.loaded && !touched {
		f.pending = ""
		return nil
	}
	if mark != f.pending && !touched {
		f.pending = mark
		return nil
	}
	found, err := f.read(names)
	if err != nil {
		return err
	}
	if again, _, err := f.fingerprint(); err != nil || again != mark {
		f.pending = again
		return err
	}
	if err := f.judge(found); err != nil {
		return err
	}
	f.loaded, f.pending = mark, ""
	return nil
}

// judge takes a good catalogue over. Of one with problems it takes what is in
// quarantine and nothing else, for a quarantine only takes away and must not wait
// until somebody's mistake is mended; and it releases nothing.
func (f *File) judge(found *reader) error {
	if len(found.problems) == 0 {
		c, err := f.catalogue(found)
		if err != nil {
			return err
		}
		f.current = c
		f.problems.Store(nil)
		return nil
	}
	f.refuse(found.problems)
	if f.current == nil {
		return nil
	}
	c, err := f.current.withQuarantine(found.quarantine)
	if err != nil {
		return err
	}
	f.current = c
	f.log.Error("the changed catalogue is refused, the last good one stays, and what is in quarantine besides",
		"path", f.name, "revision", f.current.Head.Revision, "quarantine", len(f.current.Quarantine), "problems", f.Problems())
	return nil
}

// read reads the files and the signature beside them.
func (f *File) read(names []string) (*reader, error) {
	found, err := readCatalogue(f.fsys, f.dir, names)
	if err != nil {
		return nil, err
	}
	if found.signature, err = f.signature(); err != nil {
		found.problems = append(found.problems, strictyaml.Problem{File: path.Join(f.dir, f.sig), Message: err.Error()})
	}
	return found, nil
}

// catalogue is what was read without a problem.
func (f *File) catalogue(found *reader) (*Catalogue, error) {
	c, err := NewCatalogue("", found.catalogue())
	if err != nil {
		return nil, fmt.Errorf("read the catalogue %s: %w", f.name, err)
	}
	return c, nil
}

// fingerprint returns the names of the catalogue's files and a text that
// differs when any of them was written or replaced.
func (f *File) fingerprint() (mark string, names []string, err error) {
	if names, err = f.names(); err != nil {
		return "", nil, fmt.Errorf("list the catalogue %s: %w", f.name, err)
	}
	var b strings.Builder
	for _, name := range names {
		info, err := fs.Stat(f.fsys, name)
		if err != nil {
			return "", nil, fmt.Errorf("look at the catalogue %s: %w", f.name, err)
		}
		fmt.Fprintf(&b, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
	}
	if f.sig != "" {
		if info, err := fs.Stat(f.fsys, f.sig); err == nil {
			fmt.Fprintf(&b, "%q %d %d\n", f.sig, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String(), names, nil
}

// names lists the files to read. Hidden ones are an editor's or a mount's.
func (f *File) names() ([]string, error) {
	if f.only != "" {
		return []string{f.only}, nil
	}
	entries, err := fs.ReadDir(f.fsys, ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if isCatalogue(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, errors.New("it has no *.yaml file")
	}
	return names, nil
}

func isCatalogue(name string) bool {
	ext := path.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".")
}

// matters reports whether a change at the path can change the catalogue: one of
// its files, its signature, or a link of a mounted volume, which all files go through.
func (f *File) matters(path string) bool {
	name := filepath.Base(path)
	if strings.HasPrefix(name, "..") {
		return true
	}
	if f.only != "" {
		return name == f.only || name == f.sig
	}
	return isCatalogue(name) || name == f.sig
}
