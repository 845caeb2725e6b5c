package draft

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// file is one file to be written. The name is slash-separated.
type file struct {
	name string
	data []byte
	mode fs.FileMode
}

// policyFiles returns the shipped policies, tests and data included, below
// policies/.
func policyFiles(fsys fs.FS) (files []file, err error) {
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		files = append(files, file{path.Join(PoliciesName, name), data, 0o644})
		return err
	})
	return files, err
}

// free fails with a line for every file that is there already.
func free(dir string, files []file) error {
	var lines []string
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.name))
		_, err := os.Lstat(name)
		switch {
		case err == nil:
			lines = append(lines, name+": exists already: move it away, or overwrite it with --force")
		case !errors.Is(err, fs.ErrNotExist):
			lines = append(lines, fmt.Sprintf("%s: %v: move away what is in its place", name, cause(err)))
		}
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// cause is a file error without the path.
func cause(err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		return pathErr.Err
	case errors.As(err, &linkErr):
		return linkErr.Err
	}
	return err
}

// place writes all files into dir or, where anything goes wrong, none. They are
// first written beside where they belong and shown to check, whose error is
// returned as it is. What is there already is replaced.
func place(dir string, files []file, check func(staged string) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%s: cannot be made: %w: name another directory", dir, cause(err))
	}
	staged, err := os.MkdirTemp(dir, ".regogate-init-")
	if err != nil {
		return fmt.Errorf("%s: cannot be written to: %w: name another directory", dir, cause(err))
	}
	defer os.RemoveAll(staged)
	for _, f := range files {
		if err := write(filepath.Join(staged, "new", filepath.FromSlash(f.name)), f); err != nil {
			return fmt.Errorf("%s: cannot be written: %w: nothing was changed", filepath.Join(dir, f.name), cause(err))
		}
	}
	if err := check(filepath.Join(staged, "new")); err != nil {
		return err
	}
	m := &mover{}
	for _, f := range files {
		name := filepath.FromSlash(f.name)
		if err := m.move(filepath.Join(staged, "new", name), filepath.Join(dir, name), filepath.Join(staged, "old", name)); err != nil {
			m.undo()
			return fmt.Errorf("%s: cannot be written: %w: nothing was changed", filepath.Join(dir, f.name), cause(err))
		}
	}
	return nil
}

func write(name string, f file) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, f.data, f.mode)
}

// mover moves files into place and can take all of it back.
type mover struct{ undoing []func() }

// move replaces to by from, and keeps what was there in old.
func (m *mover) move(from, to, old string) error {
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		return err
	}
	if err := m.makeDir(filepath.Dir(to)); err != nil {
		return err
	}
	switch err := os.Rename(to, old); {
	case err == nil:
		m.undoing = append(m.undoing, func() { _ = os.Rename(old, to) })
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	m.undoing = append(m.undoing, func() { _ = os.Remove(to) })
	return nil
}

// makeDir makes a directory and those above it, where they are not there.
func (m *mover) makeDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err = m.makeDir(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	switch {
	case err == nil:
		m.undoing = append(m.undoing, func() { _ = os.Remove(dir) })
	case !errors.Is(err, fs.ErrExist): // what is there and no directory shows below
		return err
	}
	return nil
}

func (m *mover) undo() {
	for i := len(m.undoing) - 1; i >= 0; i-- {
		m.undoing[i]()
	}
}
