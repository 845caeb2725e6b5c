package gateway

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// What belongs to a task names it in its _meta (MCP 2025-11-25, tasks). The
// server and the client know it by different ids.

func namesTask(v jsontext.Value) bool { return bytes.Contains(v, []byte(mcp.MetaRelatedTask)) }

// exposeRelated words params of a server's message for the client. A task that
// the session has not started is not named to it.
func (c *conversation) exposeRelated(server string, params jsontext.Value) (jsontext.Value, error) {
	if !namesTask(params) {
		return params, nil
	}
	related := mcp.Find(mcp.Find(params, "_meta"), mcp.MetaRelatedTask)
	id, _ := mcp.Text(mcp.Find(related, "taskId"))
	set := mcp.Set{Name: mcp.MetaRelatedTask}
	if t, ok := c.task(server, id); ok {
		named, err := mcp.Edit(related, mcp.Set{Name: "taskId", Value: c.g.taskID(c.principal, t, id)})
		if err != nil {
			return nil, err
		}
		set.Value = named
	}
	return mcp.EditMeta(params, set)
}

// restoreRelated words the result of a client's answer for the server.
func (c *conversation) restoreRelated(result jsontext.Value) (jsontext.Value, error) {
	if !namesTask(result) {
		return result, nil
	}
	related := mcp.Find(mcp.Find(result, "_meta"), mcp.MetaRelatedTask)
	id, _ := mcp.Text(mcp.Find(related, "taskId"))
	set := mcp.Set{Name: mcp.MetaRelatedTask}
	if ref, ok := c.g.openTask(c.principal, id); ok {
		named, err := mcp.Edit(related, mcp.Set{Name: "taskId", Value: mcp.String(ref.ID)})
		if err != nil {
			return nil, err
		}
		set.Value = named
	}
	return mcp.EditMeta(result, set)
}
