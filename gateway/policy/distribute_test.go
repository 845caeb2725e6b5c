package policy

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
)

// depot is a bundle server that gives what it is told to.
type depot struct {
	*httptest.Server
	mu    sync.Mutex
	serve map[string]http.HandlerFunc
	asked []string // If-None-Match of each request for a bundle
}

func newDepot(t *testing.T) *depot {
	d := &depot{serve: map[string]http.HandlerFunc{}}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		h := d.serve[strings.TrimPrefix(r.URL.Path, "/bundles/")]
		d.asked = append(d.asked, r.Header.Get("If-None-Match"))
		d.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *depot) put(name string, h http.HandlerFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serve[name] = h
}

// tagged gives the bundle under the ETag, and 304 to who has it.
func tagged(etag string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("If-None-Match"), etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", etag)
		w.Header().Set("Content-Type", "application/gzip")
		_, _ = w.Write(body)
	}
}

// pack makes a bundle of modules, with the roots that it claims.
func pack(t *testing.T, revision string, roots []string, modules map[string]string) []byte {
	t.Helper()
	b := bundle.Bundle{Manifest: bundle.Manifest{Revision: revision, Roots: &roots}, Data: map[string]any{}}
	b.Manifest.SetRegoVersion(ast.RegoV1)
	for path, text := range modules {
		b.Modules = append(b.Modules, bundle.ModuleFile{URL: path, Path: path, Raw: []byte(text), Parsed: ast.MustParseModule("package x")})
	}
	var out bytes.Buffer
	if err := bundle.NewWriter(&out).UseModulePath(true).DisableFormat(true).Write(b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func single(t *testing.T, revision, value string) []byte {
	return pack(t, revision, []string{"mcp"}, map[string]string{"/authz.rego": module(value)})
}

// fast polls as fast as OPA can.
func (d *depot) config(names ...string) map[string]any {
	bundles := map[string]any{}
	for _, name := range names {
		bundles[name] = map[string]any{
			"service": "depot", "resource": "bundles/" + name,
			"polling": map[string]any{"min_delay_seconds": int64(1), "max_delay_seconds": int64(1)},
		}
	}
	return map[string]any{"services": map[string]any{"depot": map[string]any{"url": d.URL}}, "bundles": bundles}
}

func distributed(t *testing.T, opa map[string]any) (*Engine, messages) {
	t.Helper()
	logged := make(messages, 10_000)
	e, err := New(Config{OPA: opa}, slog.New(logged))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e, logged
}

// Bundles come into force as they are published, and what is refused leaves the
// last good one in force, is asked for again under the same ETag and told of.
func TestBundle(t *testing.T) {
	d := newDepot(t)
	e, logged := distributed(t, d.config("main"))
	if got := answer(t, e); got != "no policy" {
		t.Fatalf("before any bundle: %s", got)
	}
	logged.expect(t, "not to be had", "Not Found")
	if s := e.Status(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0].String(), "bundle main: ") {
		t.Errorf("before any bundle: %v", s.Problems)
	}
	d.put("main", tagged(`"a"`, single(t, "rev1", "true")))
	logged.expect(t, "policy in force")
	if got := answer(t, e); got != "true" || e.Current().Bundles()["main"] != "rev1" {
		t.Errorf("first: %s of %v", got, e.Current().Bundles())
	}

	d.put("main", tagged(`"b"`, pack(t, "rev2", []string{"mcp"}, map[string]string{"/authz.rego": "package mcp.authz\n\nother := true"})))
	logged.expect(t, "bundle refused", "no rule allow")
	if got := answer(t, e); got != "true" {
		t.Errorf("refused: %s", got)
	}
	d.put("main", tagged(`"b"`, single(t, "rev2", "false"))) // mended in place
	logged.expect(t, "policy in force")
	if got := answer(t, e); got != "false" || e.Current().Bundles()["main"] != "rev2" {
		t.Errorf("mended: %s of %v", got, e.Current().Bundles())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, sent := range d.asked[:len(d.asked)-1] {
		if sent == `"b"` {
			t.Errorf("request %d calls the refused bundle known", i)
		}
	}
}
