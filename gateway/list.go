package gateway

import (
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
)

// listTools answers tools/list. The list is built from the catalog and the
// decision; a backend's bytes never pass through whole.
func (x *exchange) listTools() *fault {
	params, err := mcp.ReadList(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	view := now.catalog.route(x.server)
	offset := 0
	if params.HasCursor {
		if offset, f = x.openCursor(params.Cursor, now); f != nil {
			return f
		}
	}
	visible, f := x.see(now, view)
	if f != nil {
		return f
	}
	size := x.g.config.PageSize
	page := visible
	next := ""
	if offset > len(page) {
		offset = len(page)
	}
	page = page[offset:]
	if len(page) > size {
		page = page[:size]
		next = x.g.cursors.seal(offset+size, x.cursorParts(now)...)
	}
	x.reply(x.listBody(page, next))
	return nil
}

// see asks the policy which tools of the view the principal may see, and
// records the question. A list that is not decided to its end is none: clients
// keep what they get, so that a part of it would hide the rest for long.
func (x *exchange) see(now pinned, view view) ([]*tool, *fault) {
	from := time.Now()
	request := x.request()
	decisions, unfinished := now.policy.AllowEach(x.ctx, x.subject, view.items, methodCall, request)
	measure(&x.stages.policy, from)
	if unfinished != "" {
		x.recordUnfinished(now, request, decisions, unfinished)
		return nil, faultNotReady(unfinished)
	}
	visible := make([]*tool, 0, len(view.tools))
	for i, d := range decisions {
		if d.Allowed {
			visible = append(visible, view.tools[i])
		}
	}
	x.recordList(now, request, view, decisions)
	return visible, nil
}

// methodCall is the method that each tool of a list is asked with: the one
// that uses it.
const methodCall = "tools/call"

func (x *exchange) openCursor(cursor string, now pinned) (int, *fault) {
	offset, err := x.g.cursors.open(cursor, x.cursorParts(now)...)
	if err != nil {
		return 0, faultRPC(200, codeMalformed, mcp.NewError(mcp.CodeInvalidParams, err.Error()))
	}
	return offset, nil
}

func (x *exchange) cursorParts(now pinned) []string {
	return []string{x.principal.Key(), x.routePath(), now.policy.Revision(), now.catalog.revision}
}

// listBody puts the page together from bytes that were encoded when the tools
// were discovered.
func (x *exchange) listBody(page []*tool, next string) []byte {
	size := 256 + len(next)
	for _, t := range page {
		size += len(t.bytes(x.server)) + 1
	}
	out := make([]byte, 0, size)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.msg.ID.Raw()...)
	out = append(out, `,"result":{"tools":[`...)
	for i, t := range page {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, t.bytes(x.server)...)
	}
	out = append(out, ']')
	if next != "" {
		out = mcp.AppendString(append(out, `,"nextCursor":`...), next)
	}
	if x.era == mcp.Modern {
		out = append(out, `,"resultType":"complete","ttlMs":`+listTTL+`,"cacheScope":"private"`...)
	}
	return append(out, `}}`...)
}

// bytes is the tool's definition as the route shows it.
func (t *tool) bytes(server string) []byte {
	if server == "" {
		return t.aggregate
	}
	return t.own
}

// pinned is what one request decides on: it never sees half of a change.
type pinned struct {
	policy  *policy.Snapshot
	catalog *catalog
}

// pin takes the current policy and catalog, or says why there is no deciding.
// It waits only for the first catalog, which comes within settleWait.
func (x *exchange) pin() (pinned, *fault) {
	from := time.Now()
	defer func() { measure(&x.stages.registry, from) }()
	select {
	case <-x.g.known:
	case <-x.ctx.Done():
	}
	now := pinned{policy: x.g.engine.Current(), catalog: x.g.catalog.Load()}
	switch {
	case now.policy == nil:
		return now, faultNotReady(codePolicyNotReady)
	case now.catalog == nil || !x.g.keeper.Fresh(from):
		return now, faultNotReady(codeRegistryStale)
	}
	return now, nil
}
