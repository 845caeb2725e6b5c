package gateway

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/registry"
)

// target is what a request names, as the policy is asked about it.
type target struct {
	offer  *offer // nil where no backend offers anything of that name
	server string // where it would go
	own    string // the backend's own name of it
	item   *policy.Item
	name   policy.Name
	known  bool // it may be forwarded if the policy says yes
	// also are further ways to look at the same resource, one for each template
	// that it fits: what any of them hides is hidden.
	also []*policy.Item
}

// use is a request that uses one thing. All of them go the same way: may the
// principal see it, may this very use of it go through, and only then is one
// backend asked.
type use struct {
	method  string
	targets func(now pinned) []target // never empty; the first that is allowed counts
	// arguments are what the call gate judges; asked says that there is such a
	// question.
	arguments jsontext.Value
	asked     bool
	retry     mcp.Retry // what the client brings along of an earlier answer
	asksTask  bool      // the client wants a task in place of the answer (legacy)
	params    func(name string, sets ...mcp.Set) jsontext.Value
	unknown   *fault
}

func (x *exchange) use(u *use) *fault {
	now, f := x.pin()
	if f != nil {
		return f
	}
	t, ok := x.choose(now, u.method, u.targets(now))
	if !ok {
		return u.unknown
	}
	if answered, f := x.unfit(t, u); answered || f != nil {
		return f
	}
	if u.asked {
		if f := x.permitted(now, x.question(u.method, t), u.arguments); f != nil {
			return f
		}
	}
	if x.era == mcp.Modern && t.offer != nil {
		if err := t.offer.mirrored.Check(x.r.Header, u.arguments); err != nil {
			return faultRPC(http.StatusBadRequest, codeMalformed, err)
		}
	}
	// What does not go through for another reason uses up nothing of a limit that
	// principals share, and only who may call a tool learns that it has one.
	if u.method == mcp.MethodToolsCall && t.offer != nil {
		if wait := x.g.limits.Tool(x.ctx, t.offer.exposed); wait > 0 {
			return faultRate("tool", wait)
		}
	}
	return x.forward(now, t, u)
}

// choose asks the first question: may the principal see and use this? Of a
// name that means several things, it is asked about one after the other. What
// no backend offers is asked about all the same.
func (x *exchange) choose(now pinned, method string, targets []target) (target, bool) {
	for _, t := range targets {
		x.about(t)
		if x.allowed(now, method, t) && t.known {
			return t, true
		}
	}
	return target{}, false
}

// allow asks about the target in each way that there is to look at it, until
// one is not allowed. The question that decided comes back with its answer.
func (t target) allow(ctx context.Context, now pinned, q policy.Question) (policy.Question, policy.Decision) {
	d := now.policy.Allow(ctx, q)
	for _, item := range t.also {
		if !d.Allowed {
			break
		}
		q.Item = item
		d = now.policy.Allow(ctx, q)
	}
	return q, d
}

func (x *exchange) question(method string, t target) policy.Question {
	return policy.Question{Method: method, Subject: x.subject, Item: t.item, Request: x.request()}
}

// allowed asks the first question. Why the answer is no is only for the record,
// so that is asked when the client has its answer: a name that something is
// behind then takes no longer than one without.
func (x *exchange) allowed(now pinned, method string, t target) bool {
	from := time.Now()
	q, d := t.allow(x.ctx, now, x.question(method, t))
	measure(&x.stages.policy, from)
	r := x.recordOne(now, ruleAllow, q, d)
	if !d.Allowed {
		x.later = append(x.later, func() { r.Explanation = now.policy.Explain(context.WithoutCancel(x.ctx), q, nil) })
	}
	return d.Allowed
}

// permitted asks the second question, where the policy has it: may this very
// call go through?
func (x *exchange) permitted(now pinned, q policy.Question, arguments jsontext.Value) *fault {
	if !now.policy.HasCall() {
		return nil
	}
	from := time.Now()
	d := now.policy.Call(x.ctx, q, arguments)
	r := x.recordOne(now, ruleCall, q, d)
	r.Argue(arguments)
	if !d.Allowed {
		r.Explanation = now.policy.Explain(x.ctx, q, arguments)
	}
	measure(&x.stages.policy, from)
	switch {
	case d.Allowed:
		return nil
	case len(r.Scopes) > 0:
		return faultScope(r.ID, r.Reasons, x.g.challenge(x.server).InsufficientScope(r.Scopes))
	}
	return faultDenied(r.ID, r.Reasons)
}

func (x *exchange) callTool() *fault {
	params, err := mcp.ReadCall(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	return x.use(&use{
		method: mcp.MethodToolsCall, arguments: params.Arguments, asked: true, retry: params.Retry, asksTask: params.Task != nil,
		params: params.Params, unknown: faultUnknown("tool", params.Name),
		targets: func(now pinned) []target { return []target{x.named(now, toolList, params.Name)} },
	})
}

func (x *exchange) getPrompt() *fault {
	params, err := mcp.ReadGet(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	return x.use(&use{
		method: mcp.MethodPromptsGet, arguments: params.Arguments, asked: true, retry: params.Retry,
		params: params.Params, unknown: faultUnknown("prompt", params.Name),
		targets: func(now pinned) []target { return []target{x.named(now, promptList, params.Name)} },
	})
}

func (x *exchange) readResource() *fault {
	params, err := mcp.ReadURI(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	return x.use(&use{
		method: mcp.MethodResourcesRead, retry: params.Retry,
		params: params.Params, unknown: x.unknownResource(params.URI),
		targets: func(now pinned) []target { return x.located(now, params.URI) },
	})
}

// complete answers completion/complete. What may be completed is what may be
// used, and only where the policy says so of completing, too.
func (x *exchange) complete() *fault {
	params, err := mcp.ReadComplete(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	using, unknown := mcp.MethodPromptsGet, faultUnknown("prompt", params.Prompt)
	targets := []target{x.named(now, promptList, params.Prompt)}
	if !params.IsPrompt {
		using, unknown = mcp.MethodResourcesRead, x.unknownResource(params.URI)
		targets = x.templates(now, params.URI)
	}
	t, ok := x.choose(now, using, targets)
	if !ok {
		return unknown
	}
	return x.use(&use{
		method: mcp.MethodComplete, arguments: params.Arguments(), asked: true,
		params: params.Params, unknown: unknown,
		targets: func(pinned) []target { return []target{t} },
	})
}

// named finds a tool or a prompt by the name that the route shows. One that no
// backend offers is judged like any other, so that asking for it takes the same
// steps; it stays unknown even if the policy says yes.
func (x *exchange) named(now pinned, list listing, name string) target {
	from := time.Now()
	defer func() { measure(&x.stages.registry, from) }()
	if o := now.catalog.shelf(x.server).lists[list].byName[name]; o != nil {
		return o.target()
	}
	server, own, exposed := x.server, name, ""
	if x.server == "" {
		server, own, _ = registry.SplitExposed(name)
		exposed = name
	} else {
		exposed, _ = registry.Exposed(server, own)
	}
	t := target{server: server, own: own, name: policy.Name{Kind: lists[list].kind, Server: server, Name: own}}
	if list == toolList {
		t.item = item(policy.NewItem(policy.Tool{Server: server, Name: own, ExposedName: exposed}))
	} else {
		t.item = item(policy.NewPromptItem(policy.Prompt{Server: server, Name: own, ExposedName: exposed, Facts: now.catalog.facts(server)}))
	}
	return t
}

func (o *offer) target() target {
	return target{offer: o, server: o.server, own: o.name, item: o.item, name: o.subject(), known: true}
}

// item is for things without annotations: only these can be wrong.
func item(i *policy.Item, err error) *policy.Item {
	if err != nil {
		panic(err)
	}
	return i
}

// located finds what a URI means on the route: of each server, by name, the
// resource that it lists or the template that it is of. A server's own route
// leads every other URI to that server, too: tools may link to resources that
// no list has, and the policy sees that they have no definition.
func (x *exchange) located(now pinned, uri string) []target {
	defer func(from time.Time) { measure(&x.stages.registry, from) }(time.Now())
	return now.catalog.located(x.server, uri)
}

func (c *catalog) located(route, uri string) []target {
	var listed, made []target
	for _, s := range c.shelf(route).sites {
		lists := c.shelf(s.name).lists
		if o := lists[resourceList].byName[uri]; o != nil {
			listed = append(listed, o.target())
			continue
		}
		if t, ok := fitting(lists[templateList].offers, uri); ok {
			made = append(made, t)
		}
	}
	// A template may take in any URI, so what is listed comes first.
	if found := append(listed, made...); len(found) > 0 {
		return found
	}
	r := policy.Resource{Server: route, URI: uri, Facts: c.facts(route)}
	return []target{{
		server: route, own: uri, item: item(policy.NewResourceItem(r)),
		name:  policy.Name{Kind: policy.KindResource, Server: route, Name: uri},
		known: c.has(route, "resources"),
	}}
}

// fitting is the resource that a server's templates give for a URI: of the first
// that it fits, and of all others also.
func fitting(templates []*offer, uri string) (t target, ok bool) {
	for _, o := range templates {
		switch {
		case !o.definition.Match(uri):
		case !ok:
			t, ok = o.instance(uri), true
		default:
			t.also = append(t.also, o.instance(uri).item)
		}
	}
	return t, ok
}

// again is what a request uses, as it is now: the registry may say something else of
// it than when the request began.
func (c *catalog) again(t target) target {
	lists := c.shelf(t.server).lists
	switch t.name.Kind {
	case policy.KindTool:
		return c.tool(t.server, t.own)
	case policy.KindPrompt:
		if o := lists[promptList].byName[t.own]; o != nil {
			return o.target()
		}
		t.item = item(policy.NewPromptItem(policy.Prompt{Server: t.server, Name: t.own, Facts: c.facts(t.server)}))
	case policy.KindResource:
		if o := lists[templateList].byName[t.own]; o != nil {
			return o.target()
		}
		return c.located(t.server, t.own)[0]
	case policy.KindServer:
		if s := c.site(t.server); s != nil {
			return s.target()
		}
	}
	return t
}

// instance is the resource that a template gives for a URI.
func (o *offer) instance(uri string) target {
	i, err := policy.NewResourceItem(policy.Resource{
		Server: o.server, URI: uri, URITemplate: o.name, Name: o.definition.ShownName, MIMEType: o.definition.MIMEType,
		Facts: o.facts, Definition: said(o.definition),
	})
	t := o.target()
	t.item, t.own, t.name.Name = item(i, err), uri, uri // the same annotations have been read before
	return t
}

// templates finds what a resource reference of a completion means: a template,
// or a resource.
func (x *exchange) templates(now pinned, ref string) []target {
	var found []target
	for _, s := range now.catalog.shelf(x.server).sites {
		lists := now.catalog.shelf(s.name).lists
		for _, list := range []listing{templateList, resourceList} {
			if o := lists[list].byName[ref]; o != nil {
				found = append(found, o.target())
				break
			}
		}
	}
	if len(found) > 0 {
		return found
	}
	r := policy.Resource{Server: x.server, URITemplate: ref, Facts: now.catalog.facts(x.server)}
	return []target{{
		server: x.server, own: ref, item: item(policy.NewResourceItem(r)),
		name: policy.Name{Kind: policy.KindResource, Server: x.server, Name: ref},
	}}
}

func (c *catalog) site(server string) *site {
	for _, s := range c.servers[server].sites {
		return s
	}
	return nil
}

// facts is what the registry says of a server; nothing where there is none.
func (c *catalog) facts(server string) policy.Facts {
	if s := c.site(server); s != nil {
		return s.facts
	}
	return policy.Facts{}
}

// era is the one that a server is spoken to in.
func (c *catalog) era(server string) mcp.Era {
	if s := c.site(server); s != nil {
		return mcp.EraOf(s.state.Version)
	}
	return 0
}

func (c *catalog) has(server, capability string) bool {
	s := c.site(server)
	return s != nil && s.state.Has(capability, "")
}

// about notes for the log what the request is about.
func (x *exchange) about(t target) {
	x.thing = t.name.Name
	switch {
	case t.name.Kind == policy.KindResource:
		x.thing = bareURI(x.thing)
	case t.offer != nil:
		x.thing = t.offer.exposed
	}
}

// bareURI leaves out where a URI may hold a credential.
func bareURI(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
