package upstream

import (
	"net/http"
	"strconv"
	"strings"
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

// TestSuddenlyEmpty: a server that is starting again does not make its tools
// vanish, one that has none any more does.
func TestSuddenlyEmpty(t *testing.T) {
	var empty atomic.Int32 // lists
	var asked atomic.Int32
	d := newWebDouble(t, func(d *webDouble) {
		paged(d, func(string) string {
			asked.Add(1)
			if empty.Add(-1) >= 0 {
				return `{"tools":[]}`
			}
			return twoTools
		})
	})
	p := running(t, alpha(d), quick(nil))
	empty.Store(3)
	s := until(t, p, "the doubt", func(s *State) bool { return s.Server("alpha").Problem != "" }).Server("alpha")
	wantNames(t, s, "read", "write")
	if s.Problem != "its list of tools is suddenly empty" || !s.Up {
		t.Errorf("up %v, problem %q", s.Up, s.Problem)
	}
	until(t, p, "the end of doubt", func(s *State) bool { return s.Server("alpha").Problem == "" })
	wantNames(t, p.Current().Server("alpha"), "read", "write")

	empty.Store(1 << 20)
	until(t, p, "the empty list", func(s *State) bool { return len(s.Server("alpha").Tools) == 0 })
	if s := p.Current().Server("alpha"); !s.Up || s.Problem != "" {
		t.Errorf("up %v, problem %q", s.Up, s.Problem)
	}
}
