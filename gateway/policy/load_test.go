package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

// Each archive of testdata/broken is a policy and, under want, the problems
// that it has, one a line.
func TestBroken(t *testing.T) {
	archives, err := filepath.Glob("testdata/broken/*.txtar")
	if err != nil || len(archives) < 40 {
		t.Fatalf("found %d archives: %v", len(archives), err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			fsys, want := fstest.MapFS{}, ""
			for i, f := range archive.Files {
				if f.Name == "want" {
					want = strings.TrimSpace(string(f.Data))
					archive.Files = archive.Files[:i]
					break
				}
				fsys[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			got := Check(Config{FS: fsys}).Error()
			if *update {
				archive.Files = append(archive.Files, txtar.File{Name: "want", Data: []byte(got + "\n")})
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if _, err := New(Config{FS: fsys}, discard()); err == nil || err.Error() != want {
				t.Errorf("New: %v", err)
			}
			var problems Problems
			if _, err := New(Config{FS: fsys}, discard()); !errors.As(err, &problems) {
				t.Errorf("New's error is a %T", err)
			}
		})
	}
}
