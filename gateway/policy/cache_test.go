package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/regogate/regogate/policies"
)

// Answers are kept for every policy whose answers follow from what it reads.
func TestCacheState(t *testing.T) {
	for _, c := range []struct{ name, rego, want string }{
		{"claims, tool and method", `allow if { input.method == "tools/call"; input.claims.role in input.tool.attributes }`, "on"},
		{"request", `allow if input.request.route == "/mcp"`, "on"},
		{"whole input", `allow if count(input) > 3`, "on"},
		{"with", `allow if via with input.claims as {}
		via if input.tool`, "on"},
		{"clock", `allow if time.now_ns() > 0`, "off: time.now_ns at authz.rego:3"},
		{"clock behind a rule", `allow if now > 0
		now := time.now_ns()`, "off: time.now_ns at authz.rego:4"},
		{"clock that nobody asks for", `allow if input.claims.a
		call if time.now_ns() > 0`, "on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := load(t, c.rego, "")
			if got := describe(s.cache, s.uncached); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	s := load(t, `allow := true`, "", uncached)
	if got := describe(s.cache, s.uncached); got != "off: turned off" {
		t.Errorf("turned off: %q", got)
	}
}

// With the cache and without it, every question has the same answer, whatever was
// asked before: all pairs of conditions, in several shapes of a policy, on every
// kind of thing, alone and in lists.
func TestCachedIsUncached(t *testing.T) {
	conditions := []string{
		`input.claims.sub == "a"`, `input.tool.effect == "read"`, `input.resource.uri == "file:///a%2Fb"`, `not input.prompt`, `input.server.registered`, `not input.claims.suspended`, `data.mcp.open[input.tool.name]`,
		`input.request.route == "/mcp"`, `not input.request.client`, `input["request"].client.name == "x"`, `object.get(input, ["request", "route"], "") == "1"`,
		`some k; input[k].route == "/mcp"`, `walk(input, [_, "/mcp"])`, `json.marshal(input.request) != "{}"`,
	}
	shapes := []string{
		"allow if { %s; %s }", "allow if { %s } else if { %s }", "allow if { %s; helper }\nhelper if { %s }",
		"allow if { %s; helper(1) }\nhelper(_) if { %s }", "allow if { %s; [1 | %s] != [] }", "allow := { %s } if %s",
		"allow if { %s; every _ in input.tool.attributes { %s } }",
	}
	requests := []Request{{}, {ID: "1"}, {ID: "2", Route: "/mcp"}, {ID: "1", Client: Client{Name: "x"}}}
	subjects := []*Subject{subject(t, `{"sub": "a"}`), subject(t, `{"sub": "b", "suspended": true}`)}
	all := append(slices.Collect(maps.Values(fullItems(t))), item(t, alpha()), item(t, offered()))
	items := NewItems(all)
	policies, hits := 0, int64(0)
	for _, shape := range shapes {
		for _, a := range conditions {
			for _, b := range conditions {
				fsys := files(fmt.Sprintf(shape, a, b), `{"mcp": {"open": {"read": true}}}`)
				cached, err := New(Config{FS: fsys}, discard())
				if err != nil {
					continue // the shape does not take the condition
				}
				plain, err := New(Config{FS: fsys, Cache: CacheConfig{Disabled: true}}, discard())
				if err != nil {
					t.Fatal(err)
				}
				policies++
				for _, who := range subjects {
					for _, request := range requests {
						want := unpack(plain.Current().AllowEach(context.Background(), who, items, "tools/call", request))
						got := unpack(cached.Current().AllowEach(context.Background(), who, items, "tools/call", request))
						for i := range want {
							alone := cached.Current().Allow(context.Background(), Question{"tools/call", who, all[i], request})
							if show(got[i]) != show(want[i]) || show(alone) != show(want[i]) {
								t.Fatalf(shape+": item %d: %s, in a list %s, without the cache %s", a, b, i, show(alone), show(got[i]), show(want[i]))
							}
						}
					}
				}
				hits += cached.Cache().Hits
			}
		}
	}
	if policies < 500 || hits < 10_000 {
		t.Errorf("%d policies, %d answers from the cache: too few", policies, hits)
	}
}

func TestShippedPolicyIsCached(t *testing.T) {
	e, err := New(Config{FS: policies.FS}, discard())
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Cache().State; got != "on" {
		t.Errorf("the shipped policy's answers are not kept: %s", got)
	}
}

// offered is alpha as a backend offers it.
func offered() Tool {
	t := alpha()
	t.Definition.SHA256 = "00"
	return t
}

const plainPolicy = `allow if { input.claims.ok == true; input.tool.name != "hidden" }`

func TestCache(t *testing.T) {
	const allow, deny = "true", "false policy_undefined"
	s := load(t, plainPolicy, "")
	ctx := context.Background()
	yes, no := subject(t, `{"ok": true}`), subject(t, `{"ok": false}`)
	hidden := offered()
	hidden.Name = "hidden"
	shown, secret := item(t, offered()), item(t, hidden)
	items := NewItems([]*Item{shown, secret})
	for range 2 {
		for _, c := range []struct {
			subject *Subject
			item    *Item
			want    string
		}{{yes, shown, allow}, {yes, secret, deny}, {no, shown, deny}, {no, secret, deny}} {
			q := Question{Method: "tools/call", Subject: c.subject, Item: c.item, Request: Request{ID: "r"}}
			if got := show(s.Allow(ctx, q)); got != c.want {
				t.Errorf("alone: %s, want %s", got, c.want)
			}
		}
		for subject, want := range map[*Subject][]string{yes: {allow, deny}, no: {deny, deny}} {
			for i, d := range unpack(s.AllowEach(ctx, subject, items, "tools/call", Request{})) {
				if got := show(d); got != want[i] {
					t.Errorf("item %d in a list: %s, want %s", i, got, want[i])
				}
			}
		}
	}
	stats := s.cache.stats("")
	// A list knows of both things and both subjects; alone, nothing more.
	if stats.Entries != 4 || stats.Lists != 2 {
		t.Errorf("%d answers and %d lists are kept, want 4 and 2", stats.Entries, stats.Lists)
	}
}

// A remembered answer needs no evaluation, and what cannot be kept is asked
// again.
func TestCacheSavesEvaluations(t *testing.T) {
	s := load(t, plainPolicy, "")
	q := ask(t, `{"ok": true}`, offered())
	items := NewItems([]*Item{q.Item})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	ask := func(ctx context.Context) (alone, listed string) {
		list := s.AllowEach(ctx, q.Subject, items, q.Method, q.Request)
		return show(s.Allow(ctx, q)), show(list.At(0))
	}
	const cancelled = "false policy_cancelled: the caller went away before the policy answered"
	for i, c := range []struct {
		ctx  context.Context
		want string
	}{{gone, cancelled}, {gone, cancelled}, {context.Background(), "true"}, {gone, "true"}} {
		if one, list := ask(c.ctx); one != c.want || list != c.want {
			t.Errorf("step %d: alone %s, in a list %s, want %s", i, one, list, c.want)
		}
	}
}

// Names that clients make up are not kept, however many of them the policy
// allows: each would stay with all its bytes.
func TestCacheForgetsMadeUpNames(t *testing.T) {
	definition := Definition{SHA256: "00"}
	for _, c := range []struct {
		name string
		item *Item
		kept int
	}{
		{"a tool", item(t, offered()), 1},
		{"no tool", item(t, Tool{Server: "alpha", Name: "made-up"}), 0},
		{"a resource", resourceItem(t, Resource{Server: "alpha", URI: "a:b", Definition: definition}), 1},
		{"a template", resourceItem(t, Resource{Server: "alpha", URITemplate: "a:{b}", Definition: definition}), 1},
		{"a resource through a template", resourceItem(t, Resource{Server: "alpha", URI: "a:b", URITemplate: "a:{b}", Definition: definition}), 0},
		{"no resource", resourceItem(t, Resource{Server: "alpha", URI: "a:b"}), 0},
		{"a prompt", promptItem(t, Prompt{Server: "alpha", Name: "p", Definition: definition}), 1},
		{"no prompt", promptItem(t, Prompt{Server: "alpha", Name: "p"}), 0},
		{"a server", serverItem(t, Server{Name: "alpha", Facts: Facts{Registered: true}}), 1},
		{"no server", serverItem(t, Server{Name: "alpha"}), 0},
	} {
		s := load(t, `allow if input.claims.ok == true`, "")
		q := Question{Method: "m", Subject: subject(t, `{"ok": true}`), Item: c.item}
		for range 2 {
			if d := s.Allow(context.Background(), q); !d.Allowed {
				t.Fatalf("%s: got %s", c.name, show(d))
			}
		}
		if got := s.cache.stats("").Entries; got != c.kept {
			t.Errorf("%s: %d answers are remembered, want %d", c.name, got, c.kept)
		}
	}
}

// The memory tells methods and kinds apart: a remembered yes answers its own
// question only.
func TestCacheOfEachKind(t *testing.T) {
	s := load(t, `allow if { input.method == "resources/read"; input.resource.server == "files" }
allow if { input.method == "server/discover"; input.server.name == "files" }`, "")
	all := fullItems(t)
	all[KindResource] = resourceItem(t, Resource{Server: "files", URI: "a:b", Definition: Definition{SHA256: "00"}})
	who := subject(t, `{}`)
	for range 2 {
		for kind, i := range all {
			for _, method := range []string{"resources/read", "server/discover", "resources/subscribe"} {
				want := "false policy_undefined"
				if method == "resources/read" && kind == KindResource || method == "server/discover" && kind == KindServer {
					want = "true"
				}
				if got := show(both(t, s, Question{Method: method, Subject: who, Item: i})); got != want {
					t.Errorf("%s of a %s: got %s, want %s", method, kind, got, want)
				}
			}
		}
	}
}

// Of more lists than have a place, those asked for last are kept.
func TestCacheBoundsLists(t *testing.T) {
	s := load(t, `allow if input.claims.n > 0`, "")
	items := NewItems([]*Item{item(t, offered())})
	for n := range maxLists + 1 {
		s.AllowEach(context.Background(), subject(t, fmt.Sprintf(`{"n": %d}`, n+1)), items, "tools/call", Request{})
	}
	if got := s.cache.stats("").Lists; got != maxLists || s.cache.counters.evictions.Load() != 1 {
		t.Errorf("%d lists are kept and %d made room, want %d and 1", got, s.cache.counters.evictions.Load(), maxLists)
	}
}
