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
	seen, f := x.see(now, list)
	if f != nil {
		return f
	}
	if !params.HasCursor {
		x.g.meter.Visible(lists[list].member, len(seen.offers))
	}
	page, next := seen.offers[min(offset, len(seen.offers)):], ""
	if size := x.g.config.PageSize; len(page) > size {
		page = page[:size]
		next = x.g.seals.cursor(offset+size, x.cursorParts(list, now)...)
	}
	items := seen.joined
	if len(page) < len(seen.offers) {
		items = func() []byte { return join(page, x.server, seen.mark) }
	}
	x.reply(x.listBody(list, items(), next))
	return nil
}

// see returns what the principal may see of a list.
func (x *exchange) see(now pinned, list listing) (*visible, *fault) {
	view := now.catalog.shelf(x.server).lists[list]
	answers, f := x.seeEach(now, lists[list].uses, view.items)
	if f != nil {
		return nil, f
	}
	return view.visible(answers, x.g.config.mark(list, now)), nil
}

// seeEach asks the policy about every item of a list, and records that as one
// question. A list that is not decided to its end is none: clients keep what
// they get, so that a part of it would hide the rest for long.
func (x *exchange) seeEach(now pinned, method string, items *policy.Items) (*policy.Answers, *fault) {
	from := time.Now()
	q := policy.Question{Method: method, Subject: x.subject, Request: x.request()}
	answers := now.policy.AllowEach(x.ctx, q.Subject, items, q.Method, q.Request)
	measure(&x.stages.policy, from)
	x.recordList(now, q, items, answers)
	if answers.Unfinished != "" {
		return nil, faultNotReady(answers.Unfinished)
	}
	return answers, nil
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

// listBody puts the page together; items are the definitions on it.
func (x *exchange) listBody(list listing, items []byte, next string) []byte {
	out := make([]byte, 0, 256+len(items)+len(next))
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.msg.ID.Raw()...)
	out = append(append(append(out, `,"result":{"`...), lists[list].member...), `":[`...)
	out = append(append(out, items...), ']')
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

// pin takes the current policy and catalog, or says why there is no deciding: a
// decision that could not be put on record is none, where that has to be.
// It waits only for the first catalog, which comes within settleWait.
func (x *exchange) pin() (pinned, *fault) {
	from := time.Now()
	defer func() { measure(&x.stages.registry, from) }()
	select {
	case <-x.g.known:
	case <-x.ctx.Done():
	}
	now, code := x.g.now(from)
	if code == "" && !x.reserve() {
		code = codeNoRecords
	}
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
