package plane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// bomb packs a file of so many zeros.
func bomb(t *testing.T, size int64) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zip)
	if err := w.WriteHeader(&tar.Header{Name: "/data.json", Typeflag: tar.TypeReg, Size: size, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileDownloadsAreRefusedWithTheirCause(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	s := newShop(t)
	whole := pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})
	s.put("authz", good{etag: `"1"`, raw: whole})
	r := start(t, one(s, ""), func(o *Options) { o.MaxBundle, o.Download = 1<<20, 300*time.Millisecond })
	r.active("authz", "one")

	var crowd, halves []entry
	for i := range 10_001 {
		crowd = append(crowd, entry{name: fmt.Sprintf("/f%d", i), text: "x"})
	}
	for i := range 9 {
		halves = append(halves, entry{name: fmt.Sprintf("/%d/data.json", i), text: `"` + strings.Repeat("a", 500_000) + `"`})
	}
	file := func(name string, kind byte) []byte {
		return tarball(t, entry{name: name, text: "package mcp", kind: kind})
	}
	for name, c := range map[string]struct {
		raw    []byte
		answer http.HandlerFunc
		want   string
	}{
		"html":      {raw: []byte("<!DOCTYPE html><title>Log in</title>"), want: `the answer is no bundle (Content-Type "application/vnd.openpolicyagent.bundles"): want a gzipped tar archive`},
		"empty":     {raw: []byte{}, want: "is empty: want a bundle"},
		"truncated": {raw: whole[:len(whole)-30], want: "the bundle is cut off in the middle"},
		"large":     {raw: bytes.Repeat([]byte{0x1f, 0x8b}, 1<<19+1), want: "the bundle is larger than 1048576 bytes, the most that is taken"},
		"bomb":      {raw: bomb(t, 50<<20), want: "the bundle unpacks to more than 4194304 bytes, the most that is taken"},
		"together":  {raw: tarball(t, halves...), want: "the bundle unpacks to more than 4194304 bytes, the most that is taken"},
		"crowd":     {raw: tarball(t, crowd...), want: "the bundle unpacks to more than 4194304 bytes, the most that is taken"},
		"up":        {raw: file("../../etc/x.rego", 0), want: `the bundle cannot be taken: "../../etc/x.rego" leads out of the bundle`},
		"up inside": {raw: file("/mcp/../../x.rego", 0), want: `leads out of the bundle`},
		"symlink":   {raw: file("/a.rego", tar.TypeSymlink), want: `"/a.rego" is a link or a device: only files and directories are taken`},
		"twice":     {raw: tarball(t, entry{name: "/a.rego", text: allowed}, entry{name: "a.rego", text: allowed}), want: `the bundle has two files of the name "a.rego": build it anew`},
		"short": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(whole)
		}, want: fmt.Sprintf("the bundle ends after %d bytes, before its Content-Length of 100000", len(whole))},
		"redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/latest/meta-data", http.StatusFound)
		}, want: "the server redirects to " + other.URL + ": only the configured host is followed; configure the service's new URL"},
		"drip": {answer: func(w http.ResponseWriter, r *http.Request) {
			for _, b := range whole {
				_, _ = w.Write([]byte{b})
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}, want: "the service took too long to answer"},
	} {
		s.put("authz", good{etag: `"bad"`, raw: c.raw, answer: c.answer})
		st := r.trouble("authz", c.want)
		if b := st.of("authz"); b.Revision != "one" || !st.Ready {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("the other host was asked %d times", n)
	}
	if n := r.judges(); n != 1 {
		t.Errorf("judged %d times", n)
	}
	// A redirect that stays is followed.
	s.put("moved", good{raw: pack(t, "two", []string{"mcp"}, map[string]string{"/a.rego": allowed}), etag: `"m"`})
	s.put("authz", good{answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/bundles/moved", http.StatusFound) }})
	r.active("authz", "two")
}

func TestManyEntriesAreRefused(t *testing.T) {
	var crowd []entry
	for i := range maxFiles + 1 {
		crowd = append(crowd, entry{name: fmt.Sprintf("/f%d", i)})
	}
	_, err := unpack(tarball(t, crowd...), bounds{total: 64 << 20}, time.Now())
	if err == nil || err.Error() != "the bundle has more than 10000 entries, the most that are taken" {
		t.Errorf("got %v", err)
	}
}

func TestABombIsNotUnpacked(t *testing.T) {
	raw := bomb(t, 256<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := unpack(raw, bounds{file: 64 << 20, total: 256 << 20}, time.Now())
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "has 268435456 bytes, which exceeds size_limit_bytes, 67108864") {
		t.Errorf("got %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("allocated %d bytes", took)
	}
}
