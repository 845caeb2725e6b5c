package upstream

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

const everything = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{}}`

// identified writes one valid thing of a kind, which its identity tells from
// others.
func identified(k kind, id string) string {
	more := ""
	if k == tools {
		more = `,"inputSchema":{"type":"object"}`
	}
	return `{"` + k.terms().identity + `":` + string(mcp.String(id)) + more + `}`
}

// identity makes the n-th identity that is valid for the kind.
func identity(k kind, n int) string {
	switch k {
	case resources:
		return "file:///" + strconv.Itoa(n)
	case templates:
		return "file:///" + strconv.Itoa(n) + "/{x}"
	}
	return "n" + strconv.Itoa(n)
}

// listOf is a result with things of a kind; next is a JSON value or nothing.
func listOf(k kind, next string, objects ...string) string {
	if next != "" {
		next = `,"nextCursor":` + next
	}
	return `{"` + k.terms().member + `":[` + strings.Join(objects, ",") + `]` + next + `}`
}

// numbered is a whole list of n things of the kind that the method lists.
func numbered(method string, n int) string {
	for k := range lists {
		if k.terms().method == method {
			objects := make([]string, n)
			for i := range objects {
				objects[i] = identified(k, identity(k, i+1))
			}
			return listOf(k, "", objects...)
		}
	}
	return `{}`
}

// offer has a double declare capabilities and answer the four lists by cursor;
// the cursor "-" is the first page. The result "unknown" is an unknown method,
// "" is another error, and "hang" never comes.
func offer(d *webDouble, capabilities string, page func(method, cursor string) string) {
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.message == nil {
			return false
		}
		switch s.message.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", d.open())
			answer(w, s, `{"protocolVersion":"2025-06-18","capabilities":`+capabilities+`,"serverInfo":{"name":"web","version":"1"}}`)
			return !d.modern
		case discover:
			if d.modern {
				answer(w, s, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+capabilities+`,"ttlMs":0,"cacheScope":"private"}`)
			}
			return d.modern
		case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
			list, _ := mcp.ReadList(s.message.Params)
			if !list.HasCursor {
				list.Cursor = "-"
			}
			switch result := page(s.message.Method, list.Cursor); result {
			case "unknown":
				fail(w, s, http.StatusOK, -32601, "unknown", "")
			case "":
				fail(w, s, http.StatusOK, -32603, "page lost", "")
			case "hang":
				hang(w)
			default:
				answer(w, s, result)
			}
			return true
		}
		return false
	}
}

// hang begins an answer and goes on until nobody waits any more.
func hang(w http.ResponseWriter) {
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		if _, err := w.Write([]byte(" ")); err != nil || control.Flush() != nil {
			return
		}
	}
}

func identities(s *Server, k kind) (names []string) {
	for _, d := range s.list(k) {
		names = append(names, d.Name)
	}
	return names
}

func wantList(t *testing.T, s *Server, k kind, want ...string) {
	t.Helper()
	if got := identities(s, k); !slices.Equal(got, want) {
		t.Errorf("%s are %q, want %q", k.terms().many, got, want)
	}
}

// lazy are the options of a pool that looks again only when it is told to.
func lazy(log *journal) Options {
	o := quick(nil)
	if log != nil {
		o = quick(log)
	}
	o.Refresh, o.RetryMin, o.RetryMax = time.Hour, time.Hour, time.Hour
	return o
}

// TestLists reads all four lists in both eras, over several pages, and finds
// everything that the state says of them.
func TestLists(t *testing.T) {
	prompt := `{ "name":"p1","title":"P","arguments":[{"name":"a","required":true}],"annotations":{"x":1},"_meta":{"v":1} }`
	resource := `{"uri":"file:///a%20b?q=1","name":"A \u00e9","mimeType":"text/plain","size":9007199254740993,"annotations":{"audience":["user"]}}`
	template := `{"uriTemplate":"file:///{+path}","name":"files","mimeType":"text/x","annotations":7}`
	for _, modern := range []bool{false, true} {
		d := newWebDouble(t, func(d *webDouble) {
			d.modern = modern
			offer(d, everything, func(method, cursor string) string {
				return map[string]string{
					"tools/list -":               listOf(tools, "", identified(tools, "t1")),
					"prompts/list -":             listOf(prompts, `"n=1 é"`, prompt),
					"prompts/list n=1 é":         listOf(prompts, `""`, identified(prompts, "p2")),
					"prompts/list ":              listOf(prompts, "null", identified(prompts, "p3")),
					"resources/list -":           listOf(resources, `"2"`, resource),
					"resources/list 2":           listOf(resources, "", identified(resources, "db:x")),
					"resources/templates/list -": listOf(templates, `"2"`, template),
					"resources/templates/list 2": listOf(templates, "", identified(templates, "x:{y}")),
				}[method+" "+cursor]
			})
		})
		s := running(t, alpha(d), quick(nil)).Current().Server("alpha")
		if !s.Up || s.Problem != "" || s.Partial {
			t.Fatalf("modern %v: up %v, problem %q, partial %v", modern, s.Up, s.Problem, s.Partial)
		}
		wantList(t, s, tools, "t1")
		wantList(t, s, prompts, "p1", "p2", "p3")
		wantList(t, s, resources, "file:///a%20b?q=1", "db:x")
		wantList(t, s, templates, "file:///{+path}", "x:{y}")
		if p := s.Prompt("p1"); p == nil || string(p.Raw) != prompt || string(p.Annotations) != `{"x":1}` || len(p.SHA256) != 64 || p.ShownName != "" || p.Match("p1") {
			t.Errorf("the prompt is %+v", p)
		}
		if r := s.Resource("file:///a%20b?q=1"); r == nil || string(r.Raw) != resource || string(r.Annotations) != `{"audience":["user"]}` ||
			len(r.SHA256) != 64 || r.ShownName != "A é" || r.MIMEType != "text/plain" || r.Match(r.Name) {
			t.Errorf("the resource is %+v", r)
		}
		if x := s.Template("file:///{+path}"); x == nil || string(x.Raw) != template || x.Annotations != nil ||
			len(x.SHA256) != 64 || x.ShownName != "files" || x.MIMEType != "text/x" || !x.Match("file:///etc/x") || x.Match("http://x") {
			t.Errorf("the template is %+v", x)
		}
		if s.Tool("p1") != nil || s.Prompt("t1") != nil || s.Resource("file:///a b?q=1") != nil || s.Template("x:y") != nil || s.Prompt("P1") != nil {
			t.Error("something is found under a name that it does not have")
		}
		if r := s.Resource("db:x"); r == nil || r.ShownName != "" || r.MIMEType != "" || r.Annotations != nil {
			t.Errorf("the bare resource is %+v", r)
		}
		for _, tt := range []struct {
			capability, setting string
			want                bool
		}{
			{"resources", "", true}, {"resources", "subscribe", true}, {"tools", "subscribe", false},
			{"completions", "", true}, {"completions", "x", false}, {"logging", "", false}, {"Tools", "", false},
		} {
			if got := s.Has(tt.capability, tt.setting); got != tt.want {
				t.Errorf("Has(%q, %q) is %v", tt.capability, tt.setting, got)
			}
		}
	}
	if (&Server{}).Has("tools", "") {
		t.Error("a server that was never reached has a capability")
	}
}

// TestListsAsked: only tools are asked for without the capability.
func TestListsAsked(t *testing.T) {
	for _, tt := range []struct {
		capabilities string
		want         []string
	}{
		{`{}`, []string{"tools/list"}},
		{`{"tools":{},"prompts":null}`, []string{"tools/list", "prompts/list"}},
		{`{"prompts":{}}`, []string{"tools/list", "prompts/list"}},
		{`{"tools":{},"resources":{}}`, []string{"tools/list", "resources/list", "resources/templates/list"}},
		{`{"resource":{},"Prompts":{}}`, []string{"tools/list"}},
	} {
		d := newWebDouble(t, func(d *webDouble) {
			offer(d, tt.capabilities, func(method, _ string) string { return numbered(method, 1) })
		})
		s := running(t, alpha(d), lazy(nil)).Current().Server("alpha")
		for k := range lists {
			want := 0
			if slices.Contains(tt.want, k.terms().method) {
				want = 1
			}
			if n := len(d.posts(k.terms().method)); n != want || len(s.list(k)) != want {
				t.Errorf("%s: %s was asked for %d times and gave %d", tt.capabilities, k.terms().method, n, len(s.list(k)))
			}
		}
	}
}

// TestListsPages: what can be wrong with one list is that list's alone.
func TestListsPages(t *testing.T) {
	for _, tt := range []struct {
		name    string
		page    func(k kind, cursor string) string
		want    int    // things that are known after that
		problem string // after the name of the list; METHOD stands for its method
	}{
		{"the same page for ever", func(k kind, _ string) string {
			return listOf(k, `"A"`, identified(k, identity(k, 1)))
		}, 1, "its nextCursor repeats"},
		{"pages for ever", func(k kind, c string) string {
			n, _ := strconv.Atoi(c)
			return listOf(k, `"`+strconv.Itoa(n+1)+`"`)
		}, 0, "its list goes on after 500 pages"},
		{"a number is no cursor", func(k kind, _ string) string {
			return listOf(k, "5", identified(k, identity(k, 1)))
		}, 1, "its nextCursor is not a string"},
		{"a page is lost", func(k kind, c string) string {
			return map[string]string{"-": listOf(k, `"2"`, identified(k, identity(k, 1)))}[c]
		}, 0, "broken: METHOD was refused with code -32603: page lost"},
		{"a page is unknown", func(k kind, c string) string {
			if c == "-" {
				return listOf(k, `"2"`, identified(k, identity(k, 1)))
			}
			return "unknown"
		}, 0, "broken: METHOD was refused with code -32601: unknown"},
		{"no array", func(k kind, _ string) string { return `{"` + k.terms().member + `":{}}` }, 0, "broken: the result of METHOD holds no array of MANY"},
		{"no object", func(kind, string) string { return `[]` }, 0, "broken: the result of METHOD is not an object"},
		{"not complete", func(k kind, _ string) string {
			return `{"resultType":"input_required",` + listOf(k, "")[1:]
		}, 0, "broken: METHOD has a result that is not complete"},
	} {
		for k := prompts; k < lists; k++ {
			t.Run(tt.name+", "+k.terms().many, func(t *testing.T) {
				d := newWebDouble(t, func(d *webDouble) {
					offer(d, everything, func(method, cursor string) string {
						if method == k.terms().method {
							return tt.page(k, cursor)
						}
						return numbered(method, 2)
					})
				})
				var log journal
				s := running(t, alpha(d), lazy(&log)).Current().Server("alpha")
				want := k.terms().many + ": " + strings.NewReplacer("METHOD", k.terms().method, "MANY", k.terms().many).Replace(tt.problem)
				if !s.Up || s.Partial || s.Problem != want {
					t.Errorf("up %v, partial %v, problem %q, want %q", s.Up, s.Partial, s.Problem, want)
				}
				text := log.String()
				if strings.Count(text, "the list of ") != 1 || !strings.Contains(text, "the list of "+k.terms().many+" ") {
					t.Errorf("the log is\n%s", text)
				}
				for other := range lists {
					n := 2
					if other == k {
						n = tt.want
					}
					if got := len(s.list(other)); got != n {
						t.Errorf("%d %s are known, want %d", got, other.terms().many, n)
					}
				}
			})
		}
	}
}

// TestListsFail: each list that fails keeps what was known of it, and the
// others go on.
func TestListsFail(t *testing.T) {
	for k := range lists {
		for _, failure := range []string{"", "hang"} {
			var failing atomic.Bool
			var n atomic.Int32
			n.Store(1)
			d := newWebDouble(t, func(d *webDouble) {
				offer(d, everything, func(method, _ string) string {
					if failing.Load() && method == k.terms().method {
						return failure
					}
					return numbered(method, int(n.Load()))
				})
			})
			c := d.config()
			c.ListTimeout = 300 * time.Millisecond
			p := running(t, map[string]Config{"alpha": c}, quick(nil))
			failing.Store(true)
			n.Store(2)
			s := until(t, p, "the failure", func(s *State) bool {
				for other := range lists {
					if other != k && len(s.Server("alpha").list(other)) != 2 {
						return false
					}
				}
				return s.Server("alpha").Problem != ""
			}).Server("alpha")
			wantList(t, s, k, identity(k, 1))
			want := fmt.Sprintf("broken: %s was refused with code -32603: page lost", k.terms().method)
			if failure == "hang" {
				want = "timeout: its " + k.terms().many + " could not be read within 300ms"
			}
			if k != tools {
				want = k.terms().many + ": " + want
			}
			if s.Up != (k != tools) || s.Problem != want || s.Partial {
				t.Errorf("%s: up %v, partial %v, problem %q, want %q", k.terms().many, s.Up, s.Partial, s.Problem, want)
			}
			failing.Store(false)
			s = until(t, p, "the recovery", func(s *State) bool { return s.Server("alpha").Problem == "" }).Server("alpha")
			if wantList(t, s, k, identity(k, 1), identity(k, 2)); !s.Up {
				t.Errorf("%s: it is down without a problem", k.terms().many)
			}
			p.Close()
		}
	}
}

// TestNoTemplates: many servers with resources do not know of templates.
func TestNoTemplates(t *testing.T) {
	for _, tt := range []struct {
		unknown kind
		problem string
	}{
		{templates, ""},
		{resources, "resources: broken: resources/list was refused with code -32601: unknown"},
		{prompts, "prompts: broken: prompts/list was refused with code -32601: unknown"},
	} {
		d := newWebDouble(t, func(d *webDouble) {
			offer(d, everything, func(method, _ string) string {
				if method == tt.unknown.terms().method {
					return "unknown"
				}
				return numbered(method, 1)
			})
		})
		s := running(t, alpha(d), lazy(nil)).Current().Server("alpha")
		if !s.Up || s.Problem != tt.problem || len(s.list(tt.unknown)) != 0 || len(s.Tools) != 1 {
			t.Errorf("%s: up %v, problem %q", tt.unknown.terms().many, s.Up, s.Problem)
		}
	}
}

// TestListEndsSession: a list whose request always ends the session costs no
// other list anything.
func TestListEndsSession(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		offer(d, everything, func(method, _ string) string { return numbered(method, 1) })
	})
	others := d.first
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.message == nil || s.message.Method != "resources/templates/list" {
			return others(w, s)
		}
		fail(w, s, http.StatusNotFound, -32601, "unknown", "")
		return true
	}
	s := running(t, alpha(d), lazy(nil)).Current().Server("alpha")
	if want := "resource templates: unavailable: the session is gone"; !s.Up || s.Problem != want || s.sizes() != [lists]int{1, 1, 1, 0} {
		t.Errorf("up %v, problem %q, %v things", s.Up, s.Problem, s.sizes())
	}
	if n := len(d.posts("initialize")); n != 2 {
		t.Errorf("%d sessions were opened for one look and its repetition", n)
	}
}

// TestListsSuddenlyEmpty: the doubt about one list is not about the others.
func TestListsSuddenlyEmpty(t *testing.T) {
	for k := prompts; k < lists; k++ {
		var empty atomic.Int32
		d := newWebDouble(t, func(d *webDouble) {
			offer(d, everything, func(method, _ string) string {
				if method == k.terms().method && empty.Add(-1) >= 0 {
					return listOf(k, "")
				}
				return numbered(method, 1)
			})
		})
		p := running(t, alpha(d), quick(nil))
		empty.Store(doubted)
		s := until(t, p, "the doubt", func(s *State) bool { return s.Server("alpha").Problem != "" }).Server("alpha")
		if want := "its list of " + k.terms().many + " is suddenly empty"; s.Problem != want || !s.Up {
			t.Errorf("up %v, problem %q, want %q", s.Up, s.Problem, want)
		}
		wantList(t, s, k, identity(k, 1))
		s = until(t, p, "the end of doubt", func(s *State) bool { return s.Server("alpha").Problem == "" }).Server("alpha")
		wantList(t, s, k, identity(k, 1))
		empty.Store(1 << 20)
		s = until(t, p, "the empty list", func(s *State) bool { return len(s.Server("alpha").list(k)) == 0 }).Server("alpha")
		if !s.Up || s.Problem != "" || len(s.Tools) != 1 {
			t.Errorf("up %v, problem %q", s.Up, s.Problem)
		}
		p.Close()
	}
}

// TestListsBounds counts things; pages and bytes are the same for all kinds.
func TestListsBounds(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		offer(d, everything, func(method, _ string) string {
			switch method {
			case "prompts/list":
				return numbered(method, 1)
			case "resources/templates/list":
				return numbered(method, mostTemplates+1)
			}
			return numbered(method, mostItems+1)
		})
	})
	s := running(t, alpha(d), lazy(nil)).Current().Server("alpha")
	want := "it offers more than 10000 tools; resources: it offers more than 10000 resources; " +
		"resource templates: it offers more than 200 resource templates"
	if s.Problem != want || !s.Partial || len(s.Tools) != 10_000 || len(s.Resources) != 10_000 || len(s.Templates) != 200 {
		t.Errorf("partial %v, problem %q", s.Partial, s.Problem)
	}
	if last := s.Templates[199].Name; last != identity(templates, 200) || s.Template(last) == nil {
		t.Errorf("the last template is %q", last)
	}
}

// TestListsLeaveOut: what is malformed, or is there already, is told of in one
// line and takes nothing else with it.
func TestListsLeaveOut(t *testing.T) {
	long := strings.Repeat("u", 2049)
	objects := map[kind][]string{
		prompts: {
			`7`, `{}`, `{"name":3}`, identified(prompts, ""), identified(prompts, "has space"), identified(prompts, strings.Repeat("p", 122)),
			identified(prompts, "ok"), identified(prompts, "r\u0435d"), identified(prompts, "ok"),
		},
		resources: {
			`[]`, `{"name":"x"}`, `{"uri":null}`, identified(resources, ""), identified(resources, "/etc/passwd"), identified(resources, "no scheme"),
			identified(resources, "file:///a\u007f"), identified(resources, "file:///%zz"), identified(resources, "f:"+long[2:]), identified(resources, "f:"+long[3:]),
			identified(resources, "file:///a"), identified(resources, "file:///a"), identified(resources, "FILE:///a"), `{"uri":"x:\ud83d"}`,
		},
		templates: {
			`null`, `{"uri":"x:a"}`, identified(templates, ""), identified(templates, "x:{"), identified(templates, "x:{}"), identified(templates, "x:{=a}"),
			identified(templates, "x:{a b}"), identified(templates, long), identified(templates, "x:{"+strings.Repeat("a,", 16)+"a}"),
			identified(templates, "x:{"+strings.Repeat("a,", 15)+"a}"), identified(templates, "x:{a}"), identified(templates, "x:{a}"),
		},
	}
	d := newWebDouble(t, func(d *webDouble) {
		offer(d, everything, func(method, _ string) string {
			for k, list := range objects {
				if k.terms().method == method {
					return listOf(k, "", list...)
				}
			}
			return numbered(method, 1)
		})
	})
	var log journal
	p := running(t, alpha(d), quick(&log))
	s := p.Current().Server("alpha")
	if s.Problem != "" || !s.Up {
		t.Errorf("up %v, problem %q", s.Up, s.Problem)
	}
	wantList(t, s, prompts, "ok")
	wantList(t, s, resources, "f:"+long[3:], "file:///a", "FILE:///a")
	wantList(t, s, templates, "x:{"+strings.Repeat("a,", 15)+"a}", "x:{a}")
	n := len(d.posts("prompts/list"))
	eventually(t, "another look", func() bool { return len(d.posts("prompts/list")) > n+1 })
	text := log.String()
	for want, times := range map[string]int{
		`prompt ? is left out: its definition is not an object`: 1, `prompt ? is left out: its definition has no name`: 1,
		`prompt \"\" is left out: its name breaks the rules for names`: 1, `prompt \"has space\" is left out`: 1,
		`prompt \"r\\u0435d\" is left out`: 1, `prompt \"ok\" is left out: its name occurs twice; the first one counts`: 1,
		`prompt \"` + strings.Repeat("p", 122) + `\" is left out`:   1,
		`resource ? is left out: its definition is not an object`:   1,
		`resource ? is left out: its definition has no uri`:         1,
		`resource \"\" is left out: its uri is not an absolute one`: 1, `resource \"/etc/passwd\" is left out`: 1, `resource \"no scheme\" is left out`: 1,
		`resource \"file:///a\\x7f\" is left out`: 1, `resource \"file:///%zz\" is left out`: 1, `is left out: its uri is longer than 2048 bytes`: 1,
		`resource \"file:///a\" is left out: its uri occurs twice; the first one counts`: 1,
		`resource template ? is left out: its definition is not an object`:               1,
		`resource template ? is left out: its definition has no uriTemplate`:             1,
		`resource template \"\" is left out: its definition has no uriTemplate`:          1,
		`resource template \"x:{\" is left out: its uriTemplate is not a URI template`:   1, `resource template \"x:{}\" is left out`: 1,
		`resource template \"x:{=a}\" is left out`: 1, `resource template \"x:{a b}\" is left out`: 1,
		`is left out: its uriTemplate is longer than 2048 bytes`:                                      1,
		`is left out: its uriTemplate has more than 16 variables`:                                     1,
		`resource template \"x:{a}\" is left out: its uriTemplate occurs twice; the first one counts`: 1,
		`level=WARN`: 6 + 10 + 10,
	} {
		if n := strings.Count(text, want); n != times {
			t.Errorf("the log says %d times %s, want %d:\n%s", n, want, times, text)
		}
	}
	if strings.Contains(text, "\u0435") {
		t.Error("the log holds raw characters of a name")
	}
}

// TestListsEqual: a change in any list is news.
func TestListsEqual(t *testing.T) {
	with := func(k kind, raw string) *Server {
		s := &Server{Name: "alpha"}
		s.set(k, []Definition{{Name: "a", Raw: []byte(raw)}}, map[string]int{"a": 0})
		return s
	}
	for k := range lists {
		if !with(k, "1").equal(with(k, "1")) {
			t.Errorf("%s: the same is not equal", k.terms().many)
		}
		if with(k, "1").equal(with(k, "2")) || with(k, "1").equal(&Server{Name: "alpha"}) || with(k, "1").equal(with((k+1)%lists, "1")) {
			t.Errorf("%s: a change is no news", k.terms().many)
		}
	}
}
