// Package property holds what must be true of any policy data, any catalogue
// and any claims, shown on whole running gateways.
package property

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
)

var (
	roles   = []string{"r1", "r2", "r3"}
	servers = []string{"alpha", "beta", "a_b"}
)

// entry is one tool of a random catalogue; nil facets are absent.
type entry struct {
	Attributes []string `yaml:"attributes,omitempty,flow" json:"-"`
	Effect     string   `yaml:"effect,omitempty"`
	Data       string   `yaml:"data,omitempty"`
	Reach      string   `yaml:"reach,omitempty"`
	Env        string   `yaml:"env,omitempty"`
	Suggested  bool     `yaml:"suggested,omitempty"`
}

func (e entry) labelled() bool {
	return !e.Suggested && len(e.Attributes) > 0 && e.Effect != "" && e.Data != "" && e.Reach != ""
}

// setting is one random situation.
type setting struct {
	tools  map[string]map[string]entry // what the catalogue says, by server and tool
	extra  map[string][]string         // tools that servers offer and the catalogue does not know
	grants map[string]any
	spoilt bool // one of the grants is wrong
	claims map[string]any
}

func drawSetting(t *rapid.T) setting {
	s := setting{tools: map[string]map[string]entry{}, extra: map[string][]string{}, grants: map[string]any{}}
	for _, server := range servers {
		s.tools[server] = map[string]entry{}
		for i := range rapid.IntRange(1, 5).Draw(t, "tools") {
			s.tools[server][fmt.Sprintf("tool%d", i)] = drawEntry(t)
		}
		s.extra[server] = []string{"unlisted"}
	}
	for _, role := range roles {
		var list []any
		for range rapid.IntRange(0, 3).Draw(t, "grants") {
			grant, sound := drawGrant(t)
			list, s.spoilt = append(list, grant), s.spoilt || !sound
		}
		s.grants[role] = list
	}
	s.claims = map[string]any{"sub": "agent", "roles": drawRoles(t)}
	return s
}

func drawEntry(t *rapid.T) entry {
	e := entry{
		Attributes: rapid.SliceOfNDistinct(rapid.SampledFrom(registry.Attributes()[:4]), 1, 3, rapid.ID[string]).Draw(t, "attributes"),
		Effect:     rapid.SampledFrom(registry.Effects()).Draw(t, "effect"),
		Data:       rapid.SampledFrom(registry.DataClasses()).Draw(t, "data"),
		Reach:      rapid.SampledFrom(registry.Reaches()).Draw(t, "reach"),
		Env:        rapid.SampledFrom([]string{"production", "staging", ""}).Draw(t, "env"),
	}
	if rapid.IntRange(0, 5).Draw(t, "suggested") == 0 {
		e.Suggested = true
		switch rapid.IntRange(0, 3).Draw(t, "absent") {
		case 0:
			e.Attributes = nil
		case 1:
			e.Effect = ""
		case 2:
			e.Data = ""
		}
	}
	return e
}

func drawGrant(t *rapid.T) (g map[string]any, sound bool) {
	domains := rapid.SliceOfNDistinct(rapid.SampledFrom(registry.Attributes()[:4]), 0, 4, rapid.ID[string]).Draw(t, "domains")
	g = map[string]any{
		"domains": domains,
		"effect":  rapid.SampledFrom(registry.Effects()[:4]).Draw(t, "grant effect"),
		"data":    rapid.SampledFrom(registry.DataClasses()).Draw(t, "grant data"),
		"reach":   rapid.SampledFrom(registry.Reaches()).Draw(t, "grant reach"),
		"env":     rapid.SampledFrom([]any{"any", []string{"production"}, []string{"staging", "production"}}).Draw(t, "grant env"),
	}
	if rapid.Bool().Draw(t, "execute") {
		g["execute"] = true
	}
	if rapid.Bool().Draw(t, "match any") {
		g["match"] = "any"
	}
	// A part of a grant that is missing or of the wrong type grants nothing.
	spoilt := rapid.IntRange(0, 8).Draw(t, "spoilt")
	switch spoilt {
	case 0:
		delete(g, "effect")
	case 1:
		g["data"] = []string{"secret"}
	case 2:
		g["env"] = nil
	}
	return g, spoilt > 2 && len(domains) > 0
}

func drawRoles(t *rapid.T) any {
	list := rapid.SliceOfDistinct(rapid.SampledFrom(append([]string{"nobody"}, roles...)), rapid.ID[string]).Draw(t, "roles")
	switch rapid.IntRange(0, 6).Draw(t, "shape") {
	case 0:
		return nil
	case 1:
		return strings.Join(list, " ")
	case 2:
		return 7
	}
	return list
}

func (s setting) catalogue(t *rapid.T) fs.FS {
	file := map[string]any{"version": 1, "servers": map[string]any{}}
	for server, tools := range s.tools {
		file["servers"].(map[string]any)[server] = map[string]any{"tools": tools}
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"catalogue.yaml": {Data: text}}
}

// policyFS is the shipped Rego over the random grants. It refuses wrong ones,
// and for these comes without the rule that does.
func (s setting) policyFS(t *rapid.T) fs.FS {
	out := fstest.MapFS{}
	err := fs.WalkDir(policies.FS, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, "_test.rego") || !strings.HasSuffix(p, ".rego") {
			return err
		}
		data, err := fs.ReadFile(policies.FS, p)
		out[p] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"mcp": map[string]any{"grants": s.grants}})
	if err != nil {
		t.Fatal(err)
	}
	out["data.json"] = &fstest.MapFile{Data: data}
	if problems := policy.Check(policy.Config{FS: out, Deadline: time.Minute}); len(problems) > 0 != s.spoilt {
		t.Fatalf("a grant is wrong: %v, but the policy says %q", s.spoilt, problems)
	}
	if s.spoilt {
		hideProblems(t, out)
	}
	return out
}

// hideProblems gives the rule that keeps wrong grants out another name, so that
// a gateway runs with them.
func hideProblems(t *rapid.T, policy fstest.MapFS) {
	const name, rule = "mcp/authz/authz.rego", "\nproblems contains "
	text := policy[name].Data
	if bytes.Count(text, []byte(rule)) != 1 {
		t.Fatalf("%s does not have the rule problems once", name)
	}
	policy[name] = &fstest.MapFile{Data: bytes.Replace(text, []byte(rule), []byte("\n_problems contains "), 1)}
}

func (s setting) start(ctx context.Context, t *rapid.T) *world.World {
	var more []*world.Server
	for _, name := range servers {
		server := &world.Server{Name: name}
		for _, tool := range append(s.extra[name], keys(s.tools[name])...) {
			server.Tools = append(server.Tools, world.Definition(registry.Tool{Name: tool, Description: "a tool"}))
		}
		more = append(more, server)
	}
	w, err := world.Start(ctx, world.Options{Catalogue: s.catalogue(t), Policies: s.policyFS(t), Servers: more})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func keys(m map[string]entry) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestVisibleIsCallable draws policy data, catalogues and claims, and shows on
// a running gateway: what is listed is what can be called is what arrives, and
// a tool without confirmed attributes is never among it.
func TestVisibleIsCallable(t *testing.T) {
	ctx := t.Context()
	var asked, visible, spoilt, sound int
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetting(t)
		w := s.start(ctx, t)
		defer w.Close()
		token, err := w.Mint(s.claims, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		client := &world.Client{URL: w.URL + "/mcp", Token: token}
		listed, err := client.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var called []string
		for _, name := range s.names() {
			out, err := client.Call(ctx, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if out.Result != nil {
				called = append(called, name)
			} else if out.Code != mcp.CodeInvalidParams || out.Text != "Unknown tool: "+name {
				t.Fatalf("%s answered %d %q", name, out.Code, out.Text)
			}
		}
		var arrived []string
		for _, server := range w.Servers {
			for _, call := range server.Calls() {
				arrived = append(arrived, server.Name+"__"+call.Tool)
			}
		}
		slices.Sort(listed)
		slices.Sort(called)
		slices.Sort(arrived)
		if !slices.Equal(listed, called) || !slices.Equal(called, arrived) {
			t.Fatalf("listed  %v\ncalled  %v\narrived %v", listed, called, arrived)
		}
		for _, name := range listed {
			server, tool, _ := registry.SplitExposed(name)
			if e, ok := s.tools[server][tool]; !ok || !e.labelled() {
				t.Fatalf("%s has no confirmed attributes and is listed", name)
			}
		}
		asked, visible = asked+len(s.names()), visible+len(listed)
		if s.spoilt {
			spoilt++
		} else {
			sound++
		}
	})
	if spoilt == 0 || sound == 0 {
		t.Errorf("%d settings with wrong grants and %d without: want both", spoilt, sound)
	}
	if visible == 0 || visible == asked {
		t.Fatalf("%d of %d tools were visible: the random policies decide nothing", visible, asked)
	}
}

// names is every name worth calling: those of all tools and some that differ
// from them slightly.
func (s setting) names() []string {
	var out []string
	for _, server := range servers {
		for _, tool := range append(s.extra[server], keys(s.tools[server])...) {
			out = append(out, server+"__"+tool)
		}
		out = append(out, server+"__nothing", server+"__TOOL0", server+"__tool0 ", server+"___tool0")
	}
	return append(out, "tool0", "alpha", "__tool0", "alpha__")
}
