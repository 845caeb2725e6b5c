package policy

import "github.com/go-json-experiment/json/jsontext"

// The structs of this file are the policy input. Their field comments and those
// of the kinds, which say for each value what it is, where it comes from and how
// far to trust it, become the descriptions in schema/input.json; `go test -run
// TestSchema -update .` writes it anew.
//
// A value that is not known is absent: Rego sees it as undefined, never as "",
// [] or null. So a rule that needs a fact that is missing does not hold, and
// `not` of it does: write conditions that allow in the positive. Booleans are
// always there.

// input is the whole document: what a question says, and for the call gate the
// arguments.
type input struct {
	Question

	// The arguments of the call, exactly as they will be forwarded: of
	// completion/complete its argument and context, of a request from the server
	// to the client its params. There only when `call`, and after it `reasons` and
	// `scopes`, are asked; `allow` never sees them. From the client or, for such a
	// request, from the backend; untrusted, any JSON types, numbers exact.
	Arguments jsontext.Value `json:"arguments,omitzero"`
}

// Question is one question to the policy. One without a method, a subject or an
// item is denied.
type Question struct {
	// The MCP method that uses the thing asked about, in lists too: tools/call,
	// prompts/get, resources/read, resources/subscribe, completion/complete,
	// server/discover, logging/setLevel, a task's such as tasks/get, or what a
	// server sends, such as sampling/createMessage. From the gateway's method
	// table, trusted.
	Method string `json:"method"`

	// The claims of the caller's token as they stand there, types kept and
	// numbers exact. From the token, whose signature, issuer, audience and
	// times are verified; what a claim says is as good as its issuer.
	Subject *Subject `json:"claims"`

	// The one thing that is asked about, under the key of its kind.
	Item *Item `json:",inline"`

	// The request that asks.
	Request Request `json:"request"`
}

// complete reports whether it is a question that can be asked.
func (q *Question) complete() bool {
	return q.Method != "" && q.Subject != nil && q.Subject.claims != nil && q.Item != nil && q.Item.entry[1] != nil
}

// Kind is a kind of thing that questions are about. It is also the key of the
// thing in the input, where no other kind's key is.
type Kind string

const (
	// The tool that is asked about, one at a time; for a method of tasks, the
	// tool that started the task. Exactly one of tool, resource, prompt and server
	// is there.
	KindTool Kind = "tool"

	// The resource, or in lists also the template of resources, that is asked
	// about, one at a time. Exactly one of tool, resource, prompt and server is
	// there.
	KindResource Kind = "resource"

	// The prompt that is asked about, one at a time. Exactly one of tool,
	// resource, prompt and server is there.
	KindPrompt Kind = "prompt"

	// The server that is asked about, one at a time: for what it says of itself,
	// and for what it sends while nothing of it is in use. Exactly one of tool,
	// resource, prompt and server is there.
	KindServer Kind = "server"
)

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

	// Whether the registry has a confirmed entry for the tool and nobody has put
	// the tool or its server into quarantine. When false, nothing that we say of it
	// is there. From the registry, trusted.
	Registered bool `json:"registered"`

	// There and true when the tool or its server is in quarantine. From the
	// registry, trusted.
	Quarantined bool `json:"quarantined,omitzero"`

	// What the backend says of the tool. Absent when no backend offers it.
	Definition Definition `json:"definition,omitzero"`
}

// Facts is what we say of a server. Its resources and prompts have the same said
// of them.
type Facts struct {
	// What the server is about, such as payments; sorted. From the registry,
	// trusted.
	Attributes []string `json:"attributes,omitzero"`

	// The most sensitive data that the server handles: public, internal,
	// personal, financial or secret. From the registry, trusted.
	Data string `json:"data,omitzero"`

	// Whether the server touches the world outside: closed or external. From the
	// registry, trusted.
	Reach string `json:"reach,omitzero"`

	// The environment that the server acts on, such as production. From the
	// registry, trusted.
	Env string `json:"env,omitzero"`

	// Who answers for the server. From the registry, trusted.
	Owner string `json:"owner,omitzero"`

	// Anything else that we say of the server. From the registry, trusted.
	Labels map[string]string `json:"labels,omitzero"`

	// Whether the registry has an entry for the server, which is not in quarantine.
	// When false, nothing that we say of it is there. From the registry, trusted.
	Registered bool `json:"registered"`

	// There and true when the server is in quarantine. From the registry, trusted.
	Quarantined bool `json:"quarantined,omitzero"`
}

// Server is one backend.
type Server struct {
	// Name of the server, exactly as configured. From the gateway's configuration
	// or, where no such server exists, from the name that the client asked for;
	// trusted as an identifier.
	Name string `json:"name"`

	Facts
}

// Resource is one resource, one template of resources, or one resource that is
// read through a template.
type Resource struct {
	// Name of the server that offers the resource, exactly as configured. From the
	// gateway's configuration or, where no such server exists, from the name that
	// the client asked for; trusted as an identifier.
	Server string `json:"server"`

	// The URI of the resource, as the backend lists it or, where it does not, as
	// the client asked for it: nothing in it is decoded or normalised. Absent for
	// a template in a list. Trusted as an identifier; what a URI looks like says
	// nothing of what the backend will read.
	URI string `json:"uri,omitzero"`

	// The URI template. There for a template in a list, and for a resource that is
	// not listed but fits a template. From the backend, trusted as an identifier.
	URITemplate string `json:"uri_template,omitzero"`

	// What the backend calls the resource or the template. From the backend,
	// untrusted.
	Name string `json:"name,omitzero"`

	// What type of content the backend announces, such as text/plain. From the
	// backend, untrusted.
	MIMEType string `json:"mime_type,omitzero"`

	Facts

	// What the backend says of the resource or of the template that it fits.
	// Absent when no backend lists either.
	Definition Definition `json:"definition,omitzero"`
}

// Prompt is one prompt.
type Prompt struct {
	// Name of the server that offers the prompt, exactly as configured. From the
	// gateway's configuration or, where no such server exists, from the name that
	// the client asked for; trusted as an identifier.
	Server string `json:"server"`

	// The server's own name of the prompt. From the backend or from the name that
	// the client asked for; trusted as an identifier.
	Name string `json:"name"`

	// The name that clients see on the aggregate route, server__name; the same on
	// every route. Made by the gateway, trusted.
	ExposedName string `json:"exposed_name"`

	Facts

	// What the backend says of the prompt. Absent when no backend offers it.
	Definition Definition `json:"definition,omitzero"`
}

// Definition is what a backend says of a thing of its own. The zero Definition
// means that no backend offers it.
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
