package gateway

import (
	"bytes"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// fit makes a server's answer the client's: what belongs to another era or
// another leg is put right, and what asks the client for input is judged.
func (x *exchange) fit(t target, u *use, m *mcp.Message) *fault {
	if m.Result == nil {
		return x.fitError(t, m)
	}
	kind, err := mcp.ReadResultType(m.Result)
	if err != nil {
		return faultBackend(t.server, "broken", "server "+t.server+" sent a result that is not an object", err)
	}
	if kind == mcp.ResultInputRequired {
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
			if !mcp.Has(m.Result, "ttlMs") {
				sets = append(sets, mcp.Set{Name: "ttlMs", Value: jsontext.Value(listTTL)})
			}
		}
	}
	if len(sets) > 0 {
		if m.Result, err = mcp.Edit(m.Result, sets...); err != nil {
			return faultInternal(err)
		}
	}
	if u.task && (kind == "task" || u.method != mcp.MethodToolsCall || bytes.Contains(m.Result, []byte(`"taskId"`))) {
		return x.fitTask(t, u, kind, m)
	}
	return nil
}

// fitTask seals the ids of tasks in a result. In that of a plain call only the
// reserved places count: what a tool says of its own is not touched.
func (x *exchange) fitTask(t target, u *use, kind string, m *mcp.Message) *fault {
	starts := u.method == mcp.MethodToolsCall && (kind == "task" || mcp.Has(x.msg.Params, "task"))
	var err error
	seal := func(id string) jsontext.Value {
		if starts && x.talk != nil {
			x.talk.started(t, id)
		}
		return x.g.taskID(x.principal.Key(), t, id)
	}
	switch {
	case starts, u.method == mcp.MethodTasksGet, u.method == mcp.MethodTasksCancel, u.method == mcp.MethodTasksUpdate:
		m.Result, err = sealTasks(m.Result, seal)
	default:
		m.Result, err = sealMeta(m.Result, seal)
	}
	if err != nil {
		return faultInternal(err)
	}
	return nil
}

// inputWait is how long the client has to bring what a server asked for.
const inputWait = 30 * time.Minute

const sealState = "request state"

// stateParts is what the state of a request is bound to.
func (x *exchange) stateParts(t target, u *use) []string {
	return []string{x.principal.Key(), u.method, t.server, t.own}
}

// openState gives the server's state back for the one that the client brought.
// It is sealed because a server knows all principals as one, the gateway, so
// that it could not tell whose state it gets.
func (x *exchange) openState(t target, u *use) (string, *fault) {
	state, err := x.g.seals.openFor(sealState, u.state, x.stateParts(t, u)...)
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
		return faultBackend(t.server, "broken", "server "+t.server+" asks for input, which this client's protocol revision cannot give to it", nil)
	}
	wish, err := mcp.ReadInputRequired(m.Result)
	if err != nil {
		return faultBackend(t.server, "broken", "server "+t.server+" asks for input in a way that makes no sense", err)
	}
	judge := x.judge()
	for _, r := range wish.Requests {
		if !mcp.Has(x.meta.Capabilities, askCapability[r.Method]) {
			return faultBackend(t.server, "broken", "server "+t.server+" asks for "+r.Method+", which the client does not support", nil)
		}
		if v := judge.asks(x.ctx, r.Method, t, r.Params); !v.allowed {
			if v.record == nil {
				return faultNotReady(codePolicyNotReady)
			}
			return faultDenied(v.record.ID, v.record.Reasons)
		}
	}
	if wish.State == "" {
		return nil
	}
	sealed := x.g.seals.sealFor(inputWait, sealState, []byte(wish.State), x.stateParts(t, u)...)
	result, e := mcp.Edit(m.Result, mcp.Set{Name: "requestState", Value: mcp.String(sealed)})
	if e != nil {
		return faultInternal(e)
	}
	m.Result = result
	return nil
}

// fitError makes a server's error one of the client's era.
func (x *exchange) fitError(t target, m *mcp.Message) *fault {
	e := mcp.ReadError(m.Error)
	switch {
	case x.era == mcp.Legacy && e.Code == mcp.CodeMissingCapability:
		return faultBackend(t.server, "broken", "server "+t.server+" asks for input, which this client's protocol revision cannot give to it", nil)
	case x.era == mcp.Modern && e.Code == mcp.CodeResourceNotFound:
		return x.editError(m, mcp.Set{Name: "code", Value: mcp.Number(mcp.CodeInvalidParams)})
	case x.era == mcp.Legacy && e.Code == mcp.CodeElicitationRequired && x.server == "":
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

// status is the HTTP status of an answer: 200, but for what the modern era says
// of some errors.
func (x *exchange) statusOf(m *mcp.Message) int {
	if x.era != mcp.Modern || m.Error == nil {
		return http.StatusOK
	}
	switch mcp.ReadError(m.Error).Code {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeMissingCapability, mcp.CodeHeaderMismatch:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
