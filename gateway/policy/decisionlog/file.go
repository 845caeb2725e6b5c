package decisionlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// File is a file of lines that is rotated: when it would grow beyond its bound it
// is renamed to PATH.1, what was there to PATH.2 and so on, and the oldest is
// overwritten. Lines are never divided. It is safe for concurrent use.
//
// Where somebody else renames or removes the file, as logrotate does, the next
// Write makes a new one: nobody has to be signalled. What is no regular file, such
// as a named pipe or a device, is never rotated; where it is replaced after it took
// half a line, the other half is what comes first.
//
// There are libraries for this. Those that are kept well count in megabytes, do
// not notice a file that was moved, and rotate in the middle of a line whose first
// half the disk had room for.
type File struct {
	path string
	max  int64
	keep int

	mu      sync.Mutex
	file    *os.File
	regular bool
	size    int64
	torn    bool // the last line is not whole yet
}

// OpenFile opens a file to append lines to. Where it is missing it is created,
// readable by its owner alone; a last line that was not finished is ended. max is
// in bytes, and keep how many rotated files stay. A named pipe is an error as long
// as nobody reads it.
func OpenFile(path string, max int64, keep int) (*File, error) {
	f := &File{path: path, max: max, keep: keep}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("open the decision log: %w", err)
	}
	return f, nil
}

func (f *File) open() error {
	// Without O_NONBLOCK, opening a pipe would wait for a reader.
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.regular, f.size, f.torn = file, info.Mode().IsRegular(), info.Size(), false
	if f.regular && f.size > 0 && unfinished(f.path, f.size) {
		n, err := file.WriteString("\n")
		f.size += int64(n)
		if err != nil {
			return errors.Join(err, f.shut())
		}
	}
	return nil
}

// unfinished reports whether the file ends within a line. One that cannot be read
// is taken to end well.
func unfinished(path string, size int64) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var last [1]byte
	_, err = file.ReadAt(last[:], size-1)
	return (err == nil || errors.Is(err, io.EOF)) && last[0] != '\n'
}

// Write appends whole lines, or the rest of some of which an earlier Write took
// less.
func (f *File) Write(lines []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.ready(int64(len(lines))); err != nil {
		return 0, err
	}
	n, err := f.file.Write(lines)
	f.size += int64(n)
	if n > 0 {
		f.torn = lines[n-1] != '\n'
	}
	return n, err
}

// ready makes sure that the file is the one at the path, with room for more.
func (f *File) ready(more int64) error {
	if f.file != nil && f.regular && f.torn {
		return nil
	}
	if f.file != nil && f.moved() {
		if err := f.shut(); err != nil {
			return err
		}
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if f.regular && f.size > 0 && f.size+more > f.max {
		return f.rotate()
	}
	return nil
}

func (f *File) moved() bool {
	there, err := os.Stat(f.path)
	if err != nil {
		return !errors.Is(err, fs.ErrPermission) // else nobody knows, and it can be written to
	}
	ours, err := f.file.Stat()
	if err == nil {
		f.size = ours.Size() // it may have been truncated
	}
	return err != nil || !os.SameFile(there, ours)
}

func (f *File) rotate() error {
	// What need not move stays where it is: after a rotation that failed half way
	// the next one must not push the oldest out for nothing.
	last := 1
	for last < f.keep && exists(f.path+"."+strconv.Itoa(last)) {
		last++
	}
	for n := last; n > 0; n-- {
		from := f.path
		if n > 1 {
			from += "." + strconv.Itoa(n-1)
		}
		if err := os.Rename(from, f.path+"."+strconv.Itoa(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := f.shut(); err != nil {
		return err
	}
	return f.open()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (f *File) shut() error {
	file := f.file
	f.file = nil
	return file.Close()
}

// Close closes the file. A Write after it opens it again.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	return f.shut()
}
