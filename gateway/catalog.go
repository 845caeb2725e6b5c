package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"log/slog"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// tool is one tool that a backend offers, joined with what the registry says
// of it, and prepared: its bytes are encoded and its policy input is built
// once, when it is discovered or its attributes change. Immutable.
type tool struct {
	server  string
	name    string // the backend's own name
	exposed string // server__name

	item       *policy.Item
	aggregate  jsontext.Value    // definition under the exposed name
	own        jsontext.Value    // definition under the backend's own name
	digest     [sha256.Size]byte // of server, name and definition
	mirrored   mcp.ParamHeaders  // arguments that the modern era repeats in headers
	definition upstream.Definition
	entry      *registry.Tool // nil when it is not registered
}

// view is the tools of one route, in the order in which they are listed.
type view struct {
	tools  []*tool
	items  *policy.Items
	byName map[string]*tool // by the name that the route shows
}

// catalog is everything the gateway could show, at one state of the registry
// and the backends. Immutable.
type catalog struct {
	revision string // changes whenever the catalog does
	registry string // revision of the registry
	all      view
	servers  map[string]view
	up       map[string]upstream.Server
	nothing  *policy.Items // the items of an empty view
}

// newCatalog joins what the backends offer with what the registry says. Tools
// that did not change are taken over from old, which may be nil.
func newCatalog(old *catalog, state *upstream.State, snap *registry.Snapshot, log *slog.Logger) *catalog {
	c := &catalog{registry: snap.Revision(), servers: map[string]view{}, up: map[string]upstream.Server{}, nothing: policy.NewItems(nil)}
	var all []*tool
	for _, server := range state.Servers {
		c.up[server.Name] = server
		tools := make([]*tool, 0, len(server.Tools))
		for _, def := range server.Tools {
			entry, _ := snap.Lookup(server.Name, def.Name)
			if t := join(old, server.Name, def, entry, log); t != nil {
				tools = append(tools, t)
			}
		}
		c.servers[server.Name] = newView(tools, func(t *tool) string { return t.name })
		all = append(all, tools...)
	}
	slices.SortStableFunc(all, func(a, b *tool) int { return cmp.Compare(a.server, b.server) })
	c.all = newView(all, func(t *tool) string { return t.exposed })
	return c
}

func newView(tools []*tool, name func(*tool) string) view {
	v := view{tools: tools, byName: make(map[string]*tool, len(tools))}
	items := make([]*policy.Item, len(tools))
	for i, t := range tools {
		items[i], v.byName[name(t)] = t.item, t
	}
	v.items = policy.NewItems(items)
	return v
}

// join returns nil, and says so in the log, for a tool whose name cannot be
// exposed; it never takes another tool with it.
func join(old *catalog, server string, def upstream.Definition, entry *registry.Tool, log *slog.Logger) *tool {
	exposed, ok := registry.Exposed(server, def.Name)
	if !ok {
		log.Warn("tool not offered", keyServer, server, keyTool, def.Name, keyError, registry.ToolRule)
		return nil
	}
	if old != nil {
		if t := old.all.byName[exposed]; t != nil && sameTool(t, def, entry) {
			return t
		}
	}
	t, err := prepare(server, exposed, def, entry)
	if err != nil {
		log.Warn("tool not offered", keyServer, server, keyTool, def.Name, keyError, err)
		return nil
	}
	if len(exposed) > registry.ClientName {
		log.Warn("some clients take no tool name longer than 64 characters", keyServer, server, keyTool, def.Name, "length", len(exposed))
	}
	return t
}

// prepare fails for a definition that breaks a rule of the protocol which a
// client or the policy relies on.
func prepare(server, exposed string, def upstream.Definition, entry *registry.Tool) (*tool, error) {
	item, err := policy.NewItem(facts(server, def.Name, exposed, def, entry))
	if err != nil {
		return nil, err
	}
	members, err := mcp.Members(def.Raw)
	if err != nil {
		return nil, err
	}
	mirrored, err := mcp.ReadParamHeaders(mcp.Get(members, "inputSchema"))
	if err != nil {
		return nil, err
	}
	renamed, err := mcp.Edit(def.Raw, mcp.Set{Name: "name", Value: mcp.String(exposed)})
	if err != nil {
		return nil, err
	}
	return &tool{
		server: server, name: def.Name, exposed: exposed, item: item,
		aggregate: renamed, own: def.Raw, definition: def, entry: entry, mirrored: mirrored,
		digest: sha256.Sum256(append([]byte(server), renamed...)),
	}, nil
}

func sameTool(t *tool, def upstream.Definition, entry *registry.Tool) bool {
	sameEntry := t.entry == entry || t.entry != nil && entry != nil && reflect.DeepEqual(t.entry, entry)
	return sameEntry && t.definition.SHA256 == def.SHA256 && bytes.Equal(t.definition.Raw, def.Raw)
}

// facts is what the policy is told of a tool. An entry that nobody confirmed
// counts as none.
func facts(server, name, exposed string, def upstream.Definition, entry *registry.Tool) policy.Tool {
	t := policy.Tool{
		Server: server, Name: name, ExposedName: exposed,
		Definition: policy.Definition{SHA256: def.SHA256, Annotations: def.Annotations},
	}
	if entry == nil || entry.Suggested {
		return t
	}
	t.Registered = true
	t.Attributes, t.Effect, t.Data, t.Reach = entry.Attributes, entry.Effect, entry.Data, entry.Reach
	t.Env, t.Owner, t.Labels = entry.Env, entry.Owner, entry.Labels
	t.Definition.Pinned = entry.SHA256 != ""
	t.Definition.Drifted = t.Definition.Pinned && entry.SHA256 != def.SHA256
	return t
}

// unknown is the policy item of a name that no backend offers. It is judged
// like any other, so that asking for it takes the same steps.
func unknown(server, name, exposed string) *policy.Item {
	item, err := policy.NewItem(policy.Tool{Server: server, Name: name, ExposedName: exposed})
	if err != nil {
		panic(err) // only annotations can be wrong, and there are none
	}
	return item
}
