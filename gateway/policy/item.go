package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Subject is the claims of one principal, ready to be evaluated. It is
// immutable and safe for concurrent use; make it once for a token. The zero
// Subject is none: a question with it is denied.
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

// Item is one thing of some kind, ready to be evaluated. It is immutable and safe
// for concurrent use; make it once for a registry revision. The zero Item is
// none: a question with it is denied.
type Item struct {
	entry [2]*ast.Term // of the input: the kind and the thing
	known bool         // it is not just a name that somebody asked for
}

func newItem(kind Kind, thing object, known bool) *Item {
	return &Item{ast.Item(ast.InternedTerm(string(kind)), thing.term()), known}
}

// NewItem prepares a tool. It fails only when the annotations are there and no
// proper JSON object. It keeps no reference to t's slices and maps.
func NewItem(t Tool) (*Item, error) {
	definition, err := t.Definition.term()
	if err != nil {
		return nil, badAnnotations(KindTool, t.Name, t.Server, err)
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
	o.labels(t.Labels)
	o.standing(t.Registered, t.Quarantined)
	o.set("definition", definition)
	return newItem(KindTool, o, definition != nil), nil
}

// NewResourceItem prepares a resource or a template. It fails only when the
// annotations are there and no proper JSON object. It keeps no reference to r's
// slices and maps.
func NewResourceItem(r Resource) (*Item, error) {
	definition, err := r.Definition.term()
	if err != nil {
		return nil, badAnnotations(KindResource, cmp.Or(r.URI, r.URITemplate), r.Server, err)
	}
	var o object
	o.text("server", r.Server)
	o.text("uri", r.URI)
	o.text("uri_template", r.URITemplate)
	o.text("name", r.Name)
	o.text("mime_type", r.MIMEType)
	o.facts(&r.Facts)
	o.set("definition", definition)
	// With both, the client made the URI up from the template.
	madeUp := r.URI != "" && r.URITemplate != ""
	return newItem(KindResource, o, definition != nil && !madeUp), nil
}

// NewPromptItem prepares a prompt. It fails only when the annotations are there
// and no proper JSON object. It keeps no reference to p's slices and maps.
func NewPromptItem(p Prompt) (*Item, error) {
	definition, err := p.Definition.term()
	if err != nil {
		return nil, badAnnotations(KindPrompt, p.Name, p.Server, err)
	}
	var o object
	o.text("server", p.Server)
	o.text("name", p.Name)
	o.text("exposed_name", p.ExposedName)
	o.facts(&p.Facts)
	o.set("definition", definition)
	return newItem(KindPrompt, o, definition != nil), nil
}

// NewServerItem prepares a server. It never fails; its error is there so that
// all kinds are prepared alike. It keeps no reference to s's slices and maps.
func NewServerItem(s Server) (*Item, error) {
	var o object
	o.text("name", s.Name)
	o.facts(&s.Facts)
	// Nothing else tells a server of ours from a name in a request's path.
	return newItem(KindServer, o, s.Registered), nil
}

func badAnnotations(kind Kind, name, server string, err error) error {
	return fmt.Errorf("read the annotations of %s %s of server %s for the policy: %w", kind, cut(oneLine(name)), server, err)
}

func (o *object) facts(f *Facts) {
	o.texts("attributes", f.Attributes)
	o.text("data", f.Data)
	o.text("reach", f.Reach)
	o.text("env", f.Env)
	o.text("owner", f.Owner)
	o.labels(f.Labels)
	o.standing(f.Registered, f.Quarantined)
}

func (o *object) standing(registered, quarantined bool) {
	o.flag("registered", registered)
	if quarantined {
		o.flag("quarantined", true)
	}
}

func (o *object) labels(labels map[string]string) {
	var all object
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all.set(key, ast.InternedTerm(labels[key]))
	}
	o.set("labels", all.term())
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

// allKinds is every kind, in the order in which keys have them.
var allKinds = [...]Kind{KindTool, KindResource, KindPrompt, KindServer}

// Items is a list of things, of any kinds, ready to be evaluated together. It is immutable
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
	if !in.complete() {
		return nil, errIncomplete
	}
	o := make(object, 0, 5)
	o.text("method", in.Method)
	o.set("claims", in.Subject.claims)
	o = append(o, in.Item.entry)
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
