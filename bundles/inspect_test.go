package bundles_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/bundles"
)

func TestInspectOfOurs(t *testing.T) {
	key, _ := of(t, "RS256").Keys(t, "prod")
	b, err := bundles.Build(tree(t, policyFiles()), bundles.Options{Revision: "v1", Key: key, Claims: bundles.Claims{Scope: "s", Expires: time.Unix(2000000000, 0)}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := bundles.Inspect(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	one, unpacked := 1, 0
	var files []bundles.FileInfo
	for _, e := range entries(t, b.Bytes) {
		files = append(files, bundles.FileInfo{Name: e.name[1:], Size: len(e.body)})
		unpacked += len(e.body)
	}
	want := &bundles.Info{
		Kind: "snapshot", Revision: "v1", Roots: []string{"mcp"}, RegoVersion: &one,
		Entrypoints: []string{"mcp/authz/allow", "mcp/authz/call", "mcp/authz/scopes"},
		Packages:    []string{"mcp/authz", "mcp/lib/a", "mcp/lib/z"},
		Files:       files, Size: len(b.Bytes), Unpacked: unpacked,
		Signatures: []bundles.Signature{{Algorithm: "RS256", KeyID: "prod", Scope: "s", Expires: time.Unix(2000000000, 0).UTC(), Files: 5}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// TestInspectOfOthers is as JSON, which programs read.
func TestInspectOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		files []entry
		want  string // without files and sizes
	}{
		"without a manifest": {
			[]entry{{"/data.json", "{}"}, {"/x/a.rego", allow}},
			`{"kind":"snapshot","revision":"","roots":[""],"packages":["mcp/authz"]}`,
		},
		"delta": {
			[]entry{{"/patch.json", `{"data":[{"op":"upsert","path":"/mcp/x","value":1}]}`}, {"/.manifest", `{"revision":"d1","roots":["mcp"]}`}},
			`{"kind":"delta","revision":"d1","roots":["mcp"]}`,
		},
		"wasm": {
			[]entry{{"/data.json", "{}"}, {"/policy.wasm", "\x00asm"}, {"/.manifest", `{"roots":["mcp"],"wasm":[{"entrypoint":"mcp/authz/allow","module":"/policy.wasm"}]}`}},
			`{"kind":"snapshot","revision":"","roots":["mcp"],"entrypoints":["mcp/authz/allow"],"wasm":true}`,
		},
		"Rego v0": {
			[]entry{{"/a.rego", "package mcp.old\n\nallow { input.x }\n"}, {"/.manifest", `{"rego_version":0}`}},
			`{"kind":"snapshot","revision":"","roots":[""],"rego_version":0,"packages":["mcp/old"]}`,
		},
		"Rego v0 that does not say so": {
			[]entry{{"/a.rego", "package mcp.old\n\nallow { input.x }\n"}, {"/.manifest", `{"revision":"r"}`}},
			`{"kind":"snapshot","revision":"r","roots":[],"packages":["mcp/old"],"problem":"a.rego:3: ` + "`if` keyword is required before rule body" + `"}`,
		},
		"outside its roots": {
			[]entry{{"/a.rego", allow}, {"/b.rego", "no module"}, {"/.manifest", `{"revision":"r","roots":["x"]}`}},
			`{"kind":"snapshot","revision":"r","roots":["x"],"packages":["mcp/authz"],"problem":"b.rego:1: package expected; b.rego:1: var cannot be used for rule name"}`,
		},
		"unreadable signature": {
			[]entry{{"/data.json", "{}"}, {"/.signatures.json", `{"signatures":["a.b.c"]}`}},
			`{"kind":"snapshot","revision":"","roots":[""],"signatures":[{"algorithm":"unreadable","files":0}]}`,
		},
	} {
		info, err := bundles.Inspect(archive(t, c.files...))
		if err != nil || len(info.Files) != len(c.files) {
			t.Errorf("%s: %+v %v", name, info, err)
			continue
		}
		var got map[string]any
		text, err := json.Marshal(info)
		if err != nil || json.Unmarshal(text, &got) != nil {
			t.Fatal(err)
		}
		delete(got, "files")
		delete(got, "size")
		delete(got, "unpacked")
		var want map[string]any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, text, c.want)
		}
	}
}

// TestHostileBundles holds every reader to the same.
func TestHostileBundles(t *testing.T) {
	good := archive(t, entry{"/data.json", "{}"}, entry{"/a.rego", allow})
	link := func(kind byte, name, to string) []byte {
		var out bytes.Buffer
		zipped := gzip.NewWriter(&out)
		w := tar.NewWriter(zipped)
		if err := w.WriteHeader(&tar.Header{Name: name, Linkname: to, Typeflag: kind}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), zipped.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	var many []entry
	for i := range 10_001 {
		many = append(many, entry{fmt.Sprintf("/%d", i), ""})
	}
	key, verify := of(t, "HS256").Keys(t, "")
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"empty":            {nil, "is empty: want a bundle"},
		"a page":           {[]byte("<!DOCTYPE html><title>Sign in</title>"), "is no bundle: want a gzipped tar archive"},
		"cut off":          {good[:len(good)-12], "the bundle is cut off in the middle"},
		"cut off in front": {good[:9], "is no bundle: want a gzipped tar archive"},
		"damaged":          {append(good[:len(good)-8:len(good)-8], 0, 0, 0, 0, 0, 0, 0, 0), "the bundle cannot be taken: gzip: invalid checksum"},
		"up":               {archive(t, entry{"../a.rego", allow}), `the bundle cannot be taken: "../a.rego" leads out of the bundle`},
		"up within":        {archive(t, entry{"/a/../../b/data.json", "1"}), `the bundle cannot be taken: "/a/../../b/data.json" leads out of the bundle`},
		"two slashes":      {archive(t, entry{"//etc/a.rego", allow}), `the bundle cannot be taken: "//etc/a.rego" leads out of the bundle`},
		"backslash":        {archive(t, entry{`a\b.rego`, allow}), `the bundle cannot be taken: "a\\b.rego" is no clean name`},
		"symbolic link":    {link(tar.TypeSymlink, "/a.rego", "/etc/passwd"), `the bundle cannot be taken: "/a.rego" is a link or a device: only files and directories are taken`},
		"hard link":        {link(tar.TypeLink, "/a.rego", "/etc/passwd"), `the bundle cannot be taken: "/a.rego" is a link or a device: only files and directories are taken`},
		"device":           {link(tar.TypeChar, "/a.rego", ""), `the bundle cannot be taken: "/a.rego" is a link or a device: only files and directories are taken`},
		"twice":            {archive(t, entry{"/a.rego", allow}, entry{"/a.rego", allow}), `the bundle has two files of the name "a.rego": build it anew`},
		"twice, otherwise": {archive(t, entry{"/x/a.rego", allow}, entry{"./x//a.rego", allow}), `the bundle has two files of the name "x/a.rego": build it anew`},
		"many":             {archive(t, many...), "the bundle has more than 10000 entries, the most that are taken"},
		"large":            {bytes.Repeat([]byte{1}, bundles.MaxSize+1), fmt.Sprintf("the bundle is larger than %d bytes, the most that is taken", bundles.MaxSize)},
	} {
		_, inspected := bundles.Inspect(c.body)
		_, verified := bundles.Verify(c.body, verify, "", time.Now())
		_, signed := bundles.Sign(c.body, key, bundles.Claims{})
		for what, err := range map[string]error{"inspected": inspected, "verified": verified, "signed": signed} {
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %v, want %s", name, what, err, c.want)
			}
		}
	}
}

// TestBomb asks one reader, since it takes its time and all unpack alike.
func TestBomb(t *testing.T) {
	body := bomb(t)
	want := fmt.Sprintf("the bundle unpacks to more than %d bytes, the most that is taken", 4*bundles.MaxSize)
	if _, err := bundles.Inspect(body); len(body) > bundles.MaxSize/50 || err == nil || err.Error() != want {
		t.Errorf("%d bytes: %v, want %s", len(body), err, want)
	}
}

// bomb is small as it is sent.
func bomb(t testing.TB) []byte {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zipped)
	size := 4*bundles.MaxSize + 1
	if err := w.WriteHeader(&tar.Header{Name: "/data.json", Typeflag: tar.TypeReg, Size: int64(size)}); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for n := 0; n < size; n += len(zeros) {
		if _, err := w.Write(zeros[:min(len(zeros), size-n)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
