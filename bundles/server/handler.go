package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
)

// Bounds of waiting: OPA asks for how long it wants, in seconds.
const (
	maxWait    = 5 * time.Minute
	maxWaiting = 10_000 // clients of one bundle
)

// bundleType tells OPA that the server knows long polling.
const bundleType = "application/vnd.openpolicyagent.bundles"

// Handler serves the bundles:
//
//	GET /bundles/NAME                       the bundle, also as NAME.tar.gz
//	GET /bundles/NAME/revisions             what is retained, JSON
//	GET /bundles/NAME/revisions/REVISION    a retained one
//	GET /status                             how the bundles fare, JSON
//	GET /health                             200 when every bundle is served, to everybody
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(s.logged)
	r.Get("/health", s.health)
	r.Group(func(r chi.Router) {
		r.Use(s.authorized)
		r.Get("/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Status()) })
		r.Get("/bundles/{name}", s.bundle)
		r.Head("/bundles/{name}", s.bundle)
		r.Get("/bundles/{name}/revisions", s.revisions)
		r.Get("/bundles/{name}/revisions/{revision}", s.revision)
	})
	return r
}

func (s *Server) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, seen := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		s.config.Log.Info("request", "method", r.Method, "path", r.URL.Path, "status", seen.status,
			"remote", r.RemoteAddr, "took", time.Since(start))
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// authorized asks for the token where there is one.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.config.Token != nil && !s.config.Token.matches(r.Header.Get("Authorization")) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="bundles"`)
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	for _, st := range s.Status() {
		if st.ETag == "" {
			http.Error(w, "bundle "+st.Bundle+" is not published yet", http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) find(w http.ResponseWriter, r *http.Request) *served {
	b := s.served[strings.TrimSuffix(chi.URLParam(r, "name"), ".tar.gz")]
	if b == nil {
		http.Error(w, "no such bundle", http.StatusNotFound)
	}
	return b
}

// bundle answers at once where the client does not have what is served, and
// otherwise when that changes or the client has waited as long as it wanted to.
func (s *Server) bundle(w http.ResponseWriter, r *http.Request) {
	b := s.find(w, r)
	if b == nil {
		return
	}
	wait := waits(r.Header.Values("Prefer"))
	contentType := "application/gzip"
	if wait > 0 {
		contentType = bundleType
	}
	known := r.Header.Get("If-None-Match")
	now, body, changed, room := b.take(wait > 0)
	if room {
		defer b.leave()
	}
	if wait > 0 && room && (body == nil || matches(known, etag(now))) {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-changed:
			now, body, _, _ = b.take(false)
		case <-timer.C:
		case <-s.closing:
		case <-r.Context().Done():
			return
		}
	}
	if body == nil {
		http.Error(w, "the bundle is not published yet", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("ETag", etag(now))
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", contentType)
	if matches(known, etag(now)) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	// Ranges and conditions on time have no meaning for what may change any time.
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = bytes.NewReader(body).WriteTo(w)
	}
}

// take is what is served now; the caller leaves the room to wait that it got.
func (b *served) take(wait bool) (now Revision, body []byte, changed <-chan struct{}, room bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait && b.waiting < maxWaiting {
		b.waiting++
		room = true
	}
	return b.now, b.body, b.changed, room
}

func (b *served) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting--
}

// waits is how long a client prefers to wait (RFC 7240, section 4.3), bounded.
func waits(prefer []string) time.Duration {
	for _, value := range prefer {
		for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ';' || r == ',' }) {
			seconds, ok := strings.CutPrefix(strings.TrimSpace(part), "wait=")
			if n, err := strconv.Atoi(seconds); ok && err == nil && n > 0 {
				return min(time.Duration(min(n, 1<<20))*time.Second, maxWait)
			}
		}
	}
	return 0
}

// matches compares as If-None-Match does (RFC 9110, section 13.1.2): weakly.
func matches(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == "*" || strings.TrimPrefix(part, "W/") == tag {
			return true
		}
	}
	return false
}

func (s *Server) revisions(w http.ResponseWriter, r *http.Request) {
	b := s.find(w, r)
	if b == nil {
		return
	}
	list, err := s.config.Store.Revisions(b.name)
	if err != nil {
		s.broken(w, err)
		return
	}
	writeJSON(w, list)
}

func (s *Server) revision(w http.ResponseWriter, r *http.Request) {
	b := s.find(w, r)
	if b == nil {
		return
	}
	list, err := s.config.Store.Revisions(b.name)
	if err != nil {
		s.broken(w, err)
		return
	}
	found, ok := find(list, chi.URLParam(r, "revision"))
	if !ok {
		http.Error(w, "no such revision is retained", http.StatusNotFound)
		return
	}
	body, err := s.config.Store.Read(b.name, found)
	if err != nil {
		s.broken(w, err)
		return
	}
	w.Header().Set("ETag", etag(found))
	w.Header().Set("Content-Type", "application/gzip")
	_, _ = w.Write(body)
}

func (s *Server) broken(w http.ResponseWriter, err error) {
	s.config.Log.Error("the store cannot be read", "error", err)
	http.Error(w, "the store cannot be read", http.StatusInternalServerError)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // what fails here is the client's connection
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Token is a secret in a file that is read again when it changes.
type Token struct {
	path string
	mu   sync.Mutex
	read time.Time
	sum  [sha256.Size]byte
}

// OpenToken fails for a file that holds none.
func OpenToken(path string) (*Token, error) {
	t := &Token{path: path}
	if err := t.refresh(); err != nil {
		return nil, err
	}
	return t, nil
}

// refresh is called with the lock held, or before the token is shared.
func (t *Token) refresh() error {
	info, err := os.Stat(t.path)
	if err != nil {
		return err
	}
	if info.ModTime().Equal(t.read) {
		return nil
	}
	text, err := os.ReadFile(t.path)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return fmt.Errorf("%s: holds no token", t.path)
	}
	t.read, t.sum = info.ModTime(), sha256.Sum256([]byte(token))
	return nil
}

// matches reports whether the header carries the token. While the file cannot be
// read, the last one counts.
func (t *Token) matches(header string) bool {
	given, ok := strings.CutPrefix(header, "Bearer ")
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.refresh()
	sum := sha256.Sum256([]byte(given))
	return ok && subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}
