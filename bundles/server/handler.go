package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds of waiting: OPA asks for how long it wants, in seconds.
const (
	maxWait    = 5 * time.Minute
	maxWaiting = 10_000 // clients of one bundle
	retryAfter = "30"   // seconds
)

const (
	gzipType   = "application/gzip"
	bundleType = "application/vnd.openpolicyagent.bundles" // tells OPA that the server knows long polling
)

// Handler serves the bundles:
//
//	GET /bundles/NAME                       the bundle, also as NAME.tar.gz
//	GET /bundles/NAME/revisions             what is retained, JSON
//	GET /bundles/NAME/revisions/REVISION    a retained one
//	GET /status                             how the bundles fare, JSON
//	GET /health                             200 when every bundle is served, to everybody
//
// HEAD is as GET.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	for path, h := range map[string]http.HandlerFunc{
		"/status":                              func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Status()) },
		"/bundles/{name}":                      s.bundle,
		"/bundles/{name}/revisions":            s.revisions,
		"/bundles/{name}/revisions/{revision}": s.revisions,
	} {
		mux.Handle("GET "+path, s.authorized(h))
	}
	return s.logged(mux)
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
	b := s.served[strings.TrimSuffix(r.PathValue("name"), ".tar.gz")]
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
	known, wait := strings.Join(r.Header.Values("If-None-Match"), ","), waits(r.Header.Values("Prefer"))
	now, body, changed := b.current()
	if wait > 0 && (body == nil || matches(known, etag(now))) {
		if !b.enter() {
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, "too many clients wait for the bundle: ask again later", http.StatusServiceUnavailable)
			return
		}
		defer b.leave()
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-changed:
			now, body, _ = b.current()
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
	h.Set("Content-Type", gzipType)
	if wait > 0 {
		h.Set("Content-Type", bundleType)
	}
	if matches(known, etag(now)) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	// Ranges and conditions on time have no meaning for what may change any time.
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// current is what is served now, and is closed when that changes.
func (b *served) current() (now Revision, body []byte, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.body, b.changed
}

// enter reports whether there is room to wait, which is to be left then.
func (b *served) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == maxWaiting {
		return false
	}
	b.waiting++
	return true
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

// revisions answers with the list, or with the one that is asked for.
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
	revision := r.PathValue("revision")
	if revision == "" {
		writeJSON(w, append([]Revision{}, list...))
		return
	}
	found, ok := find(list, revision)
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
	w.Header().Set("Content-Type", gzipType)
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
