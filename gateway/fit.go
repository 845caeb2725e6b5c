package gateway

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// fit makes a server's answer the client's: what belongs to another era or
// another leg is put right, and what asks the client for input is judged.
func (x *exchange) fit(now pinned, t target, u *use, m *mcp.Message) *fault {
	if m.Result == nil {
		return x.fitError(t, m)
	}
	kind, err := mcp.ReadResultType(m.Result)
	if err != nil {
		return faultBackend(t.server, "broken", "server "+t.server+" sent a result that is not an object", err)
	}
	if kind == "input_required" {
		return x.fitInput(t, u, m)
	}
	var sets []mcp.Set
	if x.era == mcp.Modern {
		if kind == "" {
			sets = append(sets, mcp.Set{Name: "resultType", Value: mcp.String("complete")})
		}
		if u.method == mcp.MethodResourcesRead {
			// The policy let this principal read it and says nothing of others.
			sets = append(sets, mcp.Set{Name: "cacheScope", Value: mcp.String("private")})
			if mcp.Find(m.Result, "ttlMs") == nil {
				sets = append(sets, mcp.Set{Name: "ttlMs", Value: jsontext.Value(listTTL)})
			}
		}
	}
	if len(sets) > 0 {
		if m.Result, err = mcp.Edit(m.Result, sets...); err != nil {
			return faultInternal(err)
		}
	}
	return x.fitTask(now, t, u, m)
}

// fitTask seals the ids of tasks in a result. Only the protocol's own places
// count: what a tool says of its own is not touched.
func (x *exchange) fitTask(now pinned, t target, u *use, m *mcp.Message) *fault {
	seal := func(id string) jsontext.Value { return x.g.taskID(x.principal.Key(), t, id) }
	if x.msg.Method == mcp.MethodToolsCall && (x.era == mcp.Modern || u.asksTask) {
		started, err := mcp.ReadStartedTask(now.catalog.era(t.server), m.Result)
		if err != nil {
			return faultBackend(t.server, "broken", "server "+t.server+" started a task in a way that makes no sense", err)
		}
		if started != nil {
			if x.talk != nil {
				x.talk.starts(t, started.ID)
			}
			id, _ := mcp.Text(seal(started.ID))
			m.Result = started.Result(id)
			return nil
		}
	}
	rename := renameRelated
	if strings.HasPrefix(x.msg.Method, "tasks/") && x.msg.Method != mcp.MethodTasksResult {
		rename = renameTask
	}
	result, err := rename(m.Result, seal)
	if err != nil {
		return faultInternal(err)
	}
	m.Result = result
	if x.msg.Method == mcp.MethodTasksGet && mcp.Find(m.Result, "inputRequests") != nil {
		return x.judgeInput(t, m.Result, nil)
	}
	return nil
}

// inputWait is how long the client has to bring what a server asked for.
const inputWait = 30 * time.Minute

// stateParts is what the state of a request is bound to.
func (x *exchange) stateParts(t target, u *use) []string {
	return []string{x.principal.Key(), u.method, t.server, t.own}
}

// openState gives the server's state back for the one that the client brought.
// It is sealed because a server knows all principals as one, the gateway, so
// that it could not tell whose state it gets.
func (x *exchange) openState(t target, u *use) (string, *fault) {
	state, err := x.g.seals.openFor(sealState, u.retry.RequestState, x.stateParts(t, u)...)
	if err != nil {
		f := faultRPC(http.StatusOK, codeMalformed, mcp.NewError(mcp.CodeInvalidParams,
			"params.requestState is not valid for this request any more: begin again without it"))
		f.cause = err
		return "", f
	}
	return string(state), nil
}

// fitInput passes a server's wish for input on, if the client can and may be
// asked each of its questions.
func (x *exchange) fitInput(t target, u *use, m *mcp.Message) *fault {
	if x.era == mcp.Legacy {
		// The bridge between the eras' ways to ask the client belongs here.
		return faultInput(t.server)
	}
	wish := &mcp.InputRequired{}
	if f := x.judgeInput(t, m.Result, wish); f != nil {
		return f
	}
	if !wish.HasState {
		return nil
	}
	sealed := x.g.seals.sealFor(inputWait, sealState, []byte(wish.RequestState), x.stateParts(t, u)...)
	result, err := mcp.Edit(m.Result, mcp.SetRequestState(sealed))
	if err != nil {
		return faultInternal(err)
	}
	m.Result = result
	return nil
}

// judgeInput reads what a result asks the client for, into wish unless that is
// nil, and has the policy judge each question.
func (x *exchange) judgeInput(t target, result jsontext.Value, wish *mcp.InputRequired) *fault {
	read, err := mcp.ReadInputRequired(result)
	if err != nil {
		return faultBackend(t.server, "broken", "server "+t.server+" asks for input in a way that makes no sense", err)
	}
	judge := x.judge()
	for _, r := range read.Requests {
		if !mcp.Supports(x.meta.Capabilities, r.Method, r.Params) {
			return faultBackend(t.server, "broken", "server "+t.server+" asks for "+r.Method+", which the client does not support", nil)
		}
		if v := judge.asks(x.ctx, r.Method, t, r.Params); !v.allowed {
			if v.record == nil {
				return faultNotReady(cmp.Or(v.code, codePolicyNotReady))
			}
			return faultDenied(v.record.ID, v.record.Reasons)
		}
	}
	if wish != nil {
		*wish = *read
	}
	return nil
}

// faultInput is the answer where a server asks a client of the legacy era for
// input in the way of the modern one.
func faultInput(server string) *fault {
	return faultBackend(server, "broken", "server "+server+" asks for input, which this client's protocol revision cannot give to it", nil)
}

// fitError makes a server's error one of the client's era.
func (x *exchange) fitError(t target, m *mcp.Message) *fault {
	e := m.Err()
	switch {
	case x.era == mcp.Legacy && e.Code == mcp.CodeMissingCapability:
		return faultInput(t.server)
	case x.era == mcp.Modern && e.Code == mcp.CodeResourceNotFound:
		return x.editError(m, mcp.Set{Name: "code", Value: jsontext.Value(strconv.Itoa(mcp.CodeInvalidParams))})
	case x.era == mcp.Legacy && e.Code == mcp.CodeURLElicitation && x.server == "":
		return x.fitElicitations(t, m)
	}
	return nil
}

func (x *exchange) editError(m *mcp.Message, sets ...mcp.Set) *fault {
	edited, err := mcp.Edit(m.Error, sets...)
	if err != nil {
		return faultInternal(err)
	}
	m.Error = edited
	return nil
}

// fitElicitations makes the ids in a URL elicitation error (MCP 2025-11-25) the
// client's.
func (x *exchange) fitElicitations(t target, m *mcp.Message) *fault {
	data := mcp.Find(m.Error, "data")
	list, err := mcp.Elements(mcp.Find(data, "elicitations"))
	if err != nil {
		return nil // not what it says it is: passed as any other error
	}
	out := []byte{'['}
	for i, one := range list {
		if i > 0 {
			out = append(out, ',')
		}
		exposed, err := exposeElicitation(one, t.server)
		if err != nil {
			exposed = one
		}
		out = append(out, exposed...)
	}
	edited, err := mcp.Edit(data, mcp.Set{Name: "elicitations", Value: append(out, ']')})
	if err != nil {
		return faultInternal(err)
	}
	return x.editError(m, mcp.Set{Name: "data", Value: edited})
}

// statusOf is the HTTP status of an answer: 200, but for what the modern era says
// of some errors.
func (x *exchange) statusOf(m *mcp.Message) int {
	if x.era != mcp.Modern || m.Error == nil {
		return http.StatusOK
	}
	switch m.Err().Code {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeMissingCapability, mcp.CodeHeaderMismatch:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
