package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// refusing is an address where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// TestOneDown is B041 and B045.
func TestOneDown(t *testing.T) {
	up := newWebDouble(t, nil)
	tlsServer := httptest.NewUnstartedServer(up)
	tlsServer.Config.ErrorLog = nil
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	html := newWebDouble(t, func(d *webDouble) {
		d.first = func(w http.ResponseWriter, s seen) bool {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>secret</html>")
			return true
		}
	})
	failing := newWebDouble(t, func(d *webDouble) {
		d.first = func(w http.ResponseWriter, s seen) bool {
			http.Error(w, "secret", http.StatusInternalServerError)
			return true
		}
	})
	p := running(t, map[string]Config{
		"alpha": up.config(), "refused": {URL: refusing(t)}, "nowhere": {URL: "http://no-such-host.invalid/"},
		"tls": {URL: tlsServer.URL}, "html": html.config(), "failing": failing.config(), "nosuch": {Command: "no-such-command"},
	}, quick(nil))
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
	wantNames(t, p.Current().Server("alpha"), "read", "write")
	for name, want := range map[string]struct {
		kind    Kind
		problem string
	}{
		"refused": {Unavailable, "connection refused"}, "nowhere": {Unavailable, "lookup no-such-host.invalid"},
		"tls": {Unavailable, "certificate"}, "html": {Broken, "content of type text/html"},
		"failing": {Broken, "HTTP status 500"}, "nosuch": {Unavailable, "executable file not found"},
	} {
		s := p.Current().Server(name)
		if s.Up || !strings.Contains(s.Problem, want.problem) || strings.Contains(s.Problem, "secret") {
			t.Errorf("%s: up %v, problem %q; want %q", name, s.Up, s.Problem, want.problem)
		}
		_, err := callTool(t.Context(), p, name, "a", "read", "{}")
		wantKind(t, err, want.kind, name)
	}
	_, err = callTool(t.Context(), p, "other", "a", "read", "{}")
	wantKind(t, err, Unavailable, "other")
}

// TestRecovery: a server that comes up, goes down and comes back, B041 and
// B047.
func TestRecovery(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	d := newWebDouble(t, func(d *webDouble) {
		d.first = func(w http.ResponseWriter, s seen) bool {
			if down.Load() {
				http.Error(w, "starting", http.StatusServiceUnavailable)
			}
			return down.Load()
		}
	})
	p := running(t, alpha(d), quick(nil))
	if s := p.Current().Server("alpha"); s.Up || len(s.Tools) != 0 || !s.Listed.IsZero() {
		t.Fatalf("the state is %+v", s)
	}
	eventually(t, "the breaker", func() bool {
		_, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
		return strings.Contains(err.Error(), "several times in a row")
	})
	if got, want := p.Loads(), (Load{Server: "alpha", Resting: true}); len(got) != 1 || got[0] != want {
		t.Errorf("the load is %+v, want %+v", got, want)
	}
	down.Store(false)
	until(t, p, "the server", func(s *State) bool { return s.Server("alpha").Up })
	wantNames(t, p.Current().Server("alpha"), "read", "write")
	if got, want := p.Loads(), (Load{Server: "alpha"}); got[0] != want {
		t.Errorf("the load is %+v, want %+v", got, want)
	}
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)

	down.Store(true)
	s := until(t, p, "the outage", func(s *State) bool { return !s.Server("alpha").Up }).Server("alpha")
	wantNames(t, s, "read", "write")
	if s.Tool("read") == nil || s.Listed.IsZero() {
		t.Errorf("the tools of a server that is down are not known: %+v", s)
	}
	_, err = callTool(t.Context(), p, "alpha", "a", "read", "{}")
	wantKind(t, err, Unavailable, "alpha")
	down.Store(false)
	until(t, p, "the server again", func(s *State) bool { return s.Server("alpha").Up })
}

// stall is a double that does something else with the requests that hold text.
func stall(text string, how http.HandlerFunc) func(d *webDouble) http.Handler {
	return func(d *webDouble) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), text) {
				how(w, r)
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			d.ServeHTTP(w, r)
		})
	}
}

func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func headersOnly(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func drip(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for r.Context().Err() == nil {
		io.WriteString(w, " ")
		w.(http.Flusher).Flush()
		time.Sleep(20 * time.Millisecond)
	}
}

// never is longer than anything takes here, on the busiest machine.
const never = time.Minute

func connecting(c *Config) *time.Duration { return &c.ConnectTimeout }
func calling(c *Config) *time.Duration    { return &c.CallTimeout }

// TestHanging is B042.
func TestHanging(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler func(d *webDouble) http.Handler
		kind    Kind // of a call's error; 0 is success
		up      bool
		bound   func(c *Config) *time.Duration // of what hangs
	}{
		{"everything", stall("jsonrpc", silent), Unavailable, false, connecting},
		{"initialize", stall("initialize", silent), Unavailable, false, connecting},
		{"tools/list", stall("tools/list", headersOnly), 0, false, func(c *Config) *time.Duration { return &c.ListTimeout }},
		{"tools/call", stall("tools/call", silent), Timeout, true, calling},
		{"headers, then nothing", stall("tools/call", headersOnly), Timeout, true, calling},
		{"a byte at a time", stall("tools/call", drip), Timeout, true, calling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			good := newWebDouble(t, nil)
			bad := newWebDouble(t, nil)
			bad.Config.Handler = tt.handler(bad)
			c := bad.config()
			c.ConnectTimeout, c.ListTimeout, c.CallTimeout = never, never, never
			*tt.bound(&c) = 200 * time.Millisecond
			began := time.Now()
			p := running(t, map[string]Config{"alpha": good.config(), "beta": c}, quick(nil))
			if d := time.Since(began); d > never/2 {
				t.Errorf("the first look at all took %s", d)
			}
			if s := p.Current().Server("beta"); s.Up != tt.up {
				t.Errorf("beta is up: %v, problem %q", s.Up, s.Problem)
			}
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					began := time.Now()
					if m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}"); err != nil || m.Error != nil {
						t.Errorf("alpha: %v, %v", m, err)
					}
					if d := time.Since(began); d > never/2 {
						t.Errorf("a call of alpha took %s", d)
					}
				})
			}
			m, err := callTool(t.Context(), p, "beta", "a", "read", "{}")
			wg.Wait()
			if tt.kind == 0 {
				must(t, m, err)
				return
			}
			wantKind(t, err, tt.kind, "beta")
		})
	}
}

// TestColdCall is B046: a call needs no list before it.
func TestColdCall(t *testing.T) {
	d := newWebDouble(t, nil)
	p := newPool(t, alpha(d), quick(nil))
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
	if s := p.Current().Server("alpha"); s == nil || s.Up || s.Problem != "not reached yet" {
		t.Errorf("the state of a pool that does not run is %+v", s)
	}
}

func TestConcurrency(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	d := newWebDouble(t, func(d *webDouble) {
		d.call = func(w http.ResponseWriter, s seen) {
			arrived <- struct{}{}
			<-release
			answer(w, s, "{}")
		}
	})
	c := d.config()
	c.MaxConcurrent = 2
	p := newPool(t, map[string]Config{"alpha": c}, quick(nil))
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
			results <- err
		}()
		receive(t, arrived, "a call")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := callTool(ctx, p, "alpha", "a", "read", "{}")
	wantKind(t, err, Unavailable, "alpha")
	if !errors.Is(err, errBusy) {
		t.Errorf("the third call failed with %v", err)
	}
	close(release)
	for range 2 {
		if err := receive(t, results, "an answer"); err != nil {
			t.Error(err)
		}
	}
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
}

// TestCloseUnderWay is the backend's half of B044.
func TestCloseUnderWay(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		d.call = func(w http.ResponseWriter, s seen) {
			w.(http.Flusher).Flush()
			time.Sleep(time.Second)
		}
	})
	c, _ := doubleConfig(t)
	p := running(t, map[string]Config{"alpha": d.config(), "gamma": c}, quick(nil))
	errs := make(chan error, 20)
	for i := range 20 {
		go func() {
			_, err := callTool(t.Context(), p, []string{"alpha", "gamma"}[i%2], fmt.Sprint(i), "slow", "{}")
			errs <- err
		}()
	}
	time.Sleep(100 * time.Millisecond)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { p.Close() })
	}
	wg.Wait()
	for range 20 {
		err := receive(t, errs, "the end of a call")
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("a call that Close ended came back with %v", err)
		}
	}
	_, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	wantKind(t, err, Unavailable, "alpha")
	if err := p.Run(t.Context()); err != nil {
		t.Errorf("Run after Close: %v", err)
	}
}

func TestStateIsSortedAndStable(t *testing.T) {
	d := newWebDouble(t, nil)
	p := running(t, map[string]Config{"c": d.config(), "a": d.config(), "b": d.config()}, quick(nil))
	first := p.Current()
	var names []string
	for _, s := range first.Servers {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) || first.Server("d") != nil {
		t.Errorf("the servers are %q", names)
	}
	for len(p.Changed()) > 0 {
		<-p.Changed()
	}
	n := len(d.posts("tools/list"))
	eventually(t, "another look", func() bool { return len(d.posts("tools/list")) >= n+6 })
	if len(p.Changed()) != 0 {
		t.Error("a look that found nothing new was announced")
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New(map[string]Config{"a__b": {URL: "ftp://x"}, "ok": {}}, Options{})
	want := "servers.a__b: a server's name is 1 to 64 of A-Z a-z 0-9 . - and single _, begins with a letter or a digit and does not end in _\n" +
		`servers.a__b.url: must begin with http:// or https://` + "\n" +
		`servers.ok: needs either url or command`
	if err == nil || err.Error() != want {
		t.Errorf("New: %v\nwant %s", err, want)
	}
}
