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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// paged answers tools/list by cursor; the key "-" is the first page. Any other
// request is left to the script.
func paged(d *webDouble, page func(cursor string) string) {
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.message == nil || s.message.Method != "tools/list" {
			return false
		}
		list, _ := mcp.ReadList(s.message.Params)
		if !list.HasCursor {
			list.Cursor = "-"
		}
		result := page(list.Cursor)
		if result == "" {
			fail(w, s, http.StatusOK, -32603, "page lost", "")
			return true
		}
		answer(w, s, result)
		return true
	}
}

func toolList(next string, names ...string) string {
	var b strings.Builder
	b.WriteString(`{"tools":[`)
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"name":` + string(mcp.String(name)) + `,"inputSchema":{"type":"object"}}`)
	}
	b.WriteString("]")
	if next != "" {
		b.WriteString(`,"nextCursor":` + next)
	}
	return b.String() + "}"
}

// TestPages is B038 and B039.
func TestPages(t *testing.T) {
	for _, tt := range []struct {
		name     string
		page     func(cursor string) string
		want     []string
		up       bool
		problem  string
		requests int // of tools/list
	}{
		{"three pages", func(c string) string {
			return map[string]string{
				"-": toolList(`"a+b/c= \u00e9"`, "t1", "t2"), "a+b/c= é": toolList(`"p3"`, "t3"), "p3": toolList("", "t4"),
			}[c]
		}, []string{"t1", "t2", "t3", "t4"}, true, "", 3},
		{"the same page for ever", func(string) string { return toolList(`"A"`, "t1") }, []string{"t1"}, true, "its nextCursor repeats", 2},
		{"two pages in turn", func(c string) string {
			if c == "A" {
				return toolList(`"B"`, "t2")
			}
			return toolList(`"A"`, "t1")
		}, []string{"t1", "t2"}, true, "its nextCursor repeats", 3},
		{"new cursors and empty pages for ever", func(c string) string {
			n, _ := strconv.Atoi(c)
			return toolList(`"`+strconv.Itoa(n+1)+`"`, "t1")
		}, []string{"t1"}, true, "its list goes on after 500 pages", 500},
		{"an empty cursor is one", func(c string) string {
			if c == "-" {
				return toolList(`""`, "t1")
			}
			return toolList("", "t2"+c)
		}, []string{"t1", "t2"}, true, "", 2},
		{"null is the end", func(string) string { return toolList("null", "t1") }, []string{"t1"}, true, "", 1},
		{"a number is no cursor", func(string) string { return toolList("5", "t1") }, []string{"t1"}, true, "its nextCursor is not a string", 1},
		{"a page is lost", func(c string) string {
			return map[string]string{"-": toolList(`"2"`, "t1")}[c]
		}, nil, false, "broken: tools/list was refused with code -32603: page lost", 2},
		{"no array", func(string) string { return `{"tools":null}` }, nil, false, "broken: the result of tools/list holds no array of tools", 1},
		{"not complete", func(string) string { return `{"resultType":"input_required","tools":[]}` }, nil, false, "broken: tools/list has a result that is not complete", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newWebDouble(t, func(d *webDouble) { paged(d, tt.page) })
			beta := newWebDouble(t, nil)
			var log journal
			o := quick(&log)
			o.Refresh, o.RetryMin, o.RetryMax = time.Hour, time.Hour, time.Hour
			p := running(t, map[string]Config{"alpha": d.config(), "beta": beta.config()}, o)
			s := p.Current().Server("alpha")
			wantNames(t, s, tt.want...)
			if s.Up != tt.up || s.Problem != tt.problem || s.Partial != (tt.up && tt.problem != "") {
				t.Errorf("up %v, problem %q, partial %v; want %v, %q", s.Up, s.Problem, s.Partial, tt.up, tt.problem)
			}
			if n := len(d.posts("tools/list")); n != tt.requests {
				t.Errorf("tools/list was asked %d times, want %d", n, tt.requests)
			}
			if tt.problem != "" && !strings.Contains(log.String(), tt.problem[:min(len(tt.problem), 20)]) {
				t.Errorf("the log does not tell of %q", tt.problem)
			}
			wantNames(t, p.Current().Server("beta"), "read", "write")
		})
	}
}

// TestNames is the listing's part of B104 and B105, and of duplicates.
func TestNames(t *testing.T) {
	long := strings.Repeat("n", 122)
	names := []string{
		"read_file", "r\u0435ad_file", "read\u200b_file", "read_file\u202e", "\uff52ead_file", "ns:tool", "a/b", "a.b",
		"Has Space", "", long, long[1:], "read_file", "日本",
	}
	d := newWebDouble(t, func(d *webDouble) {
		d.tools = strings.Replace(toolList("", names...), `{"tools":[`, `{"tools":[7,{"name":3},{"name":"no-schema"},{"name":"null-schema","inputSchema":null},`, 1)
	})
	var log journal
	o := quick(&log)
	p := running(t, alpha(d), o)
	wantNames(t, p.Current().Server("alpha"), "read_file", "a.b", long[1:])
	for range 2 { // looks again, and does not repeat itself
		n := len(d.posts("tools/list"))
		eventually(t, "another look", func() bool { return len(d.posts("tools/list")) > n })
	}
	text := log.String()
	for _, want := range []string{
		`tool ? is left out: its definition is not an object`, `tool ? is left out: its definition has no name`,
		`tool \"r\\u0435ad_file\" is left out: its name breaks the rules for names`,
		`tool \"read\\u200b_file\" is left out`, `tool \"read_file\\u202e\" is left out`, `tool \"\\uff52ead_file\" is left out`,
		`tool \"ns:tool\" is left out`, `tool \"a/b\" is left out`, `tool \"Has Space\" is left out`, `tool \"\" is left out`,
		`tool \"` + long + `\" is left out`, `tool \"read_file\" is left out: its name occurs twice; the first one counts`,
		`tool \"\\u65e5\\u672c\" is left out`,
		`tool \"no-schema\" is left out: its inputSchema is not an object`, `tool \"null-schema\" is left out`,
	} {
		if n := strings.Count(text, want); n != 1 {
			t.Errorf("the log says %d times %s:\n%s", n, want, text)
		}
	}
	if strings.ContainsAny(text, "\u200b\u202e\u0435") {
		t.Error("the log holds raw characters of a name")
	}
}

// TestDefinitionsStay is the listing's part of B009.
func TestDefinitionsStay(t *testing.T) {
	raw := `{ "name":"t","title":"T","description":"a <b> & c \ud83d","inputSchema":{"type":"object","properties":{"home":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"integer","maximum":9007199254740993}},"additionalProperties":false},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"x":1.0},"icons":[{"src":"a"}],"execution":{"taskSupport":"optional"},"x-vendor":{"k":1},"_meta":{"v":1} }`
	for _, modern := range []bool{false, true} {
		d := newWebDouble(t, func(d *webDouble) {
			d.modern, d.tools = modern, `{"tools":[`+raw+`]}`
		})
		s := running(t, alpha(d), quick(nil)).Current().Server("alpha")
		tool := s.Tool("t")
		if tool == nil || string(tool.Raw) != raw || string(tool.Annotations) != `{"readOnlyHint":true,"x":1.0}` || len(tool.SHA256) != 64 {
			t.Errorf("the definition is %+v", tool)
		}
		if s.Tool("T") != nil {
			t.Error("a tool is found by another spelling of its name")
		}
	}
}

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
	down.Store(false)
	until(t, p, "the server", func(s *State) bool { return s.Server("alpha").Up })
	wantNames(t, p.Current().Server("alpha"), "read", "write")
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

// TestEmpty is the other part of B047: an empty list is asked for again soon.
func TestEmpty(t *testing.T) {
	var asked atomic.Int32
	d := newWebDouble(t, func(d *webDouble) {
		paged(d, func(string) string {
			if asked.Add(1) < 4 {
				return `{"tools":[]}`
			}
			return twoTools
		})
	})
	o := quick(nil)
	o.Refresh = time.Hour
	p := running(t, alpha(d), o)
	if s := p.Current().Server("alpha"); !s.Up || len(s.Tools) != 0 {
		t.Fatalf("the state is %+v", s)
	}
	until(t, p, "the tools", func(s *State) bool { return len(s.Server("alpha").Tools) == 2 })
	if n := asked.Load(); n != 4 {
		t.Errorf("the list was read %d times", n)
	}
}

// TestHanging is B042.
func TestHanging(t *testing.T) {
	stall := func(method string, how func(w http.ResponseWriter, r *http.Request)) func(d *webDouble) http.Handler {
		return func(d *webDouble) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), method) {
					how(w, r)
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				d.ServeHTTP(w, r)
			})
		}
	}
	silent := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	headers := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil {
			io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}
	for _, tt := range []struct {
		name    string
		handler func(d *webDouble) http.Handler
		kind    Kind // of a call's error; 0 is success
		up      bool
	}{
		{"everything", stall("jsonrpc", silent), Unavailable, false},
		{"initialize", stall("initialize", silent), Unavailable, false},
		{"tools/list", stall("tools/list", headers), 0, false},
		{"tools/call", stall("tools/call", silent), Timeout, true},
		{"headers, then nothing", stall("tools/call", headers), Timeout, true},
		{"a byte at a time", stall("tools/call", drip), Timeout, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			good := newWebDouble(t, nil)
			bad := newWebDouble(t, nil)
			bad.Config.Handler = tt.handler(bad)
			c := bad.config()
			c.ConnectTimeout, c.ListTimeout, c.CallTimeout = 200*time.Millisecond, 200*time.Millisecond, 300*time.Millisecond
			began := time.Now()
			p := running(t, map[string]Config{"alpha": good.config(), "beta": c}, quick(nil))
			if d := time.Since(began); d > 3*time.Second {
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
					if d := time.Since(began); d > 2*time.Second {
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
	c.MaxConcurrent, c.CallTimeout = 2, 500*time.Millisecond
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
