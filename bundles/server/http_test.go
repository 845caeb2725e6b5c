package server

import (
	"net/http"
	"strconv"
	"testing"
)

// HEAD is GET without a body, and nothing else is allowed.
func TestMethods(t *testing.T) {
	s := newStand(t, t.TempDir())
	first := s.other("")
	for path, kind := range map[string]string{
		"/bundles/authz": gzipType, "/bundles/authz/revisions/" + first: gzipType,
		"/bundles/authz/revisions": "application/json", "/status": "application/json", "/health": "text/plain; charset=utf-8",
	} {
		status, got, body := s.ask(http.MethodGet, path)
		if status != http.StatusOK || got.Get("Content-Type") != kind || body == "" {
			t.Errorf("GET %s: %d %v", path, status, got)
		}
		status, head, body := s.ask(http.MethodHead, path)
		if status != http.StatusOK || head.Get("Content-Type") != kind || head.Get("ETag") != got.Get("ETag") || body != "" {
			t.Errorf("HEAD %s: %d %v, %d bytes", path, status, head, len(body))
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			if status, h, _ := s.ask(method, path); status != http.StatusMethodNotAllowed || h.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, path, status, h.Get("Allow"))
			}
		}
	}
	_, _, body := s.ask(http.MethodGet, "/bundles/authz")
	if _, h, _ := s.ask(http.MethodHead, "/bundles/authz"); h.Get("Content-Length") != strconv.Itoa(len(body)) {
		t.Errorf("HEAD says that there are %s bytes of %d", h.Get("Content-Length"), len(body))
	}
}

// OPA goes on with long polling where the type of the answer says that it can.
func TestTypeOfLongPoll(t *testing.T) {
	s := newStand(t, t.TempDir())
	s.other("")
	status, h, _ := s.ask(http.MethodGet, "/bundles/authz", "Prefer", "modes=snapshot,delta;wait=60")
	if status != http.StatusOK || h.Get("Content-Type") != "application/vnd.openpolicyagent.bundles" {
		t.Errorf("%d %v", status, h)
	}
}

// Where too many wait, others are told to come later and not to ask again at once;
// what they do not have they get.
func TestNoRoomToWait(t *testing.T) {
	s := newStand(t, t.TempDir())
	s.other("")
	_, tag, _ := s.get("/bundles/authz")
	b := s.server.served["authz"]
	set := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiting = n
	}
	set(maxWaiting)
	defer set(0)
	if status, h, _ := s.ask(http.MethodGet, "/bundles/authz", "If-None-Match", tag, "Prefer", "wait=60"); status != http.StatusServiceUnavailable || h.Get("Retry-After") != "30" {
		t.Errorf("waiting: %d %v", status, h)
	}
	for _, headers := range [][]string{{"Prefer", "wait=60"}, {"If-None-Match", `"old"`, "Prefer", "wait=60"}} {
		if status, again, _ := s.get("/bundles/authz", headers...); status != http.StatusOK || again != tag {
			t.Errorf("%q: %d %s", headers, status, again)
		}
	}
	if st := s.server.Status()[0]; st.Waiting != maxWaiting {
		t.Errorf("%d wait", st.Waiting)
	}
}

// A name of a revision is found however it has to be written in a URL.
func TestRevisionInURL(t *testing.T) {
	s := newStand(t, t.TempDir(), func(c *Config) { c.Bundles = map[string]string{"authz": bundleFile(t, "main/3 of 4")} })
	s.other("")
	if status, _, body := s.get("/bundles/authz/revisions/main%2F3%20of%204"); status != http.StatusOK || body == "" {
		t.Errorf("%d, %d bytes", status, len(body))
	}
}
