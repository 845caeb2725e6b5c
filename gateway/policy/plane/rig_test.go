package plane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a bundle server that supports long polling: a request for what it
// already has waits until there is something else.
type shop struct {
	*httptest.Server
	mu       sync.Mutex
	goods    map[string]good
	changed  chan struct{}
	asked    []*http.Request
	received map[string][]byte
}

type good struct {
	raw    []byte
	etag   string
	answer http.HandlerFunc // instead of raw
}

func newShop(t *testing.T) *shop {
	s := &shop{goods: map[string]good{}, changed: make(chan struct{}), received: map[string][]byte{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *shop) put(name string, g good) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goods["/bundles/"+name] = g
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shop) requests(name string) []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*http.Request
	for _, r := range s.asked {
		if r.URL.Path == "/bundles/"+name {
			found = append(found, r)
		}
	}
	return found
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		raw, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.received[r.URL.Path] = raw
		s.mu.Unlock()
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, r)
	s.mu.Unlock()
	for {
		s.mu.Lock()
		g, ok := s.goods[r.URL.Path]
		changed := s.changed
		s.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if g.answer == nil && (g.etag == "" || r.Header.Get("If-None-Match") != g.etag) {
			w.Header().Set("Content-Type", "application/vnd.openpolicyagent.bundles")
			if g.etag != "" {
				w.Header().Set("ETag", g.etag)
			}
			_, _ = w.Write(g.raw)
			return
		}
		if g.answer != nil {
			g.answer(w, r)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// pack writes a bundle with OPA's own writer.
func pack(t *testing.T, revision string, roots []string, files map[string]string, sign ...*bundle.SigningConfig) []byte {
	t.Helper()
	b := bundle.Bundle{Manifest: bundle.Manifest{Revision: revision, Roots: &roots}, Data: map[string]any{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".rego") {
			b.Modules = append(b.Modules, bundle.ModuleFile{URL: name, Path: name, RelativePath: name, Raw: []byte(files[name])})
			continue
		}
		if err := json.Unmarshal([]byte(files[name]), &b.Data); err != nil {
			t.Fatal(err)
		}
	}
	if len(sign) > 0 {
		for i, m := range b.Modules {
			b.Modules[i].Parsed = ast.MustParseModule(string(m.Raw))
		}
		if err := b.GenerateSignature(sign[0], "first", false); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := bundle.NewWriter(&out).UseModulePath(true).DisableFormat(true).Write(b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// entry is one entry of a hand-made archive.
type entry struct {
	name, text string
	kind       byte
}

func tarball(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.text)), Mode: 0o600}
		if e.kind == tar.TypeSymlink {
			h.Linkname, h.Size = e.text, 0
		}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, e.text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unzip lists a tarball's entries again.
func entriesOf(t *testing.T, raw []byte) []entry {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(zip)
	var found []entry
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, entry{name: h.Name, text: string(text), kind: h.Typeflag})
	}
}

// rig is a running plane with a judge that notes what it is asked.
type rig struct {
	*Plane
	t      *testing.T
	stop   func()
	mu     sync.Mutex
	asked  []*Candidate
	force  *Candidate // the last that was committed
	judge  func(*Candidate) error
	logged *bytes.Buffer
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func start(t *testing.T, config string, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, logged: &bytes.Buffer{}}
	o := Options{Config: []byte(config), Version: "1.2.3", Labels: map[string]string{"gateway": "test"}}
	o.Log = slog.New(slog.NewTextHandler(&locked{w: r.logged}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Judge = func(_ context.Context, c *Candidate) (func(), error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, c)
		if r.judge != nil {
			if err := r.judge(c); err != nil {
				return nil, err
			}
		}
		return func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.force = c
		}, nil
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if r.Plane, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) judges() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

func (r *rig) inForce() *Candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.force
}

// until waits for a status.
func (r *rig) until(what string, f func(Status) bool) Status {
	r.t.Helper()
	late := time.After(20 * time.Second)
	for {
		s := r.Status()
		if f(s) {
			return s
		}
		select {
		case <-r.Changed():
		case <-time.After(20 * time.Millisecond):
		case <-late:
			r.t.Fatalf("waited for %s in vain: %+v", what, s)
		}
	}
}

func (r *rig) active(name, revision string) Status {
	r.t.Helper()
	return r.until(name+" "+revision, func(s Status) bool {
		b := s.of(name)
		return b.Revision == revision && b.Problem == "" && !b.Since.IsZero()
	})
}

func (r *rig) trouble(name, part string) Status {
	r.t.Helper()
	return r.until(fmt.Sprintf("%s %q", name, part), func(s Status) bool { return strings.Contains(s.of(name).Problem, part) })
}

func (s Status) of(name string) BundleStatus {
	for _, b := range s.Bundles {
		if b.Name == name {
			return b
		}
	}
	return BundleStatus{}
}

const fast = `"polling": {"min_delay_seconds": 1, "max_delay_seconds": 1, "long_polling_timeout_seconds": 30}`

func one(s *shop, extra string) string {
	return fmt.Sprintf(`{"services": {"shop": {"url": %q}}, "bundles": {"authz": {%s}}%s}`, s.URL, fast, extra)
}

const allowed = `package mcp

allow := true
`
