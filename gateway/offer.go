package gateway

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"log/slog"
	"reflect"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/arguments"
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
	aggregate  [marks]jsontext.Value // definition under the exposed name
	own        [marks]jsontext.Value // definition under the backend's own name
	digest     [sha256.Size]byte     // of server, name and definition
	mirrored   mcp.ParamHeaders      // arguments of a tool that the modern era repeats in headers
	schema     *arguments.Schema     // that a tool's arguments must fit; nil where they are not looked at
	definition upstream.Definition

	knowledge              // of a tool
	facts     policy.Facts // of anything else: what the registry says of its server
}

// mark is what a listed tool says of itself in our name.
type mark uint8

const (
	unmarked      mark = iota // nothing
	unconditional             // no policy looks at the arguments of a call
	conditional               // one does
	marks                     // how many there are
)

// metaCondition is the name of that in _meta.
const metaCondition = "io.github.regogate/call_condition"

// mark is the one that tools have under a policy.
func (c *Config) mark(list listing, now pinned) mark {
	switch {
	case !c.ShowCallConditions || list != toolList:
		return unmarked
	case now.policy.HasCall():
		return conditional
	}
	return unconditional
}

// bytes is the definition as the route shows it. Only tools are ever marked.
func (o *offer) bytes(server string, m mark) []byte {
	if server == "" {
		return o.aggregate[m]
	}
	return o.own[m]
}

// subject names what a record is about.
func (o *offer) subject() policy.Name {
	return policy.Name{Kind: lists[o.list].kind, Server: o.server, Name: o.name}
}

var errName = errors.New(registry.ToolRule)

// prepareTool fails for a definition that breaks a rule of the protocol which a
// client or the policy relies on.
func prepareTool(c *Config, server string, def upstream.Definition, known knowledge, log *slog.Logger) (*offer, error) {
	exposed, ok := registry.Exposed(server, def.Name)
	if !ok {
		return nil, errName
	}
	item, err := policy.NewItem(toolFacts(server, exposed, def, known))
	if err != nil {
		return nil, err
	}
	o := &offer{list: toolList, server: server, name: def.Name, exposed: exposed, item: item, definition: def, knowledge: known}
	members, err := mcp.Members(def.Raw)
	if err != nil {
		return nil, err
	}
	input := mcp.Get(members, "inputSchema")
	if o.mirrored, err = mcp.ReadParamHeaders(input); err != nil {
		return nil, err
	}
	if o.schema, err = c.schemaOf(server, def.Name, input); err != nil {
		log.Warn("the arguments of a tool are not validated: its inputSchema cannot be used", keyServer, server, keyName, def.Name, keyError, err)
	}
	return o, o.encode(c.ShowCallConditions)
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
	return o, o.encode(false)
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
	return o, o.encode(false)
}

func said(def upstream.Definition) policy.Definition {
	return policy.Definition{SHA256: def.SHA256, Annotations: def.Annotations}
}

// encode fills in the bytes under both names, with the marks where they are
// wanted, and the digest.
func (o *offer) encode(marked bool) (err error) {
	own, aggregate := jsontext.Value(o.definition.Raw), jsontext.Value(o.definition.Raw)
	if o.exposed != o.name {
		if aggregate, err = mcp.Edit(own, mcp.Set{Name: "name", Value: mcp.String(o.exposed)}); err != nil {
			return err
		}
	}
	o.own[unmarked], o.aggregate[unmarked] = own, aggregate
	o.digest = sha256.Sum256(append([]byte(o.server), aggregate...))
	for m, value := range map[mark]string{unconditional: "false", conditional: "true"} {
		if !marked {
			break
		}
		set := mcp.Set{Name: metaCondition, Value: jsontext.Value(value)}
		if o.own[m], err = mcp.EditMeta(own, set); err != nil {
			return err
		}
		if o.aggregate[m], err = mcp.EditMeta(aggregate, set); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether the offer is what it would be made into again.
func (o *offer) same(def upstream.Definition, known knowledge, facts policy.Facts) bool {
	if o.definition.SHA256 != def.SHA256 || !bytes.Equal(o.definition.Raw, def.Raw) {
		return false
	}
	if o.list != toolList {
		return reflect.DeepEqual(o.facts, facts)
	}
	return o.quarantined == known.quarantined &&
		(o.entry == known.entry || o.entry != nil && known.entry != nil && reflect.DeepEqual(o.entry, known.entry))
}

// knowledge is what the registry says of one tool.
type knowledge struct {
	entry       *registry.Tool // nil: none
	quarantined bool
}

// toolFacts is what the policy is told of a tool. An entry that nobody
// confirmed, or that is in quarantine, counts as none.
func toolFacts(server, exposed string, def upstream.Definition, known knowledge) policy.Tool {
	t := policy.Tool{Server: server, Name: def.Name, ExposedName: exposed, Quarantined: known.quarantined, Definition: said(def)}
	entry := known.entry
	if entry == nil || entry.Suggested {
		return t
	}
	t.Definition.Pinned = entry.SHA256 != ""
	t.Definition.Drifted = known.drifted(def)
	if known.quarantined {
		return t
	}
	t.Registered = true
	t.Attributes, t.Effect, t.Data, t.Reach = entry.Attributes, entry.Effect, entry.Data, entry.Reach
	t.Env, t.Owner, t.Labels = entry.Env, entry.Owner, entry.Labels
	return t
}

// serverFacts is what the policy is told of a server. One in quarantine counts as
// not registered.
func serverFacts(snap *registry.Snapshot, name string) policy.Facts {
	if _, quarantined := snap.Quarantined(name, ""); quarantined {
		return policy.Facts{Quarantined: true}
	}
	s, ok := snap.Server(name)
	if !ok {
		return policy.Facts{}
	}
	return policy.Facts{
		Registered: true, Attributes: s.Attributes, Data: s.Data, Reach: s.Reach,
		Env: s.Env, Owner: s.Owner, Labels: s.Labels,
	}
}
