package gateway_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry"
)

// byKeys is a policy that allows everything but what its data or the principal's
// claim hidden name: a thing by
// its name, a method, either for one subject alone, or a method of one thing.
// What the data forbid fails at the second gate.
const byKeys = `package mcp.authz

default allow := false

allow if {
	count(_keys) > 0
	count([k | some k in _keys; k in data.mcp.hidden]) == 0
	count([k | some k in _keys; k in input.claims.hidden]) == 0
}

default call := false

call if count([k | some k in _keys | _said; k in data.mcp.forbidden]) == 0

reasons contains "by_key"

_names contains input.tool.name

_names contains input.prompt.name

_names contains input.resource.uri

_names contains input.resource.uri_template

_names contains sprintf("server:%s", [input.server.name])

_names contains "unregistered" if input.tool.registered == false

_names contains sprintf("%s:%s", [input.resource.server, input.resource.uri])

_keys contains input.method

_said contains input.arguments.message

_said contains input.arguments.topic

_said contains input.arguments.argument.value

_keys contains name if some name in _names

_keys contains sprintf("%s %s", [input.method, name]) if some name in _names

_keys contains sprintf("%s %s", [input.claims.sub, name]) if some name in _names

_keys contains sprintf("%s %s", [input.claims.sub, input.method])
`

// rules is the directory of such a policy.
type rules struct {
	t   *testing.T
	dir string
}

func newRules(t *testing.T, hidden ...string) *rules {
	t.Helper()
	r := &rules{t: t, dir: t.TempDir()}
	r.write("authz.rego", []byte(byKeys))
	r.set(hidden, nil)
	return r
}

// set writes what is hidden and what is forbidden, and reports whether that is
// another policy than before.
func (r *rules) set(hidden, forbidden []string) bool {
	r.t.Helper()
	data, err := json.Marshal(map[string]any{"mcp": map[string]any{
		"hidden": append([]string{}, hidden...), "forbidden": append([]string{}, forbidden...),
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	if before, err := os.ReadFile(filepath.Join(r.dir, "data.json")); err == nil && bytes.Equal(before, data) {
		return false
	}
	r.write("data.json", data)
	return true
}

// write replaces a file at once, so that no half of it is ever read.
func (r *rules) write(name string, data []byte) {
	r.t.Helper()
	temporary := filepath.Join(r.t.TempDir(), name)
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

// rig is a world of the test's own servers behind such a policy.
type rig struct {
	*world.World
	t     *testing.T
	rules *rules
}

func newRig(t *testing.T, hidden []string, servers ...*world.Server) *rig {
	t.Helper()
	return newRigWith(t, func(*gateway.Config) {}, hidden, servers...)
}

func newRigWith(t *testing.T, adjust func(*gateway.Config), hidden []string, servers ...*world.Server) *rig {
	t.Helper()
	r := newRules(t, hidden...)
	w := start(t, world.Options{
		Catalogue: fstest.MapFS{"catalogue.yaml": {Data: []byte("version: 1\nservers: {}\n")}},
		Servers:   servers,
		Adjust: func(c *gateway.Config) {
			c.Policy.Dir = r.dir
			c.Policy.Deadline = 10 * time.Second // machines under load
			adjust(c)
		},
	})
	return &rig{w, t, r}
}

// hide makes these the hidden keys, and returns when they are in force.
func (g *rig) hide(hidden ...string) { g.set(hidden, nil) }

func (g *rig) forbid(forbidden ...string) { g.set(nil, forbidden) }

// set waits for the revision of the policy that answers lists to be another.
func (g *rig) set(hidden, forbidden []string) {
	g.t.Helper()
	before := g.revision()
	if !g.rules.set(hidden, forbidden) {
		return
	}
	eventually(g.t, "the new policy is in force", func() bool { return g.revision() != before })
}

// revision is that of the policy that decides now, as a record has it.
func (g *rig) revision() string {
	g.t.Helper()
	m := modern(g.t, g.World, "/mcp", "support")
	before := len(g.Records.All())
	m.do("server/discover", "{}")
	eventually(g.t, "a record", func() bool { return len(g.Records.All()) > before })
	all := g.Records.All()
	return all[len(all)-1].PolicyRevision()
}

// arrived counts what has arrived at all servers together, but for what the
// gateway asks for itself.
func (g *rig) arrived() (methods []string) {
	own := map[string]bool{
		"initialize": true, "notifications/initialized": true, "server/discover": true, "subscriptions/listen": true, "ping": true,
		"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
	}
	for _, s := range g.Servers {
		for _, r := range s.Received() {
			if !own[r.Method] {
				methods = append(methods, r.Method)
			}
		}
	}
	return methods
}

func tool(name string) jsontext.Value { return world.Definition(registry.Tool{Name: name}) }

// withTasks is a shop of one era that declares its tasks.
func withTasks(name string, era mcp.Era) *world.Server {
	s := shop()
	s.Name, s.Era, s.Tells = name, era, true
	s.Capabilities = jsontext.Value(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},` +
		`"completions":{},"logging":{},"tasks":{"requests":{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	return s
}
