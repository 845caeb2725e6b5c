package policy

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// files makes a file system of an entry module and, where data is not "", of
// data.json.
func files(rego, data string) fstest.MapFS {
	fsys := fstest.MapFS{"authz.rego": {Data: []byte("package mcp.authz\n\n" + rego)}}
	if data != "" {
		fsys["data.json"] = &fstest.MapFile{Data: []byte(data)}
	}
	return fsys
}

// load returns a snapshot of a policy that must be good.
func load(t testing.TB, rego, data string, configure ...func(*Config)) *Snapshot {
	t.Helper()
	c := Config{FS: files(rego, data)}
	for _, f := range configure {
		f(&c)
	}
	e, err := New(c, discard())
	if err != nil {
		t.Fatal(err)
	}
	return e.Current()
}

// manyItems is enough of a list for more than one to ask about it at a time.
const manyItems = 4 * alone

// warned has a policy in force that reads what it should not.
func warned(c *Config) { c.Check = CheckWarn }

// uncached has every question evaluated, also those about things of one kind.
func uncached(c *Config) { c.Cache.Disabled = true }

func subject(t testing.TB, claims string) *Subject {
	t.Helper()
	s, err := NewSubject([]byte(claims))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func item(t testing.TB, tool Tool) *Item {
	t.Helper()
	i, err := NewItem(tool)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func resourceItem(t testing.TB, r Resource) *Item {
	t.Helper()
	i, err := NewResourceItem(r)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func promptItem(t testing.TB, p Prompt) *Item {
	t.Helper()
	i, err := NewPromptItem(p)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func serverItem(t testing.TB, s Server) *Item {
	t.Helper()
	i, err := NewServerItem(s)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// ask is a question about one tool with the claims given.
func ask(t testing.TB, claims string, tool Tool) Question {
	t.Helper()
	return Question{Method: "tools/call", Subject: subject(t, claims), Item: item(t, tool), Request: Request{ID: "r1"}}
}

// alpha is a plain tool.
func alpha() Tool {
	return Tool{Server: "alpha", Name: "read", ExposedName: "alpha__read", Attributes: []string{"storage"}, Effect: "read", Registered: true}
}

// show prints a decision for comparison.
func show(d Decision) string {
	if d.Err != nil {
		return fmt.Sprintf("%v %s: %v", d.Allowed, d.Code, d.Err)
	}
	return strings.TrimSpace(fmt.Sprintf("%v %s", d.Allowed, d.Code))
}

// unpack takes the answers apart.
func unpack(a *Answers) []Decision {
	all := make([]Decision, a.Len())
	for i := range all {
		all[i] = a.At(i)
	}
	return all
}

// each is AllowEach about items that must all be judged.
func each(t testing.TB, s *Snapshot, subject *Subject, items *Items) []Decision {
	t.Helper()
	answers := s.AllowEach(context.Background(), subject, items, "tools/call", Request{ID: "r1"})
	if answers.Unfinished != "" {
		t.Errorf("the list is not finished: %s", answers.Unfinished)
	}
	return unpack(answers)
}

// both asks Allow, and AllowEach about the item twice, and fails when the list
// answers otherwise.
func both(t *testing.T, s *Snapshot, q Question) Decision {
	t.Helper()
	ctx := context.Background()
	d := s.Allow(ctx, q)
	list := s.AllowEach(ctx, q.Subject, NewItems([]*Item{q.Item, q.Item}), q.Method, q.Request)
	if list.Unfinished != "" {
		t.Errorf("the list is not finished: %s", list.Unfinished)
	}
	for i, e := range unpack(list) {
		if show(e) != show(d) {
			t.Errorf("item %d in a list: %s, alone: %s", i, show(e), show(d))
		}
	}
	return d
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name, rego, claims, want string
	}{
		{"true", `allow if true`, `{}`, "true"},
		{"false", `default allow := false
allow if input.claims.sub == "x"`, `{}`, "false"},
		{"undefined", `allow if input.claims.sub == "x"`, `{}`, "false policy_undefined"},
		{"string true", `allow := "true"`, `{}`, "false policy_type: the answer is of type string, not a boolean"},
		{"string", `allow := "yes"`, `{}`, "false policy_type: the answer is of type string, not a boolean"},
		{"number", `allow := 1`, `{}`, "false policy_type: the answer is of type number, not a boolean"},
		{"object", `allow := {}`, `{}`, "false policy_type: the answer is of type object, not a boolean"},
		{"object with allow", `allow := {"allow": true}`, `{}`, "false policy_type: the answer is of type object, not a boolean"},
		{"array", `allow := []`, `{}`, "false policy_type: the answer is of type array, not a boolean"},
		{"null", `allow := null`, `{}`, "false policy_type: the answer is of type null, not a boolean"},
		{"set", `allow := {true}`, `{}`, "false policy_type: the answer is of type set, not a boolean"},
		{"conflict", `allow := true if input.claims.a
allow := false if input.claims.b`, `{"a": 1, "b": 1}`, "false policy_error: authz.rego:4: eval_conflict_error: rule data.mcp.authz.allow produced conflicting values"},
		{"no conflict", `allow := true if input.claims.a
allow := false if input.claims.b`, `{"a": 1}`, "true"},
		{"exact numbers", `allow if input.claims.n == 9007199254740993`, `{"n": 9007199254740993}`, "true"},
		{"exact numbers differ", `allow if input.claims.n == 9007199254740993`, `{"n": 9007199254740992}`, "false policy_undefined"},
		// Partial evaluation and opa build -O=2 would answer true.
		{"not of an undefined variable", `allow if { v := input.claims.suspended; not v }`, `{}`, "false policy_undefined"},
		{"not of a false variable", `allow if { v := input.claims.suspended; not v }`, `{"suspended": false}`, "true"},
		{"absent arguments", `allow if not input.arguments`, `{}`, "true"},
		{"absent facts are undefined", `allow if { not input.tool.env; not input.tool.labels; not input.tool.definition; not input.request.client }`, `{}`, "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(both(t, load(t, c.rego, "", warned), ask(t, c.claims, alpha()))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
