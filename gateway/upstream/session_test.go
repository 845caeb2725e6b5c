package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestWebRestart is B028.
func TestWebRestart(t *testing.T) {
	d := newWebDouble(t, nil)
	p := newPool(t, alpha(d), quick(nil))
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)

	d.restart()
	m, err = callTool(t.Context(), p, "alpha", "a", "read", `{"once":1}`)
	must(t, m, err)
	if n := len(d.posts("initialize")); n != 2 {
		t.Errorf("initialize was sent %d times, want once more", n)
	}
	if last := d.posts("tools/call"); last[len(last)-1].header.Get("Mcp-Session-Id") != "session-2" {
		t.Errorf("the call was sent again with %v", last[len(last)-1].header)
	}

	d.restart()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			m, err := callTool(t.Context(), p, "alpha", "a", "read", `{"twenty":1}`)
			if err != nil || m.Error != nil {
				t.Errorf("a call after the restart failed: %v %v", m, err)
			}
		})
	}
	wg.Wait()
	if n := len(d.posts("initialize")); n != 3 {
		t.Errorf("initialize was sent %d times, want once more for 20 calls", n)
	}
	sent := d.got(func(s seen) bool { return strings.Contains(s.body, "twenty") })
	if len(sent) > 40 {
		t.Errorf("20 calls were sent %d times", len(sent))
	}
}

// TestWebRefusesSession: what comes instead of 404, and when nothing helps.
func TestWebRefusesSession(t *testing.T) {
	var status atomic.Int32
	d := newWebDouble(t, nil)
	d.first = func(w http.ResponseWriter, s seen) bool {
		id := s.header.Get("Mcp-Session-Id")
		if code := int(status.Load()); code != 0 && id != "" && !d.has(id) {
			w.WriteHeader(code)
			return true
		}
		return false
	}
	p := newPool(t, alpha(d), quick(nil))
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
	for _, tt := range []struct {
		status int
		kind   Kind // 0 is success
	}{{400, 0}, {401, Unavailable}, {503, Unavailable}, {404, 0}} {
		d.restart()
		status.Store(int32(tt.status))
		m, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
		if tt.kind == 0 {
			must(t, m, err)
			continue
		}
		wantKind(t, err, tt.kind, "alpha")
		status.Store(404)
		m, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
		must(t, m, err)
	}
	// A 400 of a session that lives is the server's answer.
	d.call = func(w http.ResponseWriter, s seen) { fail(w, s, 400, -32602, "bad arguments", "") }
	inits := len(d.posts("initialize"))
	m, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
	if err != nil || m.Err().Message != "bad arguments" {
		t.Errorf("the answer is %v, %v", m, err)
	}
	if n := len(d.posts("initialize")); n != inits {
		t.Errorf("initialize was sent %d times more", n-inits)
	}
	// Every session is gone at once.
	d.call = func(w http.ResponseWriter, s seen) { http.Error(w, "gone", http.StatusNotFound) }
	_, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
	wantKind(t, err, Unavailable, "alpha")
	if n := len(d.posts("initialize")); n != inits+1 {
		t.Errorf("initialize was sent %d times more, want once", n-inits)
	}
}

// TestGivenUpOnTheWay: a request that a proxy no longer waits for may have been
// carried out, so nobody is told that the server is merely unavailable.
func TestGivenUpOnTheWay(t *testing.T) {
	for status, kind := range map[int]Kind{502: Unavailable, 503: Unavailable, 504: Timeout, 429: Unavailable, 401: Unavailable, 500: Broken} {
		d := newWebDouble(t, func(d *webDouble) {
			d.call = func(w http.ResponseWriter, s seen) { w.WriteHeader(status) }
		})
		_, err := callTool(t.Context(), newPool(t, alpha(d), quick(nil)), "alpha", "a", "read", "{}")
		wantKind(t, err, kind, "alpha")
	}
}

// TestWebCancel: by message in the legacy era, by closing the connection in
// the modern one.
func TestWebCancel(t *testing.T) {
	for _, modern := range []bool{false, true} {
		arrived, gone := make(chan struct{}, 2), make(chan struct{}, 2)
		d := newWebDouble(t, func(d *webDouble) { d.modern = modern })
		d.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte(`"tools/call"`)) {
				arrived <- struct{}{}
				<-r.Context().Done()
				gone <- struct{}{}
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			d.ServeHTTP(w, r)
		})
		p := newPool(t, alpha(d), quick(nil))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		_, err := callTool(ctx, p, "alpha", "a", "read", "{}")
		wantKind(t, err, Canceled, "alpha")
		receive(t, gone, "the end of the connection")

		ctx, pass := deadline(t)
		go func() {
			<-arrived
			pass()
		}()
		_, err = callTool(ctx, p, "alpha", "a", "read", "{}")
		wantKind(t, err, Timeout, "alpha")
		receive(t, gone, "the end of the connection")
		p.Close()
		var got []string
		for _, s := range d.posts("notifications/cancelled") {
			got = append(got, s.body)
		}
		slices.Sort(got)
		want := []string{
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the client cancelled the request"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"the request took too long"}}`,
		}
		if modern {
			want = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("modern %v: the server was told\n%s\nwant\n%s", modern, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestWebClosesSessions: the server is told when a session is over.
func TestWebClosesSessions(t *testing.T) {
	d := newWebDouble(t, nil)
	c := d.config()
	c.IdleTimeout = 50 * time.Millisecond
	p := running(t, map[string]Config{"alpha": c}, quick(nil))
	for _, principal := range []string{"a", "b", "a"} {
		m, err := callTool(t.Context(), p, "alpha", principal, "read", "{}")
		must(t, m, err)
	}
	if n := len(d.posts("initialize")); n < 3 {
		t.Errorf("%d sessions were opened, want one for each of discovery, a and b", n)
	}
	eventually(t, "the end of idle sessions", func() bool {
		return len(d.got(func(s seen) bool { return s.method == http.MethodDelete })) >= 2
	})
	p.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	// One that discovery was opening at that moment has no id yet to end it by.
	if len(d.sessions) > 1 {
		t.Errorf("the sessions %v are still open", d.sessions)
	}
}

// TestWebStartsOnce is B043 and B037: one session for each principal, however
// many calls come at once.
func TestWebStartsOnce(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		d.first = func(w http.ResponseWriter, s seen) bool {
			time.Sleep(5 * time.Millisecond)
			return false
		}
	})
	p := newPool(t, alpha(d), quick(nil))
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			m, err := callTool(t.Context(), p, "alpha", []string{"a", "b"}[i%2], "read", "{}")
			if err != nil || m.Error != nil {
				t.Errorf("a call failed: %v %v", m, err)
			}
		})
	}
	wg.Wait()
	if n := len(d.posts("initialize")); n != 2 {
		t.Errorf("initialize was sent %d times for two principals", n)
	}
}

// TestWebRestartWithOtherTools is B028 (d).
func TestWebRestartWithOtherTools(t *testing.T) {
	d := newWebDouble(t, nil)
	o := quick(nil)
	o.Refresh = time.Hour
	p := running(t, alpha(d), o)
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
	paged(d, func(string) string { return toolList("", "other") })
	d.restart()
	m, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
	until(t, p, "the other tool", func(s *State) bool { return s.Server("alpha").Tool("other") != nil })
	wantNames(t, p.Current().Server("alpha"), "other")
}

func TestWebHostileSession(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		d.first = func(w http.ResponseWriter, s seen) bool {
			if s.message == nil || s.message.Method != "initialize" {
				return false
			}
			w.Header().Set("Mcp-Session-Id", "a b\xff")
			answer(w, s, `{"protocolVersion":"2025-06-18","capabilities":{}}`)
			return true
		}
	})
	p := newPool(t, alpha(d), quick(nil))
	_, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	wantKind(t, err, Broken, "alpha")
}
