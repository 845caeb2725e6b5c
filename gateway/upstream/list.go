package upstream

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// kind is one of the four kinds of things that servers list.
type kind int

const (
	tools kind = iota
	prompts
	resources
	templates
	lists // how many kinds there are
)

// terms are how a kind is called in the protocol and in messages.
type terms struct {
	method     string // that lists it
	member     string // of the result, that holds the list
	identity   string // member of a definition, unique in the list
	capability string // without which there is none
	one, many  string
}

func (k kind) terms() terms {
	switch k {
	case prompts:
		return terms{"prompts/list", "prompts", "name", "prompts", "prompt", "prompts"}
	case resources:
		return terms{"resources/list", "resources", "uri", "resources", "resource", "resources"}
	case templates:
		return terms{"resources/templates/list", "resourceTemplates", "uriTemplate", "resources", "resource template", "resource templates"}
	}
	return terms{mcp.MethodToolsList, "tools", "name", "tools", "tool", "tools"}
}

// Bounds of one list, beyond those of one response. The largest real servers
// offer some hundred tools.
const (
	mostPages     = 500
	mostItems     = 10_000
	mostBytes     = 64 << 20
	mostTemplates = 200 // each may be tried for every URI that is not listed
)

// most is how many things a list of the kind may hold.
func (k kind) most() int {
	if k == templates {
		return mostTemplates
	}
	return mostItems
}

// listing is the reading of one of a server's lists, page by page.
type listing struct {
	terms
	of     kind
	define definer

	items  []Definition
	byName map[string]int
	bytes  int
	// partial says why the list did not come to an end, where trying again
	// would not help; what came before it counts. "" is a whole list.
	partial string
	left    []string // what was left out and why, safe for a log
	err     error    // of reading; then nothing that was read counts
}

// newListing prepares for one list of a server. http: it is spoken to over
// HTTP in the modern era.
func newListing(k kind, server string, http bool) *listing {
	l := &listing{terms: k.terms(), of: k, byName: map[string]int{}}
	switch k {
	case tools:
		l.define = defineTool(server, http)
	case prompts:
		l.define = definePrompt(server)
	case resources:
		l.define = defineResource
	case templates:
		l.define = defineTemplate
	}
	return l
}

// asked reports whether a server is asked for the list at all. Tools are older
// than some servers' declaring of them.
func (l *listing) asked(h *hello) bool { return l.of == tools || h.has(l.capability, "") }

// read reads all pages. The error is that of a request or of an answer that
// makes no sense.
func (l *listing) read(ctx context.Context, from link, h *hello) error {
	seen := map[string]bool{}
	var params jsontext.Value
	for range mostPages {
		m, err := from.call(ctx, request{method: l.method, params: params})
		if err != nil {
			return err
		}
		if m.Error != nil {
			return l.refused(m.Err(), h)
		}
		next, err := l.page(m.Result)
		if err != nil || next == nil || l.partial != "" {
			return err
		}
		cursor, ok := mcp.Text(next)
		switch {
		case !ok:
			l.partial = "its nextCursor is not a string"
			return nil
		case seen[cursor]:
			l.partial = "its nextCursor repeats"
			return nil
		}
		seen[cursor] = true
		if params, err = mcp.Edit(jsontext.Value("{}"), mcp.Set{Name: "cursor", Value: next}); err != nil {
			return broken("send back its nextCursor: %w", err)
		}
	}
	l.partial = fmt.Sprintf("its list goes on after %d pages", mostPages)
	return nil
}

// refused: a server that declares no tools need not know the method, and many
// that have resources do not know of templates.
func (l *listing) refused(e *mcp.Error, h *hello) error {
	optional := l.of == templates || !h.has(l.capability, "")
	if e.Code == mcp.CodeMethodNotFound && optional && len(l.items) == 0 {
		return nil
	}
	return broken("%s was refused with code %d: %s", l.method, e.Code, escape([]byte(e.Message)))
}

// page takes one page and returns its nextCursor, nil where there is none.
func (l *listing) page(result jsontext.Value) (next jsontext.Value, err error) {
	members, err := mcp.Split(result)
	if err != nil {
		return nil, broken("the result of %s is not an object", l.method)
	}
	if kind := mcp.Get(members, "resultType"); kind != nil && string(kind) != `"complete"` {
		return nil, broken("%s has a result that is not complete", l.method)
	}
	items, err := mcp.Elements(mcp.Get(members, l.member))
	if err != nil {
		return nil, broken("the result of %s holds no array of %s", l.method, l.many)
	}
	if l.bytes += len(result); l.bytes > mostBytes {
		l.partial = fmt.Sprintf("its list is longer than %d bytes", mostBytes)
		return nil, nil
	}
	for _, raw := range items {
		if len(l.items) == l.of.most() {
			l.partial = fmt.Sprintf("it offers more than %d %s", l.of.most(), l.many)
			return nil, nil
		}
		l.add(raw)
	}
	if next = mcp.Get(members, "nextCursor"); next != nil && next.Kind() == 'n' {
		next = nil
	}
	return next, nil
}

func (l *listing) add(raw jsontext.Value) {
	members, err := mcp.Split(raw)
	if err != nil {
		l.leave(raw, "its definition is not an object")
		return
	}
	d, err := l.define(raw, members)
	if err != nil {
		l.leave(raw, err.Error())
		return
	}
	if _, ok := l.byName[d.Name]; ok {
		l.leave(raw, "its "+l.identity+" occurs twice; the first one counts")
		return
	}
	l.byName[d.Name] = len(l.items)
	l.items = append(l.items, d)
}

func (l *listing) leave(raw jsontext.Value, why string) {
	const most = 100 // one line each, but not without end
	if len(l.left) < most {
		l.left = append(l.left, l.one+" "+quoted(raw, l.identity)+" is left out: "+why)
	}
}
