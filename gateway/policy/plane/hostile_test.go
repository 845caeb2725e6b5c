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
	for i := range 3 {
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
		"html":      {raw: []byte("<!DOCTYPE html><title>Log in</title>"), want: `not a bundle: it is no gzip archive but begins with "<!DOCTYPE html><title>Log in</title>"`},
		"empty":     {raw: []byte{}, want: `not a bundle: it is no gzip archive but begins with ""`},
		"truncated": {raw: whole[:len(whole)-30], want: "the bundle is cut off: its archive ends too early"},
		"large":     {raw: bytes.Repeat([]byte{0x1f, 0x8b}, 1<<19+1), want: "the download has more than 1048576 bytes; make the bundle smaller or raise size_limit_bytes"},
		"bomb":      {raw: bomb(t, 50<<20), want: `the bundle's file "/data.json" has 52428800 bytes, more than 1048576`},
		"together":  {raw: tarball(t, halves...), want: "the bundle unpacks to more than 1048576 bytes"},
		"crowd":     {raw: tarball(t, crowd...), want: "the bundle unpacks to more than 1048576 bytes"},
		"up":        {raw: file("../../etc/x.rego", 0), want: `the bundle's entry "../../etc/x.rego" points outside the bundle`},
		"up inside": {raw: file("/mcp/../../x.rego", 0), want: `points outside the bundle`},
		"symlink":   {raw: file("/a.rego", tar.TypeSymlink), want: `the bundle's entry "/a.rego" is no plain file (type "2"): links and devices are not taken`},
		"twice":     {raw: tarball(t, entry{name: "/a.rego", text: allowed}, entry{name: "a.rego", text: allowed}), want: `the bundle holds "a.rego" twice`},
		"short": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(whole)
		}, want: fmt.Sprintf("the download ended after %d of 100000 bytes", len(whole))},
		"redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/latest/meta-data", http.StatusFound)
		}, want: "a redirect from " + s.URL + " to " + other.URL + " is refused; configure the service's own URL"},
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
	_, err := unpack(tarball(t, crowd...), 64<<20, time.Now())
	if err == nil || err.Error() != "the bundle has more than 10000 entries" {
		t.Errorf("got %v", err)
	}
}

func TestABombIsNotUnpacked(t *testing.T) {
	raw := bomb(t, 256<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := unpack(raw, 64<<20, time.Now())
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "has 268435456 bytes, more than 67108864") {
		t.Errorf("got %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("allocated %d bytes", took)
	}
}
