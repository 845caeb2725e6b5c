package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regogate/regogate/bundles"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is a running server of one directory.
type stand struct {
	*httptest.Server
	t      *testing.T
	server *Server
	store  *Store
	dir    string
	stop   func()
}

func (s *stand) save(value string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "authz.rego")
	if err := os.WriteFile(path+"~", []byte("package mcp.authz\n\nallow := "+value+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		s.t.Fatal(err)
	}
}

// check refuses policies that say so.
func check(_ string, body []byte) error {
	text, err := unzipped(body)
	if err == nil && strings.Contains(text, `"refused"`) {
		err = errors.New("authz.rego:3: it is refused")
	}
	return err
}

func unzipped(body []byte) (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

func (s *stand) config() Config {
	return Config{
		Bundles: map[string]string{"authz": s.dir}, Store: s.store, Retain: 3, Check: check,
		Log: slog.New(slog.DiscardHandler),
	}
}

func newStand(t *testing.T, storeDir string, adjust ...func(*Config)) *stand {
	t.Helper()
	s := &stand{t: t, dir: t.TempDir()}
	s.save("true")
	var err error
	if s.store, err = OpenStore(storeDir); err != nil {
		t.Fatal(err)
	}
	c := s.config()
	for _, f := range adjust {
		f(&c)
	}
	if s.server, err = New(c); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(s.server.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.stop()
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// get returns status, ETag and body.
func (s *stand) get(path string, headers ...string) (int, string, string) {
	s.t.Helper()
	status, h, body := s.ask(http.MethodGet, path, headers...)
	return status, h.Get("ETag"), body
}

func (s *stand) ask(method, path string, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return 0, http.Header{}, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Error(err)
	}
	return answer.StatusCode, answer.Header, string(body)
}

// until waits for a status of the bundle.
func (s *stand) until(what string, f func(Status) bool) Status {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		now := s.server.Status()[0]
		if f(now) {
			return now
		}
		if time.Now().After(end) {
			s.t.Fatalf("waited for %s in vain: %+v", what, now)
		}
	}
}

// other waits for another revision to be served.
func (s *stand) other(than string) string {
	s.t.Helper()
	return s.until("another revision than "+than, func(st Status) bool { return st.Revision != "" && st.Revision != than }).Revision
}

func TestConditionalRequests(t *testing.T) {
	s := newStand(t, t.TempDir())
	first := s.other("")
	status, tag, body := s.get("/bundles/authz")
	info, err := bundles.Inspect([]byte(body))
	if status != http.StatusOK || err != nil || info.Revision != first {
		t.Fatalf("%d %s: %+v %v", status, tag, info, err)
	}
	for header, want := range map[string]int{
		tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200, "": 200,
	} {
		status, again, body := s.get("/bundles/authz.tar.gz", "If-None-Match", header)
		if status != want || again != tag || (want == 304) != (body == "") {
			t.Errorf("If-None-Match %s: %d %s, %d bytes", header, status, again, len(body))
		}
	}
	for path, want := range map[string]int{
		"/bundles/none": 404, "/bundles/..%2fauthz": 404, "/bundles/authz/revisions/none": 404, "/bundles/authz/revisions/" + first: 200,
		"/bundles/authz/revisions": 200, "/status": 200, "/health": 200, "/": 404,
	} {
		if status, _, _ := s.get(path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// Everybody who waits is answered when the bundle changes, and when the server
// stops.
func TestLongPolling(t *testing.T) {
	s := newStand(t, t.TempDir())
	s.other("")
	_, tag, _ := s.get("/bundles/authz")
	wait := func() (int, string) {
		status, again, _ := s.get("/bundles/authz", "If-None-Match", tag, "Prefer", "modes=snapshot,delta;wait=60")
		return status, again
	}
	const clients = 100
	var waiting sync.WaitGroup
	for range clients {
		waiting.Go(func() {
			if status, again := wait(); status != http.StatusOK || again == tag {
				t.Errorf("%d %s", status, again)
			}
		})
	}
	s.until("all to wait", func(st Status) bool { return st.Waiting == clients })
	s.save("false")
	waiting.Wait()
	_, tag, _ = s.get("/bundles/authz")
	waiting.Go(func() {
		if status, _ := wait(); status != http.StatusNotModified {
			t.Errorf("at the end: %d", status)
		}
	})
	s.until("one to wait", func(st Status) bool { return st.Waiting == 1 })
	s.stop()
	waiting.Wait()
}

// What is refused is told and not served; what comes after it is.
func TestRefusedPolicies(t *testing.T) {
	s := newStand(t, t.TempDir())
	first := s.other("")
	s.save(`"refused"`)
	st := s.until("the refusal", func(st Status) bool { return st.SourceProblem != "" })
	if st.Revision != first || st.SourceProblem != "authz.rego:3: it is refused" {
		t.Errorf("refused: %+v", st)
	}
	s.save("tru(")
	st = s.until("the syntax error", func(st Status) bool { return strings.Contains(st.SourceProblem, "authz.rego:4: unexpected eof token") })
	if st.Revision != first || strings.Contains(st.SourceProblem, "\n") {
		t.Errorf("broken: %+v", st)
	}
	s.save("false")
	if st := s.until("the mended one", func(st Status) bool { return st.Revision != first }); st.SourceProblem != "" {
		t.Errorf("mended: %+v", st)
	}
}

// Revisions are retained, up to a number, over restarts; a pinned one is served and
// kept whatever is published.
func TestRevisionsAndPins(t *testing.T) {
	dir := t.TempDir()
	s := newStand(t, dir)
	first := s.other("")
	s.save("false")
	second := s.other(first)
	if err := s.store.Pin("authz", "none"); err == nil || !strings.Contains(err.Error(), first+", "+second) {
		t.Errorf("pinned to what is not there: %v", err)
	}
	if err := s.store.Pin("authz", first); err != nil {
		t.Fatal(err)
	}
	s.until("the pinned one", func(st Status) bool { return st.Revision == first && st.Pinned })
	newest := func() string {
		list, err := s.store.Revisions("authz")
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		return list[len(list)-1].Revision
	}
	for i := range 4 {
		before := newest()
		s.save(fmt.Sprintf("%d == 1", i))
		s.until("another publication", func(Status) bool { return newest() != before })
	}
	list, err := s.store.Revisions("authz")
	if err != nil || len(list) != 4 || list[0].Revision != first {
		t.Errorf("retained %+v %v, want the pinned one and the last three", list, err)
	}
	s.stop()
	// A process that was killed leaves something behind.
	if err := os.WriteFile(filepath.Join(dir, "authz", ".new-1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := newStand(t, dir, func(c *Config) { c.Bundles["authz"] = s.dir })
	if st := again.server.Status()[0]; st.Revision != first || !st.Pinned {
		t.Errorf("after a restart: %+v", st)
	}
	if err := again.store.Unpin("authz"); err != nil {
		t.Fatal(err)
	}
	again.until("the newest", func(st Status) bool { return st.Revision == list[3].Revision && !st.Pinned })
	path := filepath.Join(dir, "authz", archive(list[2].Digest))
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := again.get("/bundles/authz/revisions/" + list[2].Revision); status != http.StatusInternalServerError {
		t.Errorf("a damaged revision: %d", status)
	}
}

// The token is the file's at each request, even where that was written within one
// tick of the clock. While the file holds none, the last one counts.
func TestToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	then := time.Now()
	write := func(text string) {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, then, then)); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	token, err := OpenToken(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newStand(t, t.TempDir(), func(c *Config) { c.Token = token })
	s.other("")
	ask := func(header string) int {
		status, h, _ := s.ask(http.MethodGet, "/bundles/authz", "Authorization", header)
		if challenge := h.Get("WWW-Authenticate"); (status == 401) != (challenge == `Bearer realm="bundles"`) {
			t.Errorf("%q: %d, WWW-Authenticate %q", header, status, challenge)
		}
		return status
	}
	for header, want := range map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer two": 401, "one": 401, "Basic one": 401, "Bearer one": 200, "bearer one": 200,
	} {
		if got := ask(header); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
	for _, path := range []string{"/status", "/bundles/authz/revisions", "/bundles/authz/revisions/x"} {
		if status, _, _ := s.get(path); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _, _ := s.get("/health"); status != http.StatusOK {
		t.Errorf("/health: %d", status)
	}
	write("two\n")
	if ask("Bearer one") != 401 || ask("Bearer two") != 200 {
		t.Error("the token that was changed is not the one that counts")
	}
	for _, text := range []string{"", " \n", strings.Repeat("x", maxToken+1)} {
		write(text)
		if ask("Bearer two") != 200 || ask("Bearer") != 401 {
			t.Errorf("%d bytes took the last token away", len(text))
		}
		if _, err := OpenToken(path); err == nil {
			t.Errorf("%d bytes are a token", len(text))
		}
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "A", "a/b", "..", "a b", strings.Repeat("a", 65)} {
		store, err := OpenStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Bundles: map[string]string{name: t.TempDir()}, Store: store, Log: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}
