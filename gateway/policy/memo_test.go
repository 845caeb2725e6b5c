package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/policies"
)

func TestRepeatable(t *testing.T) {
	for _, c := range []struct {
		name, rego string
		want       bool
	}{
		{"nothing read", `allow := true`, true},
		{"claims, tool and method", `allow if {
			input.method == "tools/call"
			some role in input.claims.roles
			role in input.tool.attributes
		}`, true},
		{"data and a rule of it", `allow if { some g in grants; input.tool.effect in data.mcp.effects[g] }
		grants contains g if some g in input.claims.grants`, true},
		{"function, else, every, comprehensions", `allow if { every a in input.tool.attributes { fine(a) } }
		fine(a) := false if { a == "secret" } else := true if { count([x | some x in input.claims.roles; x != a]) > 0 }`, true},
		{"every kind of thing", `allow if { input.method == "resources/read"; startswith(input.resource.uri, data.mcp.root) }
		allow if input.prompt.name in input.claims.prompts
		allow if { some a in input.server.attributes; a in input.claims.roles }
		allow if not input.tool`, true},
		{"a thing by its name in quotes", `allow if input["resource"]["uri"] == "a:b"`, true},
		{"a thing by a name that is only known later", `allow if { some kind in ["tool", "resource"]; input[kind].server == "a" }`, false},
		{"request beside a resource", `allow if { input.resource.uri == "a:b"; input.request.route == "/mcp" }`, false},
		{"request beside a prompt, behind", `allow if { input.prompt; via }
		via if input.request.client.name == "x"`, false},
		{"clock beside a server", `allow if { input.server.registered; time.now_ns() > 0 }`, false},
		{"request for one kind only", `allow if input.tool
		allow if { input.resource; input.request.route }`, false},
		{"arguments", `allow if not input.arguments`, false},
		{"request", `allow if input.request.route == "/mcp"`, false},
		{"request in a rule behind", `allow if via
		via if input.request.client.name == "x"`, false},
		{"request in a function behind", `allow if f(1)
		f(_) if input.request.route`, false},
		{"request in else", `allow if input.claims.a else if input.request.route`, false},
		{"request in every", `allow if { every a in input.tool.attributes { a != input.request.route } }`, false},
		{"request in a comprehension", `allow if { [1 | input.request.route] != [] }`, false},
		{"request in a head", `allow if n[1]
		n[x] := input.request.route if some x in [1]`, false},
		{"request in a template", `allow if { $"{input.request.route}" == "/mcp" }`, false},
		{"request by a name that is only known later", `allow if input[input.claims.key]`, false},
		{"request under another name", `allow if { all := input; all.request.route }`, false},
		{"whole input", `allow if count(input) > 3`, false},
		{"whole input to a function", `allow if f(input)
		f(x) if x.request`, false},
		{"a rule by a name that is only known later", `allow if data.mcp[_].also
		also if input.request.route`, false},
		{"with", `allow if via with input.claims as {}
		via if input.tool`, false},
		{"clock", `allow if time.now_ns() > 0`, false},
		{"clock behind a rule", `allow if now > 0
		now := time.now_ns()`, false},
		{"clock that OPA does not tell of", `allow if crypto.x509.parse_and_verify_certificates(input.claims.x)[0]`, false},
		{"a request nobody asks for", `allow if input.claims.a
		reasons contains "r" if input.request.route == "/mcp"
		call if time.now_ns() > 0`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := load(t, c.rego, `{"mcp": {"effects": {"g": ["read"]}}}`)
			if got := s.memo != nil; got != c.want {
				t.Errorf("repeatable: %t, want %t", got, c.want)
			}
		})
	}
}

// Where answers are remembered, no two requests have different ones: all pairs
// of conditions, in several shapes of a policy.
func TestRepeatableIsTrue(t *testing.T) {
	conditions := []string{
		`input.claims.sub == "a"`, `input.tool.effect == "read"`, `input.resource.uri == "file:///a%2Fb"`, `not input.prompt`, `input.server.registered`, `not input.claims.suspended`, `data.mcp.open[input.tool.name]`,
		`input.request.route == "/mcp"`, `not input.request.client`, `input["request"].id == "1"`, `object.get(input, ["request", "id"], "") == "1"`,
		`some k; input[k].route == "/mcp"`, `walk(input, [_, "/mcp"])`, `json.marshal(input.request) != "{}"`,
	}
	shapes := []string{
		"allow if { %s; %s }", "allow if { %s } else if { %s }", "allow if { %s; helper }\nhelper if { %s }",
		"allow if { %s; helper(1) }\nhelper(_) if { %s }", "allow if { %s; [1 | %s] != [] }", "allow := { %s } if %s",
		"allow if { %s; every _ in input.tool.attributes { %s } }",
	}
	requests := []Request{{}, {ID: "1"}, {ID: "2", Route: "/mcp"}, {ID: "1", Client: Client{Name: "x"}}}
	items := append(slices.Collect(maps.Values(fullItems(t))), item(t, alpha()))
	remembered, differing := 0, 0
	for _, shape := range shapes {
		for _, a := range conditions {
			for _, b := range conditions {
				e, err := New(Config{FS: files(fmt.Sprintf(shape, a, b), `{"mcp": {"open": {"read": true}}}`)}, discard())
				if err != nil {
					continue // the shape does not take the condition
				}
				s := e.Current()
				kept := s.memo != nil
				s.memo = nil
				differs := false
				q := ask(t, `{"sub": "a"}`, alpha())
				for _, q.Item = range items {
					answers := map[string]bool{}
					for _, q.Request = range requests {
						answers[show(s.Allow(context.Background(), q))] = true
					}
					differs = differs || len(answers) > 1
				}
				switch {
				case kept && differs:
					t.Errorf("remembered, but the answer depends on the request: "+shape, a, b)
				case kept:
					remembered++
				case differs:
					differing++
				}
			}
		}
	}
	if remembered < 50 || differing < 100 {
		t.Errorf("%d policies are remembered and %d depend on the request: too few of one kind", remembered, differing)
	}
}

func TestShippedPolicyIsRepeatable(t *testing.T) {
	e, err := New(Config{FS: policies.FS}, discard())
	if err != nil {
		t.Fatal(err)
	}
	if e.Current().memo == nil {
		t.Error("the shipped policy's answers are not remembered")
	}
}

func TestPlainBuiltins(t *testing.T) {
	names := plainBuiltins()
	if !slices.IsSorted(names) {
		t.Error("not sorted")
	}
	for _, name := range names {
		b := ast.BuiltinMap[name]
		switch {
		case b == nil:
			t.Errorf("%s: no such built-in function", name)
		case b.IsNondeterministic(), slices.Contains(offBuiltins(), name):
			t.Errorf("%s: does not answer the same each time", name)
		}
	}
}

// offered is alpha as a backend offers it.
func offered() Tool {
	t := alpha()
	t.Definition.SHA256 = "00"
	return t
}

const plainPolicy = `allow if { input.claims.ok == true; input.tool.name != "hidden" }`

func TestMemo(t *testing.T) {
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
			decisions, _ := s.AllowEach(ctx, subject, items, "tools/call", Request{})
			for i, d := range decisions {
				if got := show(d); got != want[i] {
					t.Errorf("item %d in a list: %s, want %s", i, got, want[i])
				}
			}
		}
	}
	if got := s.memo.ones.Len(); got != 1 {
		t.Errorf("%d single answers are remembered, want only the one that was allowed", got)
	}
	if got := s.memo.lists.Len(); got != 2 {
		t.Errorf("%d lists are remembered, want 2", got)
	}
	for _, q := range []Question{
		{Method: "other", Subject: yes, Item: shown},
		{Method: "tools/call", Subject: subject(t, `{"ok": true}`), Item: shown},
		{Method: "tools/call", Subject: yes, Item: item(t, offered())},
	} {
		if s.memo.allows(&q) {
			t.Errorf("the answer to another question is taken for that to %+v", q)
		}
	}
}

// A remembered answer needs no evaluation, and what cannot be kept is asked
// again.
func TestMemoSavesEvaluations(t *testing.T) {
	s := load(t, plainPolicy, "")
	q := ask(t, `{"ok": true}`, offered())
	items := NewItems([]*Item{q.Item})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	ask := func(ctx context.Context) (one, list string) {
		decisions, _ := s.AllowEach(ctx, q.Subject, items, q.Method, q.Request)
		return show(s.Allow(ctx, q)), show(decisions[0])
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

// What is handed out is the caller's: it changes nothing that is remembered.
func TestMemoKeepsItsOwn(t *testing.T) {
	s := load(t, plainPolicy, "")
	q := ask(t, `{"ok": true}`, offered())
	items := NewItems([]*Item{q.Item})
	for range 3 {
		d := each(t, s, q.Subject, items)
		if !d[0].Allowed {
			t.Fatalf("got %s", show(d[0]))
		}
		d[0] = Decision{}
	}
}

// Names that clients make up are not kept, however many of them the policy
// allows: each would stay with all its bytes.
func TestMemoForgetsMadeUpNames(t *testing.T) {
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
		if got := s.memo.ones.Len(); got != c.kept {
			t.Errorf("%s: %d answers are remembered, want %d", c.name, got, c.kept)
		}
	}
}

// The memory tells methods and kinds apart: a remembered yes answers its own
// question only.
func TestMemoOfEachKind(t *testing.T) {
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
	if got := s.memo.ones.Len(); got != 2 {
		t.Errorf("%d single answers are remembered, want the two that were allowed", got)
	}
}
