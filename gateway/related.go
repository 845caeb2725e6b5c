package gateway

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// renameRelated gives the task that an object's _meta names another id: what
// belongs to a task names it there (MCP 2025-11-25, tasks), and the server and
// the client know it by different ones. nil for an id takes the name out.
func renameRelated(object jsontext.Value, rename func(id string) jsontext.Value) (jsontext.Value, error) {
	if !bytes.Contains(object, []byte(mcp.MetaRelatedTask)) {
		return object, nil
	}
	related := mcp.Find(mcp.Find(object, "_meta"), mcp.MetaRelatedTask)
	if related == nil {
		return object, nil
	}
	set := mcp.Set{Name: mcp.MetaRelatedTask}
	if id, ok := mcp.Text(mcp.Find(related, "taskId")); ok {
		if to := rename(id); to != nil {
			renamed, err := mcp.Edit(related, mcp.Set{Name: "taskId", Value: to})
			if err != nil {
				return nil, err
			}
			set.Value = renamed
		}
	}
	return mcp.EditMeta(object, set)
}

// exposeRelated words params of a server's message for the client. A task that
// the session has not started is not named to it.
func (c *conversation) exposeRelated(server string, params jsontext.Value) (jsontext.Value, error) {
	return renameRelated(params, func(id string) jsontext.Value {
		if t, ok := c.task(server, id); ok {
			return c.g.taskID(c.principal, t, id)
		}
		return nil
	})
}

// restoreRelated words the result of a client's answer for the server.
func (c *conversation) restoreRelated(result jsontext.Value) (jsontext.Value, error) {
	return renameRelated(result, func(id string) jsontext.Value {
		if ref, ok := c.g.openTask(c.principal, id); ok {
			return mcp.String(ref.ID)
		}
		return nil
	})
}
