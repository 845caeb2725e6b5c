package gateway

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/upstream"
)

// taskRef is what a client's task id stands for. The id is sealed to the
// principal, so a task is nobody else's, whoever learns its id, and any replica
// knows what it is of.
type taskRef struct {
	Server string `json:"s"`
	Tool   string `json:"t"`
	ID     string `json:"i"` // the server's
}

// useTask serves the methods that ask about one task: the policy decides them
// on the tool that started it.
func (x *exchange) useTask() *fault {
	params, err := mcp.ReadTask(x.msg.Params)
	if err != nil {
		return faultParams(err)
	}
	unknown := faultUnknown("task", params.ID)
	ref, ok := x.g.openTask(x.principal.Key(), params.ID)
	if !ok || x.server != "" && x.server != ref.Server {
		return x.withoutTasks(unknown)
	}
	return x.use(&use{
		method: x.msg.Method, unknown: unknown,
		params:  func(_ string, sets ...mcp.Set) jsontext.Value { return params.Params(ref.ID, sets...) },
		targets: func(now pinned) []target { return []target{now.catalog.tool(ref.Server, ref.Tool)} },
	})
}

// withoutTasks is what is said of tasks that are not there: that there is no such
// method, as of any server that declares no tasks, where the principal knows of
// none that does; else what is given.
func (x *exchange) withoutTasks(otherwise *fault) *fault {
	if len(x.introduce().tasks(x.era)) == 0 {
		return faultMethod(x.era, x.msg.Method)
	}
	return otherwise
}

// tool finds a tool by the server's own name.
func (c *catalog) tool(server, name string) target {
	if o := c.shelf(server).lists[toolList].byName[name]; o != nil && server != "" {
		return o.target()
	}
	return target{
		server: server, own: name, name: policy.Name{Kind: policy.KindTool, Server: server, Name: name},
		item: item(policy.NewItem(policy.Tool{Server: server, Name: name})),
	}
}

func (g *Gateway) openTask(principal, id string) (ref taskRef, ok bool) {
	text, err := g.seals.open(sealTask, id, principal)
	return ref, err == nil && json.Unmarshal(text, &ref) == nil
}

// taskID is the client's id of a server's task.
func (g *Gateway) taskID(principal string, t target, id string) jsontext.Value {
	text, err := json.Marshal(taskRef{t.server, t.name.Name, id})
	if err != nil {
		panic(err) // three strings, which may be anything
	}
	return mcp.String(g.seals.seal(sealTask, text, principal))
}

// renameTask replaces the server's id in what describes a task, or tells of one, by
// the client's.
func renameTask(object jsontext.Value, rename func(id string) jsontext.Value) (jsontext.Value, error) {
	object, err := renameRelated(object, rename)
	if err != nil {
		return nil, err
	}
	id, ok := mcp.Text(mcp.Find(object, "taskId"))
	if !ok {
		return object, nil
	}
	return mcp.Edit(object, mcp.Set{Name: "taskId", Value: rename(id)})
}

// starts remembers the tool of a task, so that the session can be told of it.
func (c *conversation) starts(t target, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks == nil {
		c.tasks = map[taskKey]target{}
	}
	key := taskKey{t.server, id}
	if _, ok := c.tasks[key]; ok {
		return
	}
	if len(c.started) == mostTasks {
		delete(c.tasks, c.started[0])
		c.started = c.started[1:]
	}
	c.tasks[key], c.started = t, append(c.started, key)
}

type taskKey struct{ server, id string }

func (c *conversation) task(server, id string) (target, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.tasks[taskKey{server, id}]
	return t, ok
}

// taskStatus words a notifications/tasks/status for the client. One of a task
// that the session has not started here is told to nobody.
func (c *conversation) taskStatus(server string, m *mcp.Message) (target, *mcp.Message) {
	ref, err := mcp.ReadTask(m.Params)
	if err != nil {
		return target{}, nil
	}
	t, ok := c.task(server, ref.ID)
	if !ok {
		return target{}, nil
	}
	params, e := renameTask(m.Params, func(id string) jsontext.Value { return c.g.taskID(c.principal, t, id) })
	if e != nil {
		return target{}, nil
	}
	return t, mcp.NewRequest(mcp.ID{}, m.Method, params)
}

// mostTaskPages bounds how much of one server's tasks is read.
const mostTaskPages = 10

// listTasks answers tasks/list with those tasks that this session has started
// and whose tools the policy still allows. The servers that have no
// conversation with it have none of them.
func (x *exchange) listTasks() *fault {
	if _, err := mcp.ReadList(x.msg.Params); err != nil {
		return faultParams(err)
	}
	now, f := x.pin()
	if f != nil {
		return f
	}
	ctx, end := x.callContext()
	defer end()
	out := []byte{'['}
	seen := map[taskKey]bool{} // a server may say the same again and again
	for _, server := range x.g.pool.Open(x.talk.Key()) {
		if x.server != "" && x.server != server || !now.catalog.has(server, "tasks") {
			continue
		}
		var params jsontext.Value
		for range mostTaskPages {
			m, err := x.g.pool.Do(ctx, upstream.Call{Server: server, Peer: x.talk, Subject: x.onBehalf(), Method: x.msg.Method, Params: params})
			if err != nil || m.Result == nil {
				break
			}
			var next jsontext.Value
			out, next = x.appendTasks(out, now, server, m.Result, seen)
			if next.Kind() != '"' {
				break
			}
			params = object(mcp.Set{Name: "cursor", Value: next})
		}
	}
	if len(out) == 1 {
		if f := x.withoutTasks(nil); f != nil {
			return f
		}
	}
	x.reply(x.result(object(mcp.Set{Name: "tasks", Value: append(out, ']')})))
	return nil
}

func (x *exchange) appendTasks(out []byte, now pinned, server string, result jsontext.Value, seen map[taskKey]bool) ([]byte, jsontext.Value) {
	tasks, _ := mcp.Elements(mcp.Find(result, "tasks"))
	for _, task := range tasks {
		id, _ := mcp.Text(mcp.Find(task, "taskId"))
		t, ok := x.talk.task(server, id)
		if !ok || seen[taskKey{server, id}] {
			continue
		}
		seen[taskKey{server, id}] = true
		if !x.allowed(now, x.msg.Method, t) {
			continue
		}
		sealed, err := renameTask(task, func(id string) jsontext.Value { return x.g.taskID(x.principal.Key(), t, id) })
		if err != nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, sealed...)
	}
	return out, mcp.Find(result, "nextCursor")
}
