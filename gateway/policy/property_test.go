package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// conditions are what random policies are made of: some that hold now and then,
// some that fail on some values, and some that `not` turns around.
var conditions = []string{
	`input.claims.role == "a"`,
	`input.claims.role != input.tool.owner`,
	`some role in input.claims.roles; role in input.tool.attributes`,
	`every a in input.tool.attributes { a != "y" }`,
	`input.tool.effect in {"read", "write"}`,
	`some grant in data.mcp.grants[input.claims.role]; grant == input.tool.effect`,
	`data.mcp.grants[input.claims.role][_] == input.tool.name`,
	`input.tool.registered`,
	`not input.tool.registered`,
	`not input.tool.labels.level`,
	`to_number(input.tool.labels.level) > 1`,
	`startswith(input.tool.labels.level, "1")`,
	`not startswith(input.claims.role, "a")`,
	`not _deny`,
	`_deny`,
	`count(_found) > 1`,
	`_risk(input.tool) > input.claims.level`,
	`input.tool.definition.drifted == false`,
	`object.get(input.tool, ["labels", "level"], "0") == "1"`,
	`10 / to_number(input.tool.labels.level) >= 5`,
	`input.request.route == "/mcp"`,
	`not input.arguments`,
	`input.resource.owner == input.claims.role`,
	`not input.resource`,
	`to_number(input.prompt.labels.level) > 1`,
}

func body(t *rapid.T, label string) string {
	return "{\n\t" + strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(conditions[:13]), 1, 3, rapid.ID).Draw(t, label), "\n\t") + "\n}\n"
}

// randomPolicy has helpers, a default or none, rules that can disagree, and
// rules that can fail.
func randomPolicy(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("_deny if " + body(t, "deny") + "\n_found contains x if some x in input.tool.attributes\n\n_found contains input.claims.role\n\n")
	b.WriteString("_risk(tool) := 2 if tool.effect == \"write\"\n\nelse := 1\n\n")
	if rapid.Bool().Draw(t, "default") {
		b.WriteString("default allow := false\n\n")
	}
	for range rapid.IntRange(1, 4).Draw(t, "rules") {
		value := rapid.SampledFrom([]string{"true", "true", "true", "false", `"true"`}).Draw(t, "value")
		conds := rapid.SliceOfNDistinct(rapid.SampledFrom(conditions), 1, 3, rapid.ID).Draw(t, "allow")
		fmt.Fprintf(&b, "allow := %s if {\n\t%s\n}\n\n", value, strings.Join(conds, "\n\t"))
	}
	return b.String()
}

func randomTool(t *rapid.T) Tool {
	words := rapid.SampledFrom([]string{"", "a", "b", "x", "y"})
	tool := Tool{
		Server: words.Draw(t, "server"), Name: words.Draw(t, "name"), ExposedName: "s__n", Owner: words.Draw(t, "owner"),
		Attributes: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "x", "y"}), 0, 3).Draw(t, "attributes"),
		Effect:     rapid.SampledFrom([]string{"", "read", "write", "admin"}).Draw(t, "effect"),
		Registered: rapid.Bool().Draw(t, "registered"),
		Definition: Definition{Pinned: rapid.Bool().Draw(t, "pinned"), Drifted: rapid.Bool().Draw(t, "drifted")},
	}
	if level := rapid.SampledFrom([]string{"", "0", "1", "2", "high"}).Draw(t, "level"); level != "" {
		tool.Labels = map[string]string{"level": level}
	}
	return tool
}

// randomItem is a tool more often than not.
func randomItem(t *rapid.T) *Item {
	tool := randomTool(t)
	facts := Facts{Attributes: tool.Attributes, Owner: tool.Owner, Labels: tool.Labels, Registered: tool.Registered}
	var i *Item
	var err error
	switch rapid.SampledFrom([]Kind{KindTool, KindTool, KindTool, KindTool, KindResource, KindPrompt, KindServer}).Draw(t, "kind") {
	case KindResource:
		i, err = NewResourceItem(Resource{Server: tool.Server, URI: tool.Name, Facts: facts, Definition: tool.Definition})
	case KindPrompt:
		i, err = NewPromptItem(Prompt{Server: tool.Server, Name: tool.Name, Facts: facts, Definition: tool.Definition})
	case KindServer:
		i, err = NewServerItem(Server{Name: tool.Server, Facts: facts})
	default:
		i, err = NewItem(tool)
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// What is listed is what may be used: for any policy, a list answers for each
// item what a call's first gate answers, errors and all.
func TestListIsCall(t *testing.T) {
	const data = `{"mcp": {"grants": {"a": ["read", "x"], "b": ["write", "y", 5], "c": {"k": "read"}}}}`
	codes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		e, err := New(Config{FS: files(randomPolicy(t), data), Deadline: time.Minute, ListDeadline: time.Minute, Check: CheckWarn}, discard())
		if err != nil {
			t.Fatal(err)
		}
		s := e.Current()
		claims := rapid.SampledFrom([]string{
			`{}`, `{"role": "a", "roles": ["a"], "level": 1}`, `{"role": "b", "roles": ["x", "y"], "level": "1"}`,
			`{"role": "c", "roles": "a"}`, `{"role": ["a"], "roles": null}`, `{"role": 5, "level": 2.5}`,
		}).Draw(t, "claims")
		who, err := NewSubject([]byte(claims))
		if err != nil {
			t.Fatal(err)
		}
		items := rapid.SliceOfN(rapid.Custom(randomItem), 0, 12).Draw(t, "items")
		if len(items) > 0 && rapid.Bool().Draw(t, "long") {
			for len(items) <= manyItems {
				items = append(items, items...)
			}
		}
		request := Request{ID: "r", Route: "/mcp"}
		answers := s.AllowEach(context.Background(), who, NewItems(items), "tools/call", request)
		list, unfinished := unpack(answers), answers.Unfinished
		if unfinished != "" {
			t.Fatalf("the list is not finished: %s", unfinished)
		}
		for i, it := range items {
			alone := s.Allow(context.Background(), Question{"tools/call", who, it, request})
			if show(alone) != show(list[i]) {
				t.Fatalf("item %v\nin the list: %s\nalone:       %s", it.entry[1], show(list[i]), show(alone))
			}
			codes[fmt.Sprintf("%v %s", alone.Allowed, alone.Code)]++
		}
	})
	for _, outcome := range []string{"true ", "false ", "false " + CodeUndefined, "false " + CodeError, "false " + CodeType} {
		if codes[outcome] == 0 {
			t.Errorf("no random policy came to %q: %v", outcome, codes)
		}
	}
}
