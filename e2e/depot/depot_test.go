package depot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/keys"
)

const module = "package mcp.authz\n\nallow := true\n"

func good() Publication {
	return Publication{Revision: "r1", Files: map[string]string{"mcp/authz/authz.rego": module, "data.json": `{"mcp":{"n":1}}`}}
}

// open serves a depot for the test.
func open(t *testing.T) (*Depot, string) {
	d := New()
	s := httptest.NewServer(d)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return d, s.URL
}

func publish(t *testing.T, d *Depot, p Publication) {
	t.Helper()
	if err := d.Publish("b", p); err != nil {
		t.Fatal(err)
	}
}

// get asks for the bundle. The error is what keeps the body from being read.
func get(t *testing.T, url, known, prefer string) (*http.Response, []byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/bundles/b", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("If-None-Match", known)
	r.Header.Set("Prefer", prefer)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// read has OPA's own reader judge a body, with the named key trusted.
func read(t *testing.T, d *Depot, body []byte, key string) (bundle.Bundle, error) {
	t.Helper()
	reader := bundle.NewReader(bytes.NewReader(body))
	if key != "" {
		pem, err := d.PublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		trusted := map[string]*keys.Config{key: {Key: pem, Algorithm: "RS256"}}
		reader = reader.WithBundleVerificationConfig(bundle.NewVerificationConfig(trusted, "", "", nil))
	} else {
		reader = reader.WithSkipBundleVerification(true)
	}
	return reader.Read()
}

// A good publication is a bundle in OPA's eyes, with the signature that was
// asked for.
func TestGood(t *testing.T) {
	d, url := open(t)
	p := good()
	p.Sign = &Signature{Key: "k"}
	publish(t, d, p)
	resp, body, err := get(t, url, "", "")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	b, err := read(t, d, body, "k")
	if err != nil {
		t.Fatal(err)
	}
	if b.Manifest.Revision != "r1" || len(b.Modules) != 1 || string(b.Modules[0].Raw) != module {
		t.Errorf("read %+v", b)
	}
}

// Each broken signature is one that OPA's reader refuses, for its own reason.
func TestSignatures(t *testing.T) {
	for name, c := range map[string]struct {
		sign *Signature
		want string
	}{
		"unsigned":      {nil, "missing .signatures.json"},
		"wrong key":     {&Signature{Key: "other", KeyID: "k"}, "failed to verify JWT signature"},
		"unknown key":   {&Signature{Key: "other"}, `verification key corresponding to ID other not found`},
		"no key":        {&Signature{Key: "k", KeyID: "none"}, "verification key ID is empty"},
		"none":          {&Signature{Key: "k", Alg: "none"}, "failed to verify JWT signature"},
		"changed":       {&Signature{Key: "k", Change: map[string]string{"mcp/authz/authz.rego": module + "\n"}}, "digest mismatch"},
		"added":         {&Signature{Key: "k", Add: map[string]string{"mcp/x.rego": "package mcp.x"}}, "not included in bundle signature"},
		"lists fewer":   {&Signature{Key: "k", Without: []string{"data.json"}}, "not included in bundle signature"},
		"lists more":    {&Signature{Key: "k", Beside: []string{"mcp/more.rego"}}, "specified in bundle signatures but not found"},
		"another scope": {&Signature{Key: "k", Scope: "write"}, "scope mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			d, url := open(t)
			p := good()
			p.Sign = c.sign
			publish(t, d, p)
			_, body, err := get(t, url, "", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err = read(t, d, body, "k"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("OPA says %v, want %q", err, c.want)
			}
		})
	}
}

// Each fault of sending is what its name says.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		p      Publication
		status int
		check  func(t *testing.T, resp *http.Response, body []byte, err error)
	}{
		"unmodified": {Publication{Fault: Unmodified}, 304, nil},
		"empty": {Publication{Fault: Empty}, 200, func(t *testing.T, _ *http.Response, body []byte, _ error) {
			if len(body) > 0 {
				t.Errorf("%d bytes", len(body))
			}
		}},
		"cut": {Publication{Fault: Cut}, 200, func(t *testing.T, _ *http.Response, body []byte, err error) {
			if _, bad := read(t, New(), body, ""); err != nil || !errors.Is(bad, io.ErrUnexpectedEOF) {
				t.Errorf("%v, %v", err, bad)
			}
		}},
		"short": {Publication{Fault: Short}, 200, func(t *testing.T, _ *http.Response, _ []byte, err error) {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		}},
		"redirect":      {Publication{Fault: "redirect http://169.254.169.254/"}, 307, nil},
		"status":        {Publication{Fault: "status 503"}, 503, nil},
		"no ETag":       {Publication{ETag: "none"}, 200, header("ETag", "")},
		"weak ETag":     {Publication{ETag: `W/"a"`}, 200, header("ETag", `W/"a"`)},
		"changing ETag": {Publication{ETag: "changing"}, 200, header("ETag", `"answer-1"`)},
		"page":          {Publication{Raw: "<html>", Type: "text/html"}, 200, header("Content-Type", "text/html")},
	} {
		t.Run(name, func(t *testing.T) {
			d, url := open(t)
			c.p.Files = good().Files
			publish(t, d, c.p)
			resp, body, err := get(t, url, "", "")
			if resp == nil || resp.StatusCode != c.status {
				t.Fatal(resp, err)
			}
			if c.check != nil {
				c.check(t, resp, body, err)
			}
		})
	}
}

func header(name, want string) func(*testing.T, *http.Response, []byte, error) {
	return func(t *testing.T, resp *http.Response, _ []byte, err error) {
		if got := resp.Header.Get(name); got != want || err != nil {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
}

// A reset is an error without an answer, and a 304 can have a body behind it.
func TestRawFaults(t *testing.T) {
	d, url := open(t)
	publish(t, d, Publication{Fault: Reset})
	if resp, _, err := get(t, url, "", ""); err == nil {
		t.Errorf("reset: %v", resp)
	}
	publish(t, d, Publication{Fault: UnmodifiedBody})
	if resp, _, err := get(t, url, "", ""); err != nil || resp.StatusCode != 304 || resp.Header.Get("Content-Length") == "" {
		t.Errorf("304 with a body: %v %v", resp, err)
	}
}

// The bomb unpacks to what it says and is never held.
func TestBomb(t *testing.T) {
	d, url := open(t)
	p := good()
	p.Bomb = 256 << 20
	publish(t, d, p)
	_, body, err := get(t, url, "", "")
	if err != nil || len(body) > 2<<20 {
		t.Fatal(len(body), err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(zipped)
	var total int64
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		total = max(total, h.Size)
	}
	if total != 256<<20 {
		t.Errorf("%d bytes", total)
	}
}

// Who knows what there is gets 304, at once or when its patience ends, and is
// answered as soon as there is something else.
func TestLongPoll(t *testing.T) {
	d, url := open(t)
	publish(t, d, good())
	resp, _, err := get(t, url, "", "")
	if err != nil {
		t.Fatal(err)
	}
	etag := resp.Header.Get("ETag")
	if resp, _, _ = get(t, url, etag, "modes=snapshot;wait=30"); resp.StatusCode != 304 {
		t.Errorf("status %d where nobody waits", resp.StatusCode)
	}
	d.Long = true
	if resp, _, _ = get(t, url, etag, "modes=snapshot;wait=1"); resp.StatusCode != 304 {
		t.Errorf("status %d after the wait", resp.StatusCode)
	}
	before := len(d.Requests("b"))
	done := make(chan int)
	go func() {
		resp, _, err := get(t, url, etag, "modes=snapshot;wait=60")
		if err != nil {
			done <- 0
			return
		}
		done <- resp.StatusCode
	}()
	for len(d.Requests("b")) == before {
		time.Sleep(time.Millisecond)
	}
	next := good()
	next.Revision = "r2"
	publish(t, d, next)
	if status := <-done; status != 200 {
		t.Errorf("status %d for what is new", status)
	}
	if got := d.Known("b"); !slices.Equal(got, []string{"", etag}) {
		t.Errorf("known %q", got)
	}
}

// What OPA's plugins upload is kept in order.
func TestSink(t *testing.T) {
	d, url := open(t)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if err := errors.Join(json.NewEncoder(w).Encode([]map[string]any{{"decision_id": "1"}, {"decision_id": "2"}}), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/logs", &zipped)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	if got := d.Events(); len(got) != 2 || got[1].Fields["decision_id"] != "2" || got[1].Chunk != 1 {
		t.Errorf("events %v", got)
	}
}
