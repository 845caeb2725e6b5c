package fleet_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func (f *fleet) url(n int) string { return f.replicas[n%len(f.replicas)].URL }

// TestAnyReplica has a session opened at one replica used at the others, where
// each makes its own session with the server.
func TestAnyReplica(t *testing.T) {
	f := newFleet(t, 3)
	c := open(t, f.url(0), f.token(t, "ann"))
	if got := c.call(f.url(1), "old__echo", "ann", "ann 1").said(); got != "ann 1" {
		t.Errorf("a call at another replica: %s", got)
	}
	if got := c.call(f.url(2), "old__echo", "ann", "ann 2").said(); got != "ann 2" {
		t.Errorf("a call at the third: %s", got)
	}
	if got := c.call(f.url(1), "new__echo", "ann", "ann 3").said(); got != "ann 3" {
		t.Errorf("a call of the other server: %s", got)
	}
	if got := f.old.sessionsOf("ann"); len(got) != 2 {
		t.Errorf("%d sessions with the server carried the calls, want one for each of two replicas", len(got))
	}
	// The pages of one list come from all replicas.
	var names []string
	params := object{}
	for page := range 10 {
		r := c.do(f.url(page), "tools/list", params)
		var list struct {
			Tools      []struct{ Name string }
			NextCursor string
		}
		if err := json.Unmarshal(r.message.Result, &list); err != nil {
			t.Fatalf("page %d: %v: %d %+v", page, err, r.status, r.message.Error)
		}
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if list.NextCursor == "" {
			break
		}
		params["cursor"] = list.NextCursor
	}
	want := []string{"new__ask", "new__echo", "new__slow", "new__start", "old__ask", "old__echo", "old__slow", "old__start"}
	if !slices.Equal(names, want) {
		t.Errorf("the list over three replicas is %v, want %v", names, want)
	}
}

// TestTaskAtAnyReplica starts a task at one replica and asks others for it.
func TestTaskAtAnyReplica(t *testing.T) {
	f := newFleet(t, 2)
	c, foreign := open(t, f.url(0), f.token(t, "ann")), open(t, f.url(1), f.token(t, "bob"))
	r := c.do(f.url(0), "tools/call", object{
		"name": "old__start", "task": object{"ttl": 60000}, "arguments": object{"owner": "ann", "mark": "ann 1"},
	})
	var started struct{ Task struct{ TaskID string } }
	if err := json.Unmarshal(r.message.Result, &started); err != nil || started.Task.TaskID == "" {
		t.Fatalf("starting a task: %v: %s %+v", err, r.message.Result, r.message.Error)
	}
	id := started.Task.TaskID
	r = c.do(f.url(1), "tasks/get", object{"taskId": id})
	var is struct{ TaskID, Status string }
	if err := json.Unmarshal(r.message.Result, &is); err != nil || is.Status != "completed" || is.TaskID == "" {
		t.Errorf("tasks/get at another replica: %v: %s %+v", err, r.message.Result, r.message.Error)
	}
	if got := c.do(f.url(1), "tasks/result", object{"taskId": id}).said(); got != "task of ann 1" {
		t.Errorf("tasks/result at another replica: %s", got)
	}
	for n := range 2 {
		if r := foreign.do(f.url(n), "tasks/result", object{"taskId": id}); r.message.Error == nil || r.message.Error.Code != -32602 {
			t.Errorf("somebody else's tasks/result at replica %d: %s", n, r.said())
		}
	}
}

// modern is a request of the modern era.
func (c *client) modern(base, method, name string, params object) reply {
	params["_meta"] = object{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": object{"elicitation": object{}},
	}
	headers := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	return c.do(base, method, params, headers...)
}

// TestStateAtAnyReplica brings the state of a request to another replica than
// gave it.
func TestStateAtAnyReplica(t *testing.T) {
	f := newFleet(t, 2)
	ann, bob := &client{token: f.token(t, "ann")}, &client{token: f.token(t, "bob")}
	ask := func(state string) object {
		o := object{"name": "new__ask", "arguments": object{"owner": "ann", "mark": "ann 1"}}
		if state != "" {
			o["requestState"] = state
			o["inputResponses"] = object{"it": object{"action": "accept", "content": object{}}}
		}
		return o
	}
	r := ann.modern(f.url(0), "tools/call", "new__ask", ask(""))
	var wish struct{ ResultType, RequestState string }
	if err := json.Unmarshal(r.message.Result, &wish); err != nil || wish.ResultType != "input_required" || wish.RequestState == "" {
		t.Fatalf("asked for input: %v: %s %+v", err, r.message.Result, r.message.Error)
	}
	if strings.Contains(wish.RequestState, "state of") {
		t.Errorf("the state is the server's own: %s", wish.RequestState)
	}
	if r := bob.modern(f.url(1), "tools/call", "new__ask", ask(wish.RequestState)); r.message.Error == nil || r.message.Error.Code != -32602 {
		t.Errorf("somebody else's state: %s", r.said())
	}
	if got := ann.modern(f.url(1), "tools/call", "new__ask", ask(wish.RequestState)).said(); got != "ann 1state of ann 1" {
		t.Errorf("the state at another replica: %s", got)
	}
}

// TestSessionEndsEverywhere has sessions used by somebody else, and ended.
func TestSessionEndsEverywhere(t *testing.T) {
	f := newFleet(t, 3)
	ann := open(t, f.url(0), f.token(t, "ann"))
	bob := &client{token: f.token(t, "bob"), session: ann.session}
	gone := func(who string, c *client) {
		t.Helper()
		for n := range f.replicas {
			if r := c.do(f.url(n), "ping", object{}); r.status != http.StatusNotFound {
				t.Errorf("%s at replica %d: status %d, want 404", who, n, r.status)
			}
		}
	}
	gone("somebody else's session", bob)
	if r := bob.send(http.MethodDelete, f.url(1), nil); r.status != http.StatusNotFound {
		t.Errorf("ending somebody else's session: status %d, want 404", r.status)
	}
	for n := range f.replicas {
		if r := ann.do(f.url(n), "ping", object{}); r.status != http.StatusOK {
			t.Errorf("a session that somebody else tried to end, at replica %d: status %d", n, r.status)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := ann.listen(ctx, f.url(2))
	if err != nil {
		t.Fatal(err)
	}
	if r := ann.send(http.MethodDelete, f.url(1), nil); r.status != http.StatusNoContent {
		t.Errorf("DELETE: status %d, want 204", r.status)
	}
	gone("a session that was ended", ann)
	select {
	case _, open := <-stream:
		if open {
			t.Error("something was told on the stream of a session that was ended elsewhere")
		}
	case <-time.After(10 * time.Second):
		t.Error("the stream of a session that was ended elsewhere is open after 10s, and after its use there")
	}
}

// TestAnotherKey has one replica with another key than the others: its sessions
// are its own, and theirs are theirs.
func TestAnotherKey(t *testing.T) {
	f := newFleet(t, 2)
	other := object{}
	for k, v := range f.config {
		other[k] = v
	}
	other["sessions"] = object{"redis": object{"url": "redis://" + f.store.Addr}, "key": otherKey}
	odd := f.start(t, "odd", other)
	token := f.token(t, "ann")
	theirs, its := open(t, f.url(0), token), open(t, odd.URL, token)
	for _, k := range []struct {
		what string
		c    *client
		at   string
		want int
	}{
		{"a session of the fleet's at the odd replica", theirs, odd.URL, http.StatusNotFound},
		{"a session of the odd replica's at the fleet", its, f.url(1), http.StatusNotFound},
		{"a session of the fleet's", theirs, f.url(1), http.StatusOK},
		{"a session of the odd replica's", its, odd.URL, http.StatusOK},
	} {
		if r := k.c.do(k.at, "ping", object{}); r.status != k.want {
			t.Errorf("%s: status %d, want %d", k.what, r.status, k.want)
		}
	}
	if got := odd.Status(); got != "ready" {
		t.Errorf("the odd replica is %q", got)
	}
}
