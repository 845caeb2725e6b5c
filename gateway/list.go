package gateway

import (
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
)

// answerList answers one of the lists. It is built from the catalog and the
// decision; a backend's bytes never pass through whole.
func (x *exchange) answerList(list listing) *fault {
	params, err := mcp.ReadList(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	offset := 0
	if params.HasCursor {
		if offset, f = x.openCursor(params.Cursor, list, now); f != nil {
			return f
		}
	}
	visible, f := x.see(now, list)
	if f != nil {
		return f
	}
	size := x.g.config.PageSize
	page := visible[min(offset, len(visible)):]
	next := ""
	if len(page) > size {
		page = page[:size]
		next = x.g.seals.cursor(offset+size, x.cursorParts(list, now)...)
	}
	x.reply(x.listBody(list, page, next))
	return nil
}

// see returns what the principal may see of a list.
func (x *exchange) see(now pinned, list listing) ([]*offer, *fault) {
	view := now.catalog.shelf(x.server).lists[list]
	name := func(i int) policy.Name { return view.offers[i].subject() }
	decisions, f := x.seeEach(now, lists[list].uses, view.items, name)
	if f != nil {
		return nil, f
	}
	visible := make([]*offer, 0, len(view.offers))
	for i, d := range decisions {
		if d.Allowed {
			visible = append(visible, view.offers[i])
		}
	}
	if x.server == "" && lists[list].kind == policy.KindResource {
		visible = firsts(visible)
	}
	return visible, nil
}

// seeEach asks the policy about every item of a list, and records that as one
// question. A list that is not decided to its end is none: clients keep what
// they get, so that a part of it would hide the rest for long.
func (x *exchange) seeEach(now pinned, method string, items *policy.Items, name func(i int) policy.Name) ([]policy.Decision, *fault) {
	from := time.Now()
	request := x.request()
	decisions, unfinished := now.policy.AllowEach(x.ctx, x.subject, items, method, request)
	measure(&x.stages.policy, from)
	if unfinished != "" {
		x.recordUnfinished(now, method, request, decisions, unfinished)
		return nil, faultNotReady(unfinished)
	}
	x.recordList(now, method, request, name, decisions)
	return decisions, nil
}

// firsts leaves one of each URI, the one that reading it would go to.
func firsts(offers []*offer) []*offer {
	seen := make(map[string]bool, len(offers))
	out := offers[:0]
	for _, o := range offers {
		if !seen[o.exposed] {
			seen[o.exposed] = true
			out = append(out, o)
		}
	}
	return out
}

func (x *exchange) openCursor(cursor string, list listing, now pinned) (int, *fault) {
	offset, err := x.g.seals.openCursor(cursor, x.cursorParts(list, now)...)
	if err != nil {
		return 0, faultRPC(200, codeMalformed, mcp.NewError(mcp.CodeInvalidParams, err.Error()))
	}
	return offset, nil
}

// cursorParts is all that a list depends on.
func (x *exchange) cursorParts(list listing, now pinned) []string {
	return []string{lists[list].method, x.principal.Key(), x.routePath(), now.policy.Revision(), now.catalog.revision}
}

// listBody puts the page together from bytes that were encoded when the offers
// were discovered.
func (x *exchange) listBody(list listing, page []*offer, next string) []byte {
	size := 256 + len(next)
	for _, o := range page {
		size += len(o.bytes(x.server)) + 1
	}
	out := make([]byte, 0, size)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.msg.ID.Raw()...)
	out = append(append(append(out, `,"result":{"`...), lists[list].member...), `":[`...)
	for i, o := range page {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, o.bytes(x.server)...)
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
	now, code := x.g.now(from)
	if code != "" {
		return now, faultNotReady(code)
	}
	return now, nil
}

// now is pin without waiting; the code says why there is no deciding.
func (g *Gateway) now(at time.Time) (now pinned, code string) {
	now = pinned{policy: g.engine.Current(), catalog: g.catalog.Load()}
	switch {
	case now.policy == nil:
		return now, codePolicyNotReady
	case now.catalog == nil || !g.keeper.Fresh(at):
		return now, codeRegistryStale
	}
	return now, ""
}
