package upstream

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry"
)

// Bounds of one server's list, beyond those of one response. The largest real
// servers offer some hundred tools.
const (
	mostPages = 500
	mostTools = 10_000
	mostBytes = 64 << 20
)

// listing is the reading of one server's tools, page by page.
type listing struct {
	server string
	http   bool // in the modern era, over HTTP
	tools  []Definition
	byName map[string]int
	bytes  int
	// partial says why the list did not come to an end, where trying again
	// would not help; what came before it counts. "" is a whole list.
	partial string
	left    []string // what was left out and why, safe for a log
}

// read reads all pages. The error is that of a request or of an answer that
// makes no sense; then nothing that was read counts.
func (l *listing) read(ctx context.Context, from link, h *hello) error {
	l.byName = map[string]int{}
	seen := map[string]bool{}
	var params jsontext.Value
	for range mostPages {
		m, err := from.call(ctx, request{method: mcp.MethodToolsList, params: params})
		if err != nil {
			return err
		}
		if m.Error != nil {
			return l.refused(readError(m.Error), h)
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

// refused: a server that declares no tools need not know the method.
func (l *listing) refused(e *mcp.Error, h *hello) error {
	if e.Code == mcp.CodeMethodNotFound && !h.has("tools", "") {
		return nil
	}
	return broken("%s was refused with code %d: %s", mcp.MethodToolsList, e.Code, escape([]byte(e.Message)))
}

// page takes one page and returns its nextCursor, nil where there is none.
func (l *listing) page(result jsontext.Value) (next jsontext.Value, err error) {
	members, err := mcp.Split(result)
	if err != nil {
		return nil, broken("the result of %s is not an object", mcp.MethodToolsList)
	}
	if kind := mcp.Get(members, "resultType"); kind != nil && string(kind) != `"complete"` {
		return nil, broken("%s has a result that is not complete", mcp.MethodToolsList)
	}
	tools, err := mcp.Elements(mcp.Get(members, "tools"))
	if err != nil {
		return nil, broken("the result of %s holds no array of tools", mcp.MethodToolsList)
	}
	if l.bytes += len(result); l.bytes > mostBytes {
		l.partial = fmt.Sprintf("its list is longer than %d bytes", mostBytes)
		return nil, nil
	}
	for _, raw := range tools {
		if len(l.tools) == mostTools {
			l.partial = fmt.Sprintf("it offers more than %d tools", mostTools)
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
	d, err := define(raw, l.valid, l.http)
	if err != nil {
		l.leave(raw, err.Error())
		return
	}
	if _, ok := l.byName[d.Name]; ok {
		l.leave(raw, "its name occurs twice; the first one counts")
		return
	}
	l.byName[d.Name] = len(l.tools)
	l.tools = append(l.tools, d)
}

// valid: a name must be one by itself and together with its server's.
func (l *listing) valid(name string) bool {
	_, ok := registry.Exposed(l.server, name)
	return ok
}

func (l *listing) leave(raw jsontext.Value, why string) {
	const most = 100 // one line each, but not without end
	if len(l.left) < most {
		l.left = append(l.left, "tool "+nameOf(raw)+" is left out: "+why)
	}
}
