package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
)

const (
	allow    = "package mcp.authz\n\nallow := true\n"
	manifest = `{"revision":"v1","roots":["mcp"],"rego_version":1}`
)

// packed is a bundle of these files, names and contents by turns.
func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for i := 0; i < len(files); i += 2 {
		err := archive.WriteHeader(&tar.Header{Name: files[i], Mode: 0o600, Typeflag: tar.TypeReg, Size: int64(len(files[i+1]))})
		if err == nil {
			_, err = archive.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bundleFile is a good one of this revision.
func bundleFile(t *testing.T, revision string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	put(t, path, packed(t, ".manifest", strings.Replace(manifest, "v1", revision, 1), "authz.rego", allow))
	return path
}

func put(t *testing.T, path string, body []byte) {
	t.Helper()
	if err := os.WriteFile(path+"~", body, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

// A file is held to what a directory is held to. What is refused is told with a
// reason, and the last good one stays.
func TestFiles(t *testing.T) {
	signed := func(ends time.Time) []byte {
		body, err := bundles.Sign(packed(t, ".manifest", manifest, "authz.rego", allow), newKey(t, "theirs"), bundles.Claims{Expires: ends})
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	const grants = `{"revision":"v1","roots":["mcp/grants"],"rego_version":1}`
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	d := newDesk(t, func(c *Config) { c.Bundles["authz"] = bundleFile(t, "v0") })
	good, _ := d.look()
	d.config.Bundles["authz"] = path
	for _, c := range []struct {
		name    string
		body    []byte
		problem string // "" for one that is served
	}{
		{"a page", []byte("<!DOCTYPE html>"), path + ": is no bundle: want a gzipped tar archive"},
		{"empty", nil, path + ": is empty: want a bundle"},
		{"too large", make([]byte, bundles.MaxSize+1), "read the source: " + path + ": is larger than 67108864 bytes"},
		{"cut off", packed(t, ".manifest", manifest, "authz.rego", allow)[:100], path + ": the bundle is cut off in the middle"},
		{"what OPA does not read", packed(t, ".manifest", manifest, "authz.rego", "package mcp.authz\n\nallow := tru("),
			path + ": authz.rego:3: unexpected eof token; authz.rego:3: unexpected eof token: expected rule value term (e.g., allow := <VALUE> { ... })"},
		{"outside of its roots", packed(t, ".manifest", manifest, "authz.rego", "package elsewhere\n"),
			path + ": manifest roots [mcp] do not permit 'package elsewhere' in module 'authz.rego'"},
		{"a delta", packed(t, ".manifest", manifest, "patch.json", `{"data":[]}`),
			path + ": is a delta bundle, which says nothing by itself: serve the whole one"},
		{"a name of two lines", packed(t, ".manifest", strings.Replace(manifest, "v1", `a\nb`, 1), "authz.rego", allow),
			path + `: the revision "a\nb": want 1 to 256 printable bytes`},
		{"what the check refuses", packed(t, ".manifest", manifest, "authz.rego", `package mcp.authz`+"\n\n"+`allow := "refused"`), "authz.rego:3: it is refused"},
		{"expired", signed(time.Unix(1e9, 0)), path + ": the signature expired at 2001-09-09T01:46:40Z: sign it again"},
		{"good", packed(t, ".manifest", manifest, "authz.rego", allow), ""},
		{"signed by others", signed(time.Now().Add(time.Hour)), ""},
		{"a part, which cannot be judged", packed(t, ".manifest", grants, "mcp/grants/data.json", `{"a":"refused"}`), ""},
	} {
		put(t, path, c.body)
		d.restart()
		before := d.server.Status()[0]
		for range 2 {
			st, body := d.look()
			switch {
			case st.SourceProblem != c.problem || st.StoreProblem != "":
				t.Errorf("%s: %+v\nwant %s", c.name, st, c.problem)
			case c.problem != "" && st.ETag != before.ETag:
				t.Errorf("%s: does not serve %s: %+v", c.name, good.Revision, st)
			case c.problem == "" && !bytes.Equal(body, c.body):
				t.Errorf("%s: is not served as it is", c.name)
			}
		}
	}
	// With a key of its own the server signs what others signed.
	d.key = newKey(t, "ours")
	put(t, path, signed(time.Unix(1e9, 0)))
	st, body := d.look()
	if _, err := bundles.Verify(body, []*keys.Key{d.key}, "", time.Now()); err != nil || st.SourceProblem != "" {
		t.Errorf("signed anew: %+v %v", st, err)
	}
}

// A pipe is not waited for.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, func(c *Config) { c.Bundles["authz"] = path })
	if st, _ := d.look(); st.SourceProblem != "read the source: "+path+": is no regular file" {
		t.Errorf("%+v", st)
	}
	if _, err := OpenToken(path); err == nil {
		t.Error("took a pipe for a token")
	}
}

// A file is watched as a directory is.
func TestWatchedFile(t *testing.T) {
	path := bundleFile(t, "v1")
	s := newStand(t, t.TempDir(), func(c *Config) { c.Bundles["authz"] = path })
	if got := s.other(""); got != "v1" {
		t.Errorf("revision %s", got)
	}
	put(t, path, packed(t, ".manifest", strings.Replace(manifest, "v1", "v2", 1), "authz.rego", allow))
	if got := s.other("v1"); got != "v2" {
		t.Errorf("revision %s", got)
	}
}

// What is checked is what is served, whatever happens to the source meanwhile.
func TestCheckedIsServed(t *testing.T) {
	var checked []byte
	d := newDesk(t)
	d.config.Check = func(source string, body []byte) error {
		if source != d.dir {
			t.Errorf("the source is %s", source)
		}
		checked = body
		d.save(`"refused"`)
		return nil
	}
	d.restart()
	if _, body := d.look(); !bytes.Equal(body, checked) {
		t.Error("what is served is not what was checked")
	}
}
