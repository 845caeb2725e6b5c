package gateway_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// starter is a server that starts the tasks t1, t2 and so on, and lists what it
// is set to.
func starter(list func() jsontext.Value) *world.Server {
	s := &world.Server{Name: "starter", Era: mcp.Legacy, Tells: true, Tools: []jsontext.Value{tool("go")}}
	s.Capabilities = jsontext.Value(`{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`)
	var n atomic.Int64
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		switch x.Method {
		case "tools/call":
			return jsontext.Value(fmt.Sprintf(`{"task":{"taskId":"t%d","status":"working"}}`, n.Add(1))), nil
		case "tasks/get":
			return jsontext.Value(fmt.Sprintf(`{"taskId":%s,"status":"working"}`, mcp.Find(x.Params, "taskId"))), nil
		case "tasks/list":
			return list(), nil
		}
		return nil, nil
	}
	return s
}

const startTask = `{"name":"starter__go","arguments":{},"task":{}}`

// TestAListOfTasksIsAsLongAsThereAreTasks has a server repeat two of them on
// every page, and never come to an end.
func TestAListOfTasksIsAsLongAsThereAreTasks(t *testing.T) {
	page := `{"tasks":[` + strings.Repeat(`{"taskId":"t1"},{"taskId":"t2"},`, 10_000) + `{"taskId":"x"}],"nextCursor":"more"}`
	s := starter(func() jsontext.Value { return jsontext.Value(page) })
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	p.do("tools/call", startTask)
	p.do("tools/call", startTask)
	g.Records.Forget()
	from := time.Now()
	_, answer := p.do("tasks/list", `{}`)
	if took := time.Since(from); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if got := sealedTask.ReplaceAllString(answer, `"taskId":"ID"`); got != `{"tasks":[{"taskId":"ID"},{"taskId":"ID"}]}` {
		t.Errorf("the list is %.300s", got)
	}
	if n := len(s.Got("tasks/list")); n != 10 {
		t.Errorf("%d pages were read, want 10", n)
	}
	eventually(t, "the decisions are on record", func() bool { return len(g.Records.All()) > 0 })
	var asked []string
	for _, r := range g.Records.All() {
		asked = append(asked, r.Method+" "+r.Thing().Name)
	}
	if got := strings.Join(asked, ", "); got != "tasks/list go, tasks/list go" {
		t.Errorf("the policy was asked %s", got)
	}
}

// TestTheOldestTaskIsForgotten starts one more than a session is told of by
// itself.
func TestTheOldestTaskIsForgotten(t *testing.T) {
	const most = 256
	var all []string
	for i := range most + 1 {
		all = append(all, fmt.Sprintf(`{"taskId":"t%d","number":%d}`, i+1, i+1))
	}
	s := starter(func() jsontext.Value { return jsontext.Value(`{"tasks":[` + strings.Join(all, ",") + `]}`) })
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	own := p.get("")
	numbers := func() string {
		t.Helper()
		_, answer := p.do("tasks/list", `{}`)
		tasks, err := mcp.Elements(mcp.Find(jsontext.Value(answer), "tasks"))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("the list is %.300s", answer)
		}
		return fmt.Sprintf("%d from %s to %s", len(tasks), mcp.Find(tasks[0], "number"), mcp.Find(tasks[len(tasks)-1], "number"))
	}
	_, answer := p.do("tools/call", startTask)
	oldest, _ := taskOf(t, answer)
	for range most - 1 {
		p.do("tools/call", startTask)
	}
	if got := numbers(); got != "256 from 1 to 256" {
		t.Errorf("the list has %s", got)
	}
	p.do("tools/call", startTask)
	if got := numbers(); got != "256 from 2 to 257" {
		t.Errorf("with one more the list has %s", got)
	}
	eventually(t, "the server can tell", func() bool { return s.Streams() >= 1 })
	s.Say("notifications/tasks/status", jsontext.Value(`{"taskId":"t1","status":"completed"}`))
	own.quiet("that one is forgotten")
	s.Say("notifications/tasks/status", jsontext.Value(`{"taskId":"t257","status":"completed"}`))
	if _, rest := taskOf(t, own.next()); rest != `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"ID","status":"completed"}}` {
		t.Errorf("told %s", rest)
	}
	_, answer = p.do("tasks/get", `{"taskId":"`+oldest+`"}`)
	if _, rest := taskOf(t, answer); rest != `{"taskId":"ID","status":"working"}` {
		t.Errorf("asking for the oldest: %s", answer)
	}
}
