package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/lockedfile"
	"go.yaml.in/yaml/v3"

	"github.com/regogate/regogate/registry/strictyaml"
)

// What commands write into a catalogue's directory, apart from what people write,
// so that no comment is ever lost.
const (
	quarantineFile = "quarantine.yaml"
	pinsFile       = "pins.yaml"
	definitions    = "definitions"
	written        = "# Written by regogate registry; everything else is in the other files.\n"
)

// Quarantine writes quarantine.yaml, whatever problems the other files have. What a
// person put into quarantine in another file stays theirs.
func (f *File) Quarantine(ctx context.Context, by Author, q Quarantined) (Head, error) {
	q.By, q.Since = by.Name, time.Now().UTC().Truncate(time.Second)
	return f.edit(ctx, func(r *reader) error {
		if err := strictyaml.Err(q.check("quarantine of " + Name(q.Server, q.Tool))); err != nil {
			return err
		}
		return f.rewrite(quarantineFile, func(c *catalogueFile) error {
			c.Quarantine = slices.DeleteFunc(c.Quarantine, q.same)
			if !strings.HasPrefix(r.seen[q.seenAs()], f.place(quarantineFile)) && r.seen[q.seenAs()] != "" {
				return fmt.Errorf("%s is in quarantine already, in %s: change the reason there", Name(q.Server, q.Tool), r.seen[q.seenAs()])
			}
			c.Quarantine = append(c.Quarantine, q)
			slices.SortFunc(c.Quarantine, compareQuarantined)
			return nil
		})
	})
}

// Release takes an entry out of quarantine.yaml.
func (f *File) Release(ctx context.Context, _ Author, server, tool string) (Head, error) {
	q := Quarantined{Server: server, Tool: tool}
	return f.edit(ctx, func(r *reader) error {
		if err := r.good("release " + Name(server, tool)); err != nil {
			return err
		}
		return f.rewrite(quarantineFile, func(c *catalogueFile) error {
			before := len(c.Quarantine)
			c.Quarantine = slices.DeleteFunc(c.Quarantine, q.same)
			switch at := r.seen[q.seenAs()]; {
			case len(c.Quarantine) < before:
				return nil
			case at != "":
				return fmt.Errorf("%s was put into quarantine by hand, in %s: remove it there", Name(server, tool), at)
			}
			return fmt.Errorf("release %s: a quarantine of that is %w", Name(server, tool), ErrUnknown)
		})
	})
}

// Approve replaces the digest where the tool is pinned already, or else writes it
// into pins.yaml, and keeps the definition in definitions/SERVER/TOOL.json.
func (f *File) Approve(ctx context.Context, _ Author, server, tool, sha256 string, definition []byte) (Head, error) {
	return f.edit(ctx, func(r *reader) error {
		if err := r.good("approve " + Name(server, tool)); err != nil {
			return err
		}
		i := slices.IndexFunc(r.tools, func(t Tool) bool { return t.Server == server && t.Name == tool })
		switch {
		case i < 0 || r.tools[i].Suggested:
			return fmt.Errorf("approve %s: the tool is %w; give it an entry that is not suggested", Name(server, tool), ErrUnknown)
		case !validSHA256(sha256):
			return fmt.Errorf("approve %s: %s", Name(server, tool), sha256Rule)
		}
		// The definition first: nobody sees a pin without it.
		if err := f.keep(server, tool, definition); err != nil {
			return err
		}
		if at, ok := r.pinned[toolKey{server, tool}]; ok {
			return f.repin(at, r.tools[i].SHA256, sha256)
		}
		return f.rewrite(pinsFile, func(c *catalogueFile) error {
			if c.Pins == nil {
				c.Pins = map[string]map[string]string{}
			}
			if c.Pins[server] == nil {
				c.Pins[server] = map[string]string{}
			}
			c.Pins[server][tool] = sha256
			return nil
		})
	})
}

// Definition reads definitions/SERVER/TOOL.json.
func (f *File) Definition(_ context.Context, server, tool, _ string) ([]byte, error) {
	if !ValidServer(server) || !ValidTool(tool) {
		return nil, fmt.Errorf("the definition of %s is %w", Name(server, tool), ErrUnknown)
	}
	name := filepath.ToSlash(filepath.Join(definitions, server, tool+".json"))
	info, err := fs.Stat(f.fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the definition of %s is %w", Name(server, tool), ErrUnknown)
	case err == nil && info.Size() > maxDefinition:
		return nil, fmt.Errorf("read %s: it is larger than %d bytes", name, maxDefinition)
	case err != nil:
		return nil, fmt.Errorf("read the definition of %s: %w", Name(server, tool), err)
	}
	return readFile(f.fsys, name)
}

// maxDefinition is far above what a backend may send of one tool, in bytes.
const maxDefinition = 8 << 20

// Name is what people call a tool, or a server where tool is empty.
func Name(server, tool string) string {
	return strings.TrimSuffix(server+"/"+tool, "/")
}

func (q *Quarantined) same(other Quarantined) bool {
	return q.Server == other.Server && q.Tool == other.Tool
}

// edit changes the directory while nobody else does.
func (f *File) edit(ctx context.Context, change func(*reader) error) (Head, error) {
	if f.root == "" {
		return Head{}, fmt.Errorf("%w: %s is not a directory; name a directory in registry.path, such as regogate init writes", ErrReadOnly, f.name)
	}
	unlock, err := f.lock()
	if err != nil {
		return Head{}, err
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return Head{}, fmt.Errorf("change the catalogue %s: %w", f.name, err)
	}
	ctx = context.WithoutCancel(ctx) // what is written is not called a failure
	names, err := f.names()
	if err != nil {
		return Head{}, fmt.Errorf("list the catalogue %s: %w", f.name, err)
	}
	r, err := f.read(names)
	if err != nil {
		return Head{}, err
	}
	if err := change(r); err != nil {
		return Head{}, err
	}
	f.touched.Store(true)
	head, err := f.Head(ctx)
	if err != nil && len(r.problems) > 0 { // which are no reason to call what is written a failure
		return Head{}, nil
	}
	return head, err
}

// good fails where the catalogue has problems: until they are mended no gateway
// takes over what was attempted.
func (r *reader) good(attempted string) error {
	if err := strictyaml.Err(r.problems); err != nil {
		return fmt.Errorf("%w\n%s: no gateway takes it over before that is mended", err, attempted)
	}
	return nil
}

// lock keeps other commands from the directory.
func (f *File) lock() (unlock func(), err error) {
	unlock, err = lockedfile.MutexAt(filepath.Join(f.root, ".lock")).Lock()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return unlock, nil
}

// place is how the reader names a file of the directory, with the colon that
// comes before a line.
func (f *File) place(name string) string { return f.dir + "/" + name + ":" }

// rewrite changes a file that commands write.
func (f *File) rewrite(name string, change func(*catalogueFile) error) error {
	c := catalogueFile{Version: 1}
	data, err := os.ReadFile(filepath.Join(f.root, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	if err == nil {
		if _, problems := strictyaml.Decode(data, &c, strictyaml.Options{File: f.dir + "/" + name, MaxBytes: maxCatalogue}); len(problems) > 0 {
			return strictyaml.Err(problems)
		}
	}
	if len(c.Servers) > 0 {
		return fmt.Errorf("%s/%s: has servers, and a command would lose their comments: move them to another file", f.dir, name)
	}
	if err := change(&c); err != nil {
		return err
	}
	out := bytes.NewBufferString(written)
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	if err := cmp.Or(e.Encode(c), e.Close()); err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return replaceFile(filepath.Join(f.root, name), out.Bytes())
}

// repin replaces a digest in the text of a file, where it stands.
func (f *File) repin(at strictyaml.Problem, old, sha256 string) error {
	name := filepath.FromSlash(at.File)
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	if at.Line < 1 || at.Line > len(lines) || strings.Count(lines[at.Line-1], old) != 1 {
		return fmt.Errorf("%s:%d: the digest does not stand there alone: put %s there yourself", at.File, at.Line, sha256)
	}
	lines[at.Line-1] = strings.Replace(lines[at.Line-1], old, sha256, 1)
	return replaceFile(name, []byte(strings.Join(lines, "")))
}

// keep writes a definition as people read it, or as it is where that would be too
// long.
func (f *File) keep(server, tool string, definition []byte) error {
	text := jsontext.Value(bytes.Clone(definition))
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("keep the definition of %s: %w", Name(server, tool), err)
	}
	if len(text) >= maxDefinition {
		text = definition
	}
	if len(text) >= maxDefinition {
		return fmt.Errorf("keep the definition of %s: it is not smaller than %d bytes", Name(server, tool), maxDefinition)
	}
	dir := filepath.Join(f.root, definitions, server)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return replaceFile(filepath.Join(dir, tool+".json"), append(bytes.Clone(text), '\n'))
}

// replaceFile writes a file at once and whole, for whoever may read what is there
// already, or everybody.
func replaceFile(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	defer os.Remove(temporary.Name())
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		keepOwner(temporary, info)
	}
	_, err = temporary.Write(data)
	err = cmp.Or(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return nil
}
