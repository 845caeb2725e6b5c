package policy

// Name identifies a thing. Name is the server's own name of a tool or a prompt,
// the URI or the URI template of a resource, and "" of a server. A name without
// one of the kinds is not written down.
type Name struct {
	Kind         Kind
	Server, Name string
}
