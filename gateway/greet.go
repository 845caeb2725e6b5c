package gateway

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/session"
)

// listTTL is how long a modern-era client may take a list for fresh. A list
// changes with the policy, so it is never long.
const listTTL = "0"

func (x *exchange) initialize() *fault {
	params, err := mcp.ReadInitialize(x.msg.Params)
	if err != nil {
		return faultRPC(400, codeMalformed, err)
	}
	x.version = mcp.Negotiate(params.ProtocolVersion)
	s, e := x.g.sessions.Open(x.ctx, session.Session{
		Principal: x.owner(), Version: x.version, Capabilities: params.Capabilities,
		Client: session.Implementation{Name: clip(params.Client.Name), Version: clip(params.Client.Version)},
	})
	if e != nil {
		return faultSession(e)
	}
	x.session = s
	intro := x.introduce()
	x.w.Header().Set("Mcp-Session-Id", s.ID)
	x.reply(x.result(object(
		mcp.Set{Name: "protocolVersion", Value: mcp.String(x.version)},
		mcp.Set{Name: "capabilities", Value: intro.capabilities(mcp.Legacy)},
		mcp.Set{Name: "serverInfo", Value: x.g.serverInfo()},
		mcp.Set{Name: "instructions", Value: intro.text()},
	)))
	return nil
}

func (x *exchange) ping() *fault {
	x.reply(x.result(jsontext.Value("{}")))
	return nil
}

func (x *exchange) discover() *fault {
	intro := x.introduce()
	x.reply(x.result(object(
		mcp.Set{Name: "resultType", Value: mcp.String("complete")},
		mcp.Set{Name: "supportedVersions", Value: stringArray(mcp.Supported())},
		mcp.Set{Name: "capabilities", Value: intro.capabilities(mcp.Modern)},
		mcp.Set{Name: "instructions", Value: intro.text()},
		mcp.Set{Name: "ttlMs", Value: jsontext.Value(listTTL)},
		mcp.Set{Name: "cacheScope", Value: mcp.String("private")},
		mcp.Set{Name: "_meta", Value: object(mcp.Set{Name: mcp.MetaServerInfo, Value: x.g.serverInfo()})},
	)))
	return nil
}

func (g *Gateway) serverInfo() jsontext.Value {
	return object(
		mcp.Set{Name: "name", Value: mcp.String("regogate")},
		mcp.Set{Name: "title", Value: mcp.String("regogate")},
		mcp.Set{Name: "version", Value: mcp.String(g.version)},
	)
}

// introduction is what a client is told of the servers on its route before it
// asks for anything: of those alone that the policy lets it know of, or lets it
// see something of.
type introduction struct {
	sites []*site // that it may know of
	shown []*site // that it sees a prompt or a resource of
	route string
	// unsure: something is not known yet, so that everything may come.
	unsure bool
}

func (x *exchange) introduce() introduction {
	intro := introduction{route: x.server}
	now, f := x.pin()
	if f != nil {
		intro.unsure = true
		return intro
	}
	shelf := now.catalog.shelf(x.server)
	answers, f := x.seeEach(now, mcp.MethodDiscover, shelf.servers)
	if f != nil {
		intro.unsure = true
		return intro
	}
	for i, s := range shelf.sites {
		if answers.Allowed(i) {
			intro.sites = append(intro.sites, s)
			intro.unsure = intro.unsure || s.state.Listed.IsZero()
		}
	}
	// Clients do not ask for what is not declared. Tools always are.
	for _, list := range []listing{promptList, resourceList, templateList} {
		if len(shelf.lists[list].offers) == 0 || intro.any(lists[list].capability) {
			continue
		}
		seen, f := x.see(now, list)
		if f != nil {
			intro.unsure = true
			return intro
		}
		for _, o := range seen.offers {
			intro.shown = append(intro.shown, now.catalog.site(o.server))
		}
	}
	return intro
}

// capabilities are those that any of the servers has. What changes a list is
// not only a server, so a change is always told.
func (i introduction) capabilities(era mcp.Era) jsontext.Value {
	changing := jsontext.Value(`{"listChanged":true}`)
	sets := []mcp.Set{{Name: "tools", Value: changing}}
	if i.any("prompts") {
		sets = append(sets, mcp.Set{Name: "prompts", Value: changing})
	}
	if i.any("resources") {
		value := changing
		if i.any("resources", "subscribe") {
			value = jsontext.Value(`{"subscribe":true,"listChanged":true}`)
		}
		sets = append(sets, mcp.Set{Name: "resources", Value: value})
	}
	if i.any("completions") {
		sets = append(sets, mcp.Set{Name: "completions", Value: jsontext.Value("{}")})
	}
	if i.unsure || declared(i.sites, "logging") { // of the server itself, whatever is seen of it
		sets = append(sets, mcp.Set{Name: "logging", Value: jsontext.Value("{}")})
	}
	return object(append(sets, i.tasks(era)...)...)
}

const tasksExtension = "io.modelcontextprotocol/tasks"

// tasks are offered where a server of the client's era has them: the two eras'
// are not the same.
func (i introduction) tasks(era mcp.Era) []mcp.Set {
	for _, s := range i.sites {
		if mcp.EraOf(s.state.Version) != era {
			continue
		}
		if era == mcp.Legacy && s.state.Has("tasks", "") {
			return []mcp.Set{{Name: "tasks", Value: jsontext.Value(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)}}
		}
		if era == mcp.Modern && mcp.Declares(s.state.Capabilities, "extensions", tasksExtension) {
			return []mcp.Set{{Name: "extensions", Value: object(mcp.Set{Name: tasksExtension, Value: jsontext.Value("{}")})}}
		}
	}
	return nil
}

func (i introduction) any(path ...string) bool {
	return i.unsure || declared(i.sites, path...) || declared(i.shown, path...)
}

func declared(sites []*site, path ...string) bool {
	return slices.ContainsFunc(sites, func(s *site) bool { return mcp.Declares(s.state.Capabilities, path...) })
}

// mostInstructions bounds what one server says of itself: models read it.
const mostInstructions = 16 << 10

// text is the servers' instructions: a server's own on its own route, and under
// their names on the aggregate. nil is none.
func (i introduction) text() jsontext.Value {
	var parts []string
	for _, s := range i.sites {
		text := strings.TrimSpace(s.state.Instructions)
		if len(text) > mostInstructions {
			text = strings.ToValidUTF8(text[:mostInstructions], "") + "…"
		}
		switch {
		case text == "":
		case i.route != "":
			parts = append(parts, text)
		default:
			parts = append(parts, "Server "+s.name+" (its tools and prompts begin with "+s.name+"__):\n"+text)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return mcp.String(strings.Join(parts, "\n\n"))
}

// result makes the response with this result to the exchange's request.
func (x *exchange) result(result jsontext.Value) []byte {
	return mcp.NewResponse(x.msg.ID, result).Append(make([]byte, 0, len(result)+64))
}
