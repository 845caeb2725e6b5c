package policy

import (
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"

	"context"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// The policy of the benchmarks is of a realistic size: roles to grants, grants
// to facets, three denials, helpers in packages of their own.
func benchPolicy() map[string]string {
	return map[string]string{
		"authz.rego": `package mcp.authz

import data.mcp.lib.principal
import data.mcp.lib.tool

default allow := false

allow if {
	tool.known
	some role in principal.roles
	some grant in data.mcp.grants[role]
	_covers(grant)
	count(_denied) == 0
}

_covers(grant) if {
	some attribute in grant.attributes
	attribute in input.tool.attributes
	input.tool.effect in grant.effects
	input.tool.data in grant.data
	input.tool.env in grant.envs
}

_denied contains "quarantined" if input.tool.labels.quarantine == "true"

_denied contains "other_tenant" if input.tool.labels.tenant != input.claims.tenant

_denied contains "drifted" if input.tool.definition.drifted

call if input.arguments.amount <= 500

call if input.tool.effect == "read"

reasons contains reason if some reason in _denied

reasons contains "amount" if input.arguments.amount > 500

scopes contains "payments:write" if input.arguments.amount > 500
`,
		"lib/principal.rego": `package mcp.lib.principal

roles contains role if {
	some role in input.claims.roles
	is_string(role)
}
`,
		"lib/tool.rego": `package mcp.lib.tool

default known := false

known if {
	input.tool.registered
	input.tool.definition.drifted == false
}
`,
		"data.json": `{"mcp": {"grants": {
	"payments": [{"attributes": ["payments"], "effects": ["read", "write"], "data": ["internal", "financial"], "envs": ["production"]}],
	"developer": [{"attributes": ["developer", "database"], "effects": ["read", "write", "execute"], "data": ["internal"], "envs": ["staging"]}],
	"support": [{"attributes": ["crm", "messaging"], "effects": ["read"], "data": ["internal", "personal"], "envs": ["production"]}]}}}`,
	}
}

// benchTools are tools of 24 servers; 1 in 14 is the payments role's.
func benchTools(b *testing.B, n int) []*Item {
	domains := []string{"payments", "developer", "messaging", "crm", "analytics", "storage", "identity"}
	items := make([]*Item, n)
	for i := range items {
		server := fmt.Sprintf("server-%d", i%24)
		name := fmt.Sprintf("tool_%d", i)
		items[i] = item(b, Tool{
			Server: server, Name: name, ExposedName: server + "__" + name,
			Attributes: []string{domains[i%len(domains)]}, Effect: []string{"read", "write", "destructive", "admin"}[i/7%4],
			Data: "financial", Reach: "external", Env: "production", Owner: "team", Labels: map[string]string{"tenant": "acme"}, Registered: true,
			Definition: Definition{
				SHA256: fmt.Sprintf("%064d", i), Pinned: true,
				Annotations: jsontext.Value(`{"title": "A tool", "readOnlyHint": true, "openWorldHint": true}`),
			},
		})
	}
	return items
}

type bench struct {
	snapshot *Snapshot
	items    []*Item
	question Question
}

func setUp(b *testing.B, n int) bench {
	dir := b.TempDir()
	write(b, dir, benchPolicy())
	e, err := New(Config{Dir: dir, ListDeadline: 1 << 40, Deadline: 1 << 40}, discard())
	if err != nil || e.Current() == nil {
		b.Fatal(err, e.Status().Problems)
	}
	items := benchTools(b, n)
	return bench{e.Current(), items, Question{
		Method: "tools/call",
		Subject: subject(b, `{"iss": "https://idp.example.test", "sub": "agent-1", "aud": "mcp", "exp": 1800000000, "iat": 1700000000,
			"tenant": "acme", "email": "agent@example.test", "roles": ["payments", "staff"], "scope": "tools"}`),
		Item:    items[0],
		Request: Request{ID: "r1", ProtocolVersion: "2025-11-25", Client: Client{"agent", "1.0"}, RemoteAddr: "192.0.2.1:4711", Route: "/mcp"},
	}}
}

func BenchmarkAllowEach(b *testing.B) {
	for _, n := range []int{507, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := setUp(b, n)
			list := NewItems(s.items)
			b.ReportAllocs()
			for b.Loop() {
				allowed := 0
				for _, d := range each(b, s.snapshot, s.question.Subject, list) {
					if d.Allowed {
						allowed++
					}
				}
				if allowed != (n+13)/14 {
					b.Fatalf("%d of %d tools are allowed", allowed, n)
				}
			}
		})
	}
}

// One decision per tool, as AllowEach falls back to.
func BenchmarkAllowPerItem507(b *testing.B) {
	s := setUp(b, 507)
	b.ReportAllocs()
	for b.Loop() {
		for _, s.question.Item = range s.items {
			s.snapshot.Allow(context.Background(), s.question)
		}
	}
}

func BenchmarkAllow(b *testing.B) {
	s := setUp(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if !s.snapshot.Allow(context.Background(), s.question).Allowed {
			b.Fatal("denied")
		}
	}
}

func BenchmarkCall(b *testing.B) {
	s := setUp(b, 1)
	arguments := jsontext.Value(`{"charge": "ch_123", "amount": 499, "currency": "eur", "metadata": {"order": "42"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if !s.snapshot.Call(context.Background(), s.question, arguments).Allowed {
			b.Fatal("denied")
		}
	}
}

func BenchmarkExplain(b *testing.B) {
	s := setUp(b, 1)
	arguments := jsontext.Value(`{"charge": "ch_123", "amount": 501, "currency": "eur", "metadata": {"order": "42"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if e := s.snapshot.Explain(context.Background(), s.question, arguments); len(e.Scopes) != 1 {
			b.Fatal(e)
		}
	}
}

func BenchmarkNewItems507(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchTools(b, 507)
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	write(b, dir, benchPolicy())
	b.ReportAllocs()
	for b.Loop() {
		if problems := Check(Config{Dir: dir}); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}

// benchCatalogue is the tools of the shipped catalogue, n of them, each under the
// name that is its own.
func benchCatalogue(b *testing.B, n int) *Items {
	b.Helper()
	keeper, err := registry.Open(context.Background(), registry.Config{}, catalogue.FS, discard())
	if err != nil {
		b.Fatal(err)
	}
	defer keeper.Close()
	entries := keeper.Current().Tools()
	items := make([]*Item, n)
	for i := range items {
		e := entries[i%len(entries)]
		items[i] = item(b, Tool{
			Server: e.Server, Name: fmt.Sprintf("%s%d", e.Name, i/len(entries)), Attributes: e.Attributes, Effect: e.Effect, Data: e.Data,
			Reach: e.Reach, Env: e.Env, Owner: e.Owner, Labels: e.Labels, Registered: true, Definition: Definition{SHA256: fmt.Sprintf("%064x", i)},
		})
	}
	return NewItems(items)
}

// BenchmarkShippedList is the shipped policy asked for the shipped catalogue: for
// claims that were seen before, by a principal who differs in what the policy does
// not read, and for claims that are new in all that it reads.
func BenchmarkShippedList(b *testing.B) {
	for _, c := range []struct {
		name   string
		claims func(i int) string
	}{
		{"seen", func(int) string { return `{"sub": "a", "roles": ["developer"]}` }},
		{"another principal", func(i int) string { return fmt.Sprintf(`{"sub": "%d", "roles": ["developer"]}`, i) }},
		{"new claims", func(i int) string { return fmt.Sprintf(`{"sub": "a", "roles": ["developer", "r%d"]}`, i) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			e, err := New(Config{FS: policies.FS}, discard())
			if err != nil {
				b.Fatal(err)
			}
			s, items := e.Current(), benchCatalogue(b, 507)
			b.Log(len(s.kindsOf(items).keys), "kinds")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				if answers := s.AllowEach(context.Background(), subject(b, c.claims(i)), items, "tools/call", Request{}); answers.Count() == 0 {
					b.Fatal("nothing is allowed")
				}
			}
		})
	}
}

// BenchmarkReload is what a new revision of the shipped policy costs until it can
// answer: compiling it, what it reads, and the kinds of 5,000 tools.
func BenchmarkReload(b *testing.B) {
	items := benchCatalogue(b, 5000)
	for b.Loop() {
		t, problems := readTree(policies.FS, "")
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		s, problems := newSnapshot(t, (&Config{}).withDefaults(), discard())
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		s.kindsOf(items)
	}
}
