package upstream

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestListsWatched: word of a change of any list, on the stream of its own that
// each era has for that, makes for a fresh look at all of them.
func TestListsWatched(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, capability := range []string{"tools", "prompts", "resources"} {
			change := make(chan struct{})
			var n atomic.Int32
			n.Store(1)
			d := newWebDouble(t, func(d *webDouble) {
				d.modern = modern
				capabilities := strings.Replace(`{"tools":{},"prompts":{},"resources":{}}`, `"`+capability+`":{}`, `"`+capability+`":{"listChanged":true}`, 1)
				offer(d, capabilities, func(method, _ string) string { return numbered(method, int(n.Load())) })
			})
			others := d.first
			d.first = func(w http.ResponseWriter, s seen) bool {
				if s.method != http.MethodGet && (s.message == nil || s.message.Method != listen) {
					return others(w, s)
				}
				if want := `"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`; modern && !strings.Contains(s.body, want) {
					t.Errorf("%s is not in %s", want, s.body)
				}
				send := stream(w, s)
				send(": hello\n\n")
				for range change {
					send(`data: {"jsonrpc":"2.0","method":"notifications/` + capability + `/list_changed"}` + "\n\n")
				}
				return true
			}
			o := quick(nil)
			o.Refresh = time.Hour
			p := running(t, alpha(d), o)
			for want := 2; want <= 3; want++ {
				n.Store(int32(want))
				select {
				case change <- struct{}{}: // taken by a watcher
				case <-time.After(20 * time.Second):
					close(change)
					t.Fatalf("nobody watches for changes of %s", capability)
				}
				until(t, p, "what changed", func(s *State) bool {
					return s.Server("alpha").sizes() == [lists]int{want, want, want, want}
				})
			}
			close(change)
			p.Close()
		}
	}
}

// TestListsUnwatched: without a capability that tells of changes no stream is
// opened for them.
func TestListsUnwatched(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) {
		offer(d, `{"tools":{"listChanged":false},"prompts":{},"resources":{"subscribe":true}}`, func(method, _ string) string { return numbered(method, 1) })
	})
	p := running(t, alpha(d), quick(nil))
	eventually(t, "three looks", func() bool { return len(d.posts("prompts/list")) >= 3 })
	p.Close()
	if n := len(d.got(func(s seen) bool { return s.method == http.MethodGet })); n != 0 {
		t.Errorf("%d streams were opened", n)
	}
}

// TestStdioListsChanged is the same over stdio, where a legacy server tells
// unasked.
func TestStdioListsChanged(t *testing.T) {
	for _, traits := range [][]string{{"lists"}, {"lists", "modern"}} {
		c, record := doubleConfig(t, traits...)
		c.Shared = true // so that the process that changes is the one that is watched
		o := quick(nil)
		o.Refresh = time.Hour
		p := running(t, one(c), o)
		s := p.Current().Server("gamma")
		wantList(t, s, prompts, "n1")
		wantList(t, s, resources, "file:///1")
		wantList(t, s, templates, "file:///1/{x}")
		if len(traits) > 1 {
			eventually(t, "the watcher", func() bool { return countRecorded(t, record, `"method":"`+listen+`"`) == 1 })
		}
		for i, name := range []string{"change-prompts", "change-resources"} {
			want := 2 + i
			m, err := callTool(t.Context(), p, "gamma", "a", name, "{}")
			must(t, m, err)
			s = until(t, p, "what changed", func(s *State) bool {
				return s.Server("gamma").sizes() == [lists]int{2, want, want, want}
			}).Server("gamma")
			if !s.Up || s.Problem != "" {
				t.Errorf("up %v, problem %q", s.Up, s.Problem)
			}
		}
		p.Close()
	}
}

// overheard calls heard when an acknowledgement of subscriptions/listen is
// written.
type overheard struct {
	http.ResponseWriter
	heard func()
}

func (o *overheard) Write(p []byte) (int, error) {
	if strings.Contains(string(p), acknowledged) {
		o.heard()
	}
	return o.ResponseWriter.Write(p)
}

func (o *overheard) Flush() { o.ResponseWriter.(http.Flusher).Flush() }

// TestOfficialLists reads the lists of servers made with the official SDK, and
// hears of their changes.
func TestOfficialLists(t *testing.T) {
	for _, tt := range []struct {
		name     string
		options  sdk.StreamableHTTPOptions
		protocol string
		version  string
	}{
		{"stateful", sdk.StreamableHTTPOptions{}, "auto", "2025-11-25"},
		{"stateful with JSON", sdk.StreamableHTTPOptions{JSONResponse: true}, "auto", "2025-11-25"},
		{"stateless", sdk.StreamableHTTPOptions{Stateless: true}, "auto", "2026-07-28"},
		{"stateless in the legacy era", sdk.StreamableHTTPOptions{Stateless: true}, "legacy", "2025-11-25"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := sdkServer()
			prompt := func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
				return &sdk.GetPromptResult{}, nil
			}
			read := func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				return &sdk.ReadResourceResult{}, nil
			}
			for _, name := range []string{"q", "p", "r"} {
				server.AddPrompt(&sdk.Prompt{Name: name}, prompt)
				server.AddResource(&sdk.Resource{URI: "file:///" + name, Name: name, MIMEType: "text/plain"}, read)
			}
			server.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "db://{table}/{+row}", Name: "rows", MIMEType: "application/json"}, read)
			handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &tt.options)
			listening := make(chan struct{})
			heard := sync.OnceFunc(func() { close(listening) })
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				handler.ServeHTTP(&overheard{w, heard}, r)
			}))
			t.Cleanup(web.Close)
			o := quick(nil)
			o.Refresh = time.Hour
			p := running(t, map[string]Config{"alpha": {URL: web.URL, Protocol: tt.protocol}}, o)
			s := p.Current().Server("alpha")
			if !s.Up || s.Problem != "" || s.Version != tt.version || !s.Has("prompts", "listChanged") || !s.Has("resources", "") {
				t.Fatalf("up %v, problem %q, version %q, capabilities %s", s.Up, s.Problem, s.Version, s.Capabilities)
			}
			wantList(t, s, prompts, "p", "q", "r")
			wantList(t, s, resources, "file:///p", "file:///q", "file:///r")
			wantList(t, s, templates, "db://{table}/{+row}")
			if d := s.Template("db://{table}/{+row}"); !d.Match("db://users/1/name") || d.Match("db://users") || d.MIMEType != "application/json" || d.ShownName != "rows" {
				t.Errorf("the template is %+v", d)
			}
			if d := s.Resource("file:///p"); d.MIMEType != "text/plain" || d.ShownName != "p" {
				t.Errorf("the resource is %+v", d)
			}
			if tt.options.Stateless && tt.version != "2026-07-28" {
				return // nothing to hear it on
			}
			if tt.options.Stateless {
				receive(t, listening, "the acknowledgement")
			}
			server.AddPrompt(&sdk.Prompt{Name: "late"}, prompt)
			until(t, p, "the late prompt", func(s *State) bool { return s.Server("alpha").Prompt("late") != nil })
			server.AddResource(&sdk.Resource{URI: "file:///late", Name: "late"}, read)
			until(t, p, "the late resource", func(s *State) bool { return s.Server("alpha").Resource("file:///late") != nil })
			server.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "late:{x}", Name: "late"}, read)
			until(t, p, "the late template", func(s *State) bool { return s.Server("alpha").Template("late:{x}") != nil })
			server.RemovePrompts("p")
			until(t, p, "the end of a prompt", func(s *State) bool { return s.Server("alpha").Prompt("p") == nil })
		})
	}
}
