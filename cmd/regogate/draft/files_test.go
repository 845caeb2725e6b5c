package draft

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree lists the files below dir with their content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func accepts(string) error { return nil }

func TestPlaceWritesAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	files := []file{{"x", []byte("1"), 0o644}, {"y/z", []byte("2"), 0o600}}
	if err := place(dir, files, func(staged string) error {
		if got := tree(t, staged); got["x"] != "1" || got["y/z"] != "2" {
			t.Errorf("staged %v", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	files[0].data = []byte("3")
	if err := place(dir, files[:1], accepts); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); len(got) != 2 || got["x"] != "3" || got["y/z"] != "2" {
		t.Errorf("placed %v", got)
	}
}

func TestPlaceWritesNothing(t *testing.T) {
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		files []file
		check func(string) error
		want  string
	}{
		"the check refuses":      {[]file{{"x", []byte("1"), 0o644}}, func(string) error { return refused }, "refused"},
		"a file is in the way":   {[]file{{"x", []byte("1"), 0o644}, {"new", []byte("1"), 0o644}, {"x/y", []byte("2"), 0o644}}, accepts, "x/y: cannot be written: "},
		"a file for a directory": {[]file{{"x", []byte("1"), 0o644}, {"new", []byte("1"), 0o644}, {"taken/y", []byte("2"), 0o644}}, accepts, "taken/y: cannot be written: not a directory: nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"x", "taken"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("before"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := place(dir, tt.files, tt.check)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if got := tree(t, dir); len(got) != 2 || got["x"] != "before" || got["taken"] != "before" {
				t.Errorf("left %v", got)
			}
		})
	}
}
