package mcp

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// Task is the params of what names one task: the requests tasks/get,
// tasks/result, tasks/cancel and tasks/update, and the notifications
// notifications/tasks/status and notifications/tasks.
type Task struct {
	ID    string // any text
	Retry        // tasks/update brings InputResponses

	params jsontext.Value
}

// ReadTask reads the params of what names a task, on the terms of ReadCall.
func ReadTask(params jsontext.Value) (*Task, *Error) {
	fields, e := Fields(params, "params", "taskId", "inputResponses", "requestState", "_meta")
	if e != nil {
		return nil, e
	}
	id, ok := Text(fields[0])
	if !ok {
		return nil, NewError(CodeInvalidParams, "params.taskId must be a string")
	}
	retry, e := readRetry(fields[1], fields[2])
	if e != nil {
		return nil, e
	}
	return &Task{ID: id, Retry: retry, params: params}, nil
}

// Params is Call.Params for a task.
func (t *Task) Params(id string, sets ...Set) jsontext.Value {
	return replace(t.params, "taskId", String(id), sets)
}

// StartedTask is a result that says that a task was started in place of the
// answer.
type StartedTask struct {
	ID string // as the server knows the task

	result, task jsontext.Value // task is nil where the result itself describes it
}

// ReadStartedTask reads a result that a server of the given era gave, part of a
// parsed message. It returns nil where the result tells of no task. It fails
// where the result is no object, or tells of a task without a taskId that is a
// string, or with a name that differs from it only in case. In the legacy era a member task that is an object tells of one; so it
// is for answers to requests that asked for a task.
func ReadStartedTask(era Era, result jsontext.Value) (*StartedTask, error) {
	kind, err := ReadResultType(result)
	if err != nil {
		return nil, err
	}
	t := &StartedTask{result: result}
	described := result
	if era == Modern {
		if kind != "task" {
			return nil, nil
		}
	} else {
		if t.task = find(result, "task"); t.task.Kind() != '{' {
			return nil, nil
		}
		described = t.task
	}
	fields, e := Fields(described, "the task", "taskId", "status")
	if e != nil {
		return nil, errors.New(e.Message)
	}
	var ok bool
	if t.ID, ok = Text(fields[0]); !ok {
		return nil, errors.New("the task that the result tells of has no taskId that is a string")
	}
	return t, nil
}

// Result returns the result for a client that knows the task as id: the
// server's with the id and what else sets says changed, and every other byte as
// it was. The result does not alias the server's bytes.
func (t *StartedTask) Result(id string, sets ...Set) jsontext.Value {
	if t.task == nil {
		return replace(t.result, "taskId", String(id), sets)
	}
	return replace(t.result, "task", replace(t.task, "taskId", String(id), nil), sets)
}
