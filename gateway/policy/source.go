package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Limits of a policy directory. They are far above what people write, and keep
// a wrong mount from being read into memory.
const (
	maxFiles    = 1000
	maxEntries  = 20_000
	maxFileSize = 8 << 20
	maxTreeSize = 64 << 20
)

// file is one file of a policy: a module or a datum.
type file struct {
	name string // slash-separated, below the root
	data []byte
}

// tree is all files of a policy, sorted by name.
type tree struct {
	prefix   string // what people put before the names to find the files
	files    []file
	dirs     []string // the directories, the root among them as "."
	revision string
}

// shown is the name of a file as the operator knows it.
func (t *tree) shown(name string) string { return filepath.Join(t.prefix, filepath.FromSlash(name)) }

// readDir reads the policy in a directory. The tree is never nil; with
// problems it holds what could be read.
func readDir(dir string) (*tree, Problems) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		message := "cannot open the policy directory: " + reason(err)
		if errors.Is(err, fs.ErrNotExist) {
			message = "no such policy directory: create it, or correct the path"
		}
		return &tree{prefix: dir}, Problems{{File: dir, Message: message}}
	}
	defer root.Close()
	return readTree(root.FS(), dir)
}

// readTree reads modules and data. Names that start with a dot and tests are
// left out, as is whatever else is not a policy.
func readTree(fsys fs.FS, prefix string) (*tree, Problems) {
	r := &reader{fsys: fsys, tree: &tree{prefix: prefix}}
	if err := fs.WalkDir(fsys, ".", r.visit); err != nil {
		r.report(".", err.Error())
	}
	r.tree.revision = revision(r.tree.files)
	return r.tree, r.problems
}

type reader struct {
	fsys     fs.FS
	tree     *tree
	entries  int
	size     int64
	problems Problems
}

func (r *reader) report(name, message string) {
	r.problems = append(r.problems, Problem{File: r.tree.shown(name), Message: message})
}

func (r *reader) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		r.report(name, "cannot read: "+reason(err))
		return nil
	}
	if r.entries++; r.entries > maxEntries {
		return fmt.Errorf("more than %d files and directories: is this the policy directory?", maxEntries)
	}
	hidden := name != "." && strings.HasPrefix(path.Base(name), ".")
	switch {
	case hidden && entry.IsDir():
		return fs.SkipDir
	case hidden:
		return nil
	case entry.IsDir():
		r.tree.dirs = append(r.tree.dirs, name)
		return nil
	}
	if entry.Type()&fs.ModeSymlink != 0 && !r.followable(name) {
		return nil
	}
	if !r.wanted(name) {
		return nil
	}
	if len(r.tree.files) == maxFiles {
		return fmt.Errorf("more than %d policy files: is this the policy directory?", maxFiles)
	}
	return r.read(name)
}

// followable reports whether a symbolic link ends at a file below the root, as
// those in a mounted ConfigMap do. A link to a directory could be a loop.
func (r *reader) followable(name string) bool {
	info, err := fs.Stat(r.fsys, name)
	switch {
	case err != nil:
		r.report(name, "the symbolic link leads nowhere or out of the policy directory: put the file itself there")
		return false
	case info.IsDir():
		r.report(name, "a symbolic link to a directory is not followed: put the directory itself there")
		return false
	}
	return true
}

// wanted reports whether the file is part of the policy.
func (r *reader) wanted(name string) bool {
	switch base := path.Base(name); path.Ext(base) {
	case ".rego":
		return isModule(base)
	case ".json", ".yaml", ".yml":
		if isDatum(base) {
			return true
		}
		r.report(name, "only data.json, data.yaml and data.yml are read, but plain opa would read this file too: rename it or move it away")
	}
	return false
}

func isDatum(base string) bool {
	return base == "data.json" || base == "data.yaml" || base == "data.yml"
}

func (r *reader) read(name string) error {
	data, err := readFile(r.fsys, name)
	if err != nil {
		r.report(name, reason(err))
		return nil
	}
	if r.size += int64(len(data)); r.size > maxTreeSize {
		return fmt.Errorf("more than %d MiB of policy and data: move large data out of the policy", maxTreeSize>>20)
	}
	r.tree.files = append(r.tree.files, file{name, data})
	return nil
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	// Opening a named pipe would wait for a writer.
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file: remove it from the policy directory")
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("larger than %d MiB: split it, or move large data out of the policy", maxFileSize>>20)
	}
	return data, nil
}

// reason is the cause of a file error without the path, which the problem
// names already.
func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// lineAt is the number of the line that holds the byte at offset.
func lineAt(data []byte, offset int64) int {
	offset = min(max(offset, 0), int64(len(data)))
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}

// File is one module of a policy, by its slash-separated name below the
// directory.
type File struct {
	Name string
	Raw  []byte
}

// Files are what a gateway would read of a directory.
type Files struct {
	Modules  []File // sorted by name
	Data     any    // an object, as encoding/json has it, with json.Number
	Revision string // equal revisions have equal modules and data files
}

// ReadFiles reads a directory as an Engine does, which leaves out tests and what
// begins with a dot. Modules are not parsed.
func ReadFiles(dir string) (*Files, Problems) {
	t, problems := readDir(dir)
	if len(problems) > 0 {
		return nil, problems
	}
	data, problems := readData(t)
	if len(problems) > 0 {
		return nil, problems
	}
	value, err := ast.JSON(data)
	if err != nil {
		return nil, Problems{{File: dir, Message: oneLine(err.Error())}}
	}
	f := &Files{Data: value, Revision: t.revision}
	for _, file := range t.files {
		if isModule(file.name) {
			f.Modules = append(f.Modules, File{file.name, file.data})
		}
	}
	return f, nil
}
