package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// The structs of this file are the policy input. Their field comments, which
// say for each value what it is, where it comes from and how far to trust it,
// become the descriptions in schema/input.json; `go test -run TestSchema
// -update .` writes it anew.
//
// A value that is not known is absent: Rego sees it as undefined, never as "",
// [] or null. So a rule that needs a fact that is missing does not hold, and
// `not` of it does: write conditions that allow in the positive. Booleans are
// always there.

// input is the whole document: what a question says, and for the call gate the
// arguments.
type input struct {
	Question

	// The arguments of the call, exactly as they will be forwarded. There only
	// when `call`, and after it `reasons` and `scopes`, are asked; `allow` never
	// sees them. From the client, untrusted, any JSON types, numbers exact.
	Arguments jsontext.Value `json:"arguments,omitzero"`
}

// Question is one question to the policy. One without a method, a subject or an
// item is denied.
type Question struct {
	// The MCP method that uses the thing asked about, such as tools/call, in
	// lists too. From the gateway's method table, trusted.
	Method string `json:"method"`

	// The claims of the caller's token as they stand there, types kept and
	// numbers exact. From the token, whose signature, issuer, audience and
	// times are verified; what a claim says is as good as its issuer.
	Subject *Subject `json:"claims"`

	// The tool that is asked about, one at a time.
	Item *Item `json:"tool"`

	// The request that asks.
	Request Request `json:"request"`
}

// Tool is one tool: who offers it, what we say of it, and what its backend
// says of it.
type Tool struct {
	// Name of the server that offers the tool, exactly as configured. From the
	// gateway's configuration or, where no such server exists, from the name
	// that the client asked for; trusted as an identifier.
	Server string `json:"server"`

	// The server's own name of the tool. From the backend or from the name
	// that the client asked for; trusted as an identifier.
	Name string `json:"name"`

	// The name that clients see on the aggregate route, server__name; the same
	// on every route. Made by the gateway, trusted.
	ExposedName string `json:"exposed_name"`

	// What the tool is about, such as payments; sorted. From the registry,
	// trusted.
	Attributes []string `json:"attributes,omitzero"`

	// What a call does: read, write, destructive, admin or execute. From the
	// registry, trusted.
	Effect string `json:"effect,omitzero"`

	// The most sensitive data that it handles: public, internal, personal,
	// financial or secret. From the registry, trusted.
	Data string `json:"data,omitzero"`

	// Whether it touches the world outside: closed or external. From the
	// registry, trusted.
	Reach string `json:"reach,omitzero"`

	// The environment that it acts on, such as production. From the registry,
	// trusted.
	Env string `json:"env,omitzero"`

	// Who answers for the tool. From the registry, trusted.
	Owner string `json:"owner,omitzero"`

	// Anything else that we say of it. From the registry, trusted.
	Labels map[string]string `json:"labels,omitzero"`

	// Whether the registry has a confirmed entry for the tool. When false,
	// nothing that we say of it is there. From the registry, trusted.
	Registered bool `json:"registered"`

	// What the backend says of the tool. Absent when no backend offers it.
	Definition Definition `json:"definition,omitzero"`
}

// Definition is what a backend says of its tool. The zero Definition means that
// no backend offers it.
type Definition struct {
	// Digest of the definition, SHA-256 in lower-case hex. Made by the gateway
	// from the backend's bytes, trusted as a digest.
	SHA256 string `json:"sha256,omitzero"`

	// Whether the registry pins the definition to a digest. From the registry,
	// trusted.
	Pinned bool `json:"pinned"`

	// Whether the definition differs from the pinned one. Made by the gateway,
	// trusted.
	Drifted bool `json:"drifted"`

	// The backend's hints, such as readOnlyHint, as it gave them. From the
	// backend, untrusted: anybody who can change the backend can change them.
	Annotations jsontext.Value `json:"annotations,omitzero"`
}

// Request is what is known of the request apart from who asks for what.
type Request struct {
	// Identifies the request in logs and decision records. Made by the gateway,
	// trusted.
	ID string `json:"id,omitzero"`

	// The MCP revision that the client speaks, such as 2025-11-25. From the
	// client, one of those that the gateway knows.
	ProtocolVersion string `json:"protocol_version,omitzero"`

	// What the client calls itself.
	Client Client `json:"client,omitzero"`

	// Address of the client, host and port. From the connection, or from a
	// trusted proxy's header.
	RemoteAddr string `json:"remote_addr,omitzero"`

	// The route that was used, such as /mcp or /mcp/stripe. From the gateway's
	// routes, trusted.
	Route string `json:"route,omitzero"`
}

// Client is what a client calls itself.
type Client struct {
	// Name of the client program. From the client, untrusted.
	Name string `json:"name,omitzero"`

	// Version of the client program. From the client, untrusted.
	Version string `json:"version,omitzero"`
}

// Subject is the claims of one principal, ready to be evaluated. It is
// immutable and safe for concurrent use; make it once for a token.
type Subject struct{ claims *ast.Term }

// NewSubject reads the claims, a JSON object. It fails on anything else, on
// duplicate names, and on JSON made to be expensive. It keeps no reference to
// the bytes.
func NewSubject(claims jsontext.Value) (*Subject, error) {
	t, err := parseObjectValue(claims)
	if err != nil {
		return nil, fmt.Errorf("read the claims for the policy: %w", err)
	}
	return &Subject{t}, nil
}

// Item is one tool, ready to be evaluated. It is immutable and safe for
// concurrent use; make it once for a registry revision.
type Item struct {
	tool    *ast.Term
	offered bool // by a backend: it is not just a name that somebody asked for
}

// NewItem prepares a tool. It fails only when the annotations are there and no
// proper JSON object. It keeps no reference to t's slices and maps.
func NewItem(t Tool) (*Item, error) {
	definition, err := t.Definition.term()
	if err != nil {
		return nil, fmt.Errorf("read the annotations of tool %s of server %s for the policy: %w", t.Name, t.Server, err)
	}
	var o object
	o.text("server", t.Server)
	o.text("name", t.Name)
	o.text("exposed_name", t.ExposedName)
	o.texts("attributes", t.Attributes)
	o.text("effect", t.Effect)
	o.text("data", t.Data)
	o.text("reach", t.Reach)
	o.text("env", t.Env)
	o.text("owner", t.Owner)
	var labels object
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		labels.set(key, ast.InternedTerm(t.Labels[key]))
	}
	o.set("labels", labels.term())
	o.flag("registered", t.Registered)
	o.set("definition", definition)
	return &Item{o.term(), definition != nil}, nil
}

func (d *Definition) term() (*ast.Term, error) {
	if d.SHA256 == "" && !d.Pinned && !d.Drifted && d.Annotations == nil {
		return nil, nil
	}
	var o object
	o.text("sha256", d.SHA256)
	o.flag("pinned", d.Pinned)
	o.flag("drifted", d.Drifted)
	if d.Annotations != nil {
		annotations, err := parseObjectValue(d.Annotations)
		if err != nil {
			return nil, err
		}
		o.set("annotations", annotations)
	}
	return o.term(), nil
}

// Items is a list of tools, ready to be evaluated together. It is immutable
// and safe for concurrent use; make it once for a registry revision.
type Items struct{ items []*Item }

// NewItems takes over the slice.
func NewItems(items []*Item) *Items { return &Items{items} }

// Len is the number of items; a nil Items has none.
func (l *Items) Len() int {
	if l == nil {
		return 0
	}
	return len(l.items)
}

func (r *Request) term() *ast.Term {
	var client object
	client.text("name", r.Client.Name)
	client.text("version", r.Client.Version)
	o := make(object, 0, 5)
	o.text("id", r.ID)
	o.text("protocol_version", r.ProtocolVersion)
	o.set("client", client.term())
	o.text("remote_addr", r.RemoteAddr)
	o.text("route", r.Route)
	if t := o.term(); t != nil {
		return t
	}
	return ast.ObjectTerm()
}

// term returns the document, with the request as Request.term gives it. It fails
// when the question is incomplete and when the arguments are no proper JSON
// object.
func (in *input) term(request *ast.Term) (*ast.Term, error) {
	if in.Method == "" || in.Subject == nil || in.Item == nil {
		return nil, errIncomplete
	}
	o := make(object, 0, 5)
	o.text("method", in.Method)
	o.set("claims", in.Subject.claims)
	o.set("tool", in.Item.tool)
	o.set("request", request)
	if in.Arguments != nil {
		arguments, err := parseObjectValue(in.Arguments)
		if err != nil {
			return nil, fmt.Errorf("read the arguments for the policy: %w", err)
		}
		o.set("arguments", arguments)
	}
	return o.term(), nil
}
