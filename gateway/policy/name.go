package policy

import "github.com/open-policy-agent/opa/v1/ast"

// Name identifies a thing. Name is the server's own name of a tool or a prompt,
// the URI or the URI template of a resource, and "" of a server.
type Name struct {
	Kind         Kind
	Server, Name string
}

// Name is what the item is called; the zero Name for a nil or a zero Item.
func (i *Item) Name() Name {
	if i == nil || i.entry[1] == nil {
		return Name{}
	}
	kind, thing := Kind(textOf(i.entry[0])), i.entry[1].Value
	if kind == KindServer {
		return Name{Kind: kind, Server: member(thing, "name")}
	}
	n := Name{Kind: kind, Server: member(thing, "server")}
	if kind != KindResource {
		n.Name = member(thing, "name")
	} else if n.Name = member(thing, "uri"); n.Name == "" {
		n.Name = member(thing, "uri_template")
	}
	return n
}

// At is the item at a place of the list, from 0 to Len-1. Nobody may modify it.
func (l *Items) At(i int) *Item { return l.items[i] }

// Claim is the text of a claim; "" where it is absent or no text, and for a nil
// Subject.
func (s *Subject) Claim(name string) string {
	if s == nil || s.claims == nil {
		return ""
	}
	return member(s.claims.Value, name)
}

func member(v ast.Value, key string) string {
	o, ok := v.(ast.Object)
	if !ok {
		return ""
	}
	return textOf(o.Get(ast.InternedTerm(key)))
}

func textOf(t *ast.Term) string {
	if t == nil {
		return ""
	}
	s, _ := t.Value.(ast.String)
	return string(s)
}

// Parts are what a question is made of besides its method and its request: the
// claims, and the thing, nil where there is no item, as for a list. ok is false
// where it lacks something that it cannot be asked without. Nobody may modify
// them.
func (q *Question) Parts() (claims, thing ast.Value, ok bool) {
	if q.Method == "" || q.Subject == nil || q.Subject.claims == nil || q.Item != nil && q.Item.entry[1] == nil {
		return nil, nil, false
	}
	if q.Item != nil {
		thing = q.Item.entry[1].Value
	}
	return q.Subject.claims.Value, thing, true
}

// Value is the request as it stands in the input.
func (r *Request) Value() ast.Value { return r.term().Value }
