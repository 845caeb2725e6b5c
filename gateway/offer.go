package gateway

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"reflect"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// listing is one of the lists that a client can ask for.
type listing uint8

const (
	toolList listing = iota
	promptList
	resourceList
	templateList
	listings // how many there are
)

// lists says of each list its method, the member that holds it, the method that
// uses what is in it, with which the policy is asked, how a change of it is told,
// and the capability that it comes with.
var lists = [listings]struct {
	method, member, uses, changed, capability string
	kind                                      policy.Kind
}{
	toolList:     {mcp.MethodToolsList, "tools", mcp.MethodToolsCall, mcp.NotifyToolsChanged, "tools", policy.KindTool},
	promptList:   {mcp.MethodPromptsList, "prompts", mcp.MethodPromptsGet, mcp.NotifyPromptsChanged, "prompts", policy.KindPrompt},
	resourceList: {mcp.MethodResourcesList, "resources", mcp.MethodResourcesRead, mcp.NotifyResourcesChanged, "resources", policy.KindResource},
	templateList: {mcp.MethodTemplatesList, "resourceTemplates", mcp.MethodResourcesRead, mcp.NotifyResourcesChanged, "resources", policy.KindResource},
}

// offer is one thing that a backend offers, joined with what the registry says
// of it, and prepared: its bytes are encoded and its policy input is built
// once, when it is discovered or its attributes change. Immutable.
type offer struct {
	list    listing
	server  string
	name    string // the backend's own: of a tool or prompt its name, of a resource its URI or template
	exposed string // on the aggregate route: server__name; URIs are what they are

	item       *policy.Item
	aggregate  jsontext.Value    // definition under the exposed name
	own        jsontext.Value    // definition under the backend's own name
	digest     [sha256.Size]byte // of server, name and definition
	mirrored   mcp.ParamHeaders  // arguments of a tool that the modern era repeats in headers
	definition upstream.Definition

	entry *registry.Tool // of a tool; nil when it is not registered
	facts policy.Facts   // of anything else: what the registry says of its server
}

// bytes is the definition as the route shows it.
func (o *offer) bytes(server string) []byte {
	if server == "" {
		return o.aggregate
	}
	return o.own
}

// subject names what a record is about.
func (o *offer) subject() policy.Name {
	return policy.Name{Kind: lists[o.list].kind, Server: o.server, Name: o.name}
}

var errName = errors.New(registry.ToolRule)

// prepareTool fails for a definition that breaks a rule of the protocol which a
// client or the policy relies on.
func prepareTool(server string, def upstream.Definition, entry *registry.Tool) (*offer, error) {
	exposed, ok := registry.Exposed(server, def.Name)
	if !ok {
		return nil, errName
	}
	item, err := policy.NewItem(toolFacts(server, def.Name, exposed, def, entry))
	if err != nil {
		return nil, err
	}
	o := &offer{list: toolList, server: server, name: def.Name, exposed: exposed, item: item, definition: def, entry: entry}
	members, err := mcp.Members(def.Raw)
	if err != nil {
		return nil, err
	}
	if o.mirrored, err = mcp.ReadParamHeaders(mcp.Get(members, "inputSchema")); err != nil {
		return nil, err
	}
	return o, o.encode()
}

func preparePrompt(server string, def upstream.Definition, facts policy.Facts) (*offer, error) {
	exposed, ok := registry.Exposed(server, def.Name)
	if !ok {
		return nil, errName
	}
	item, err := policy.NewPromptItem(policy.Prompt{
		Server: server, Name: def.Name, ExposedName: exposed, Facts: facts, Definition: said(def),
	})
	if err != nil {
		return nil, err
	}
	o := &offer{list: promptList, server: server, name: def.Name, exposed: exposed, item: item, definition: def, facts: facts}
	return o, o.encode()
}

func prepareResource(list listing, server string, def upstream.Definition, facts policy.Facts) (*offer, error) {
	r := policy.Resource{Server: server, Name: def.ShownName, MIMEType: def.MIMEType, Facts: facts, Definition: said(def)}
	if list == templateList {
		r.URITemplate = def.Name
	} else {
		r.URI = def.Name
	}
	item, err := policy.NewResourceItem(r)
	if err != nil {
		return nil, err
	}
	o := &offer{list: list, server: server, name: def.Name, exposed: def.Name, item: item, definition: def, facts: facts}
	return o, o.encode()
}

func said(def upstream.Definition) policy.Definition {
	return policy.Definition{SHA256: def.SHA256, Annotations: def.Annotations}
}

// encode fills in the bytes under both names and the digest.
func (o *offer) encode() error {
	o.own, o.aggregate = o.definition.Raw, o.definition.Raw
	if o.exposed != o.name {
		var err error
		if o.aggregate, err = mcp.Edit(o.own, mcp.Set{Name: "name", Value: mcp.String(o.exposed)}); err != nil {
			return err
		}
	}
	o.digest = sha256.Sum256(append([]byte(o.server), o.aggregate...))
	return nil
}

// same reports whether the offer is what it would be made into again.
func (o *offer) same(def upstream.Definition, entry *registry.Tool, facts policy.Facts) bool {
	if o.definition.SHA256 != def.SHA256 || !bytes.Equal(o.definition.Raw, def.Raw) {
		return false
	}
	if o.list != toolList {
		return reflect.DeepEqual(o.facts, facts)
	}
	return o.entry == entry || o.entry != nil && entry != nil && reflect.DeepEqual(o.entry, entry)
}

// toolFacts is what the policy is told of a tool. An entry that nobody
// confirmed counts as none.
func toolFacts(server, name, exposed string, def upstream.Definition, entry *registry.Tool) policy.Tool {
	t := policy.Tool{Server: server, Name: name, ExposedName: exposed, Definition: said(def)}
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

// serverFacts is what the policy is told of a server.
func serverFacts(snap *registry.Snapshot, name string) policy.Facts {
	s, ok := snap.Server(name)
	if !ok {
		return policy.Facts{}
	}
	return policy.Facts{
		Registered: true, Attributes: s.Attributes, Data: s.Data, Reach: s.Reach,
		Env: s.Env, Owner: s.Owner, Labels: s.Labels,
	}
}
