package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const goodModule = "package mcp.authz\n\nallow := true\n"

// write makes files below dir; content starting with "-> " makes a symbolic
// link.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectory(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, map[string]string{"secret.rego": goodModule})
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // with DIR for the directory
	}{
		{"good", map[string]string{"authz.rego": goodModule}, ""},
		{"tests and other files are left out", map[string]string{
			"authz.rego": goodModule, "authz_test.rego": "no Rego", "README.md": "# x", ".manifest": "{", ".regal/config.yaml": "a: [",
		}, ""},
		{"a mounted ConfigMap", map[string]string{
			"..2026/authz.rego": goodModule, "..data": "-> ..2026", "authz.rego": "-> ..data/authz.rego",
		}, ""},
		{"link out", map[string]string{"authz.rego": goodModule, "x.rego": "-> " + filepath.Join(outside, "secret.rego")},
			"DIR/x.rego: the symbolic link leads nowhere or out of the policy directory: put the file itself there"},
		{"relative link out", map[string]string{"authz.rego": goodModule, "x.rego": "-> ../secret.rego"},
			"DIR/x.rego: the symbolic link leads nowhere or out of the policy directory: put the file itself there"},
		{"dangling link", map[string]string{"authz.rego": goodModule, "x.rego": "-> y.rego"},
			"DIR/x.rego: the symbolic link leads nowhere or out of the policy directory: put the file itself there"},
		{"link to a directory", map[string]string{"authz.rego": goodModule, "loop": "-> ."},
			"DIR/loop: a symbolic link to a directory is not followed: put the directory itself there"},
		{"large file", map[string]string{"authz.rego": goodModule, "data.json": strings.Repeat(" ", maxFileSize+1)},
			"DIR/data.json: larger than 8 MiB: split it, or move large data out of the policy"},
		{"below", map[string]string{"deep/er/authz.rego": "package mcp.authz\n\nallow if input.x\n"},
			"DIR/deep/er/authz.rego:3: undefined ref: input.x; input has arguments, claims, method, prompt, request, resource, server, tool"},
		{"not UTF-8", map[string]string{"authz.rego": goodModule, "x.rego": "package mcp.x\n# \xff\n"},
			"DIR/x.rego: not UTF-8: save it in that encoding"},
		{"nothing", map[string]string{"README.md": ""},
			"DIR: no rule allow in package mcp.authz: without it nothing could ever be allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			if got := strings.ReplaceAll(Check(Config{Dir: dir}).Error(), dir, "DIR"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestOddDirectories(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"file": ""})
	for path, want := range map[string]string{
		"missing": "DIR/missing: no such policy directory: create it, or correct the path",
		"file":    "DIR/file: cannot open the policy directory: not a directory",
	} {
		got := strings.ReplaceAll(Check(Config{Dir: filepath.Join(dir, path)}).Error(), dir, "DIR")
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestTooMuch(t *testing.T) {
	many := fstest.MapFS{}
	for i := range maxFiles + 1 {
		many[fmt.Sprintf("m%d.rego", i)] = &fstest.MapFile{Data: []byte(goodModule)}
	}
	large := fstest.MapFS{}
	for i := range maxTreeSize/maxFileSize + 1 {
		large[fmt.Sprintf("d%d/data.json", i)] = &fstest.MapFile{Data: make([]byte, maxFileSize)}
	}
	for want, fsys := range map[string]fstest.MapFS{
		"more than 1000 policy files: is this the policy directory?":             many,
		"more than 64 MiB of policy and data: move large data out of the policy": large,
	} {
		if _, problems := readTree(fsys, ""); problems.Error() != ".: "+want {
			t.Errorf("got %s", problems)
		}
	}
}

func TestRevision(t *testing.T) {
	base := map[string]string{"authz.rego": goodModule, "data.json": "{}"}
	read := func(files map[string]string) string {
		dir := t.TempDir()
		write(t, dir, files)
		tree, problems := readDir(dir)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return tree.revision
	}
	revision := read(base)
	if len(revision) != 12 || strings.Trim(revision, "0123456789abcdef") != "" {
		t.Errorf("the revision is %q", revision)
	}
	for name, files := range map[string]map[string]string{
		"another directory": {"authz.rego": goodModule, "data.json": "{}"},
		"a file unread":     {"authz.rego": goodModule, "data.json": "{}", "authz_test.rego": "x", "README.md": "x"},
	} {
		if got := read(files); got != revision {
			t.Errorf("%s: %s, not %s", name, got, revision)
		}
	}
	for name, files := range map[string]map[string]string{
		"content":  {"authz.rego": goodModule + "\n", "data.json": "{}"},
		"name":     {"authz2.rego": goodModule, "data.json": "{}"},
		"boundary": {"authz.rego": goodModule + "d", "ata.rego": "{}"},
		"missing":  {"authz.rego": goodModule},
	} {
		if got := read(files); got == revision {
			t.Errorf("another %s gives the same revision", name)
		}
	}
}
