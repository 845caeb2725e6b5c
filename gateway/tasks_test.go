package gateway_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// worker is a server of one era that answers calls by tasks where that era lets
// it. All who call it share its tasks, as far as it can tell.
func worker(era mcp.Era) *world.Server {
	s := &world.Server{Name: "worker", Era: era, Tells: true, Tools: []jsontext.Value{tool("work"), tool("also")}}
	s.Capabilities = jsontext.Value(`{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`)
	if era == mcp.Modern {
		s.Capabilities = jsontext.Value(`{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	}
	const related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t 1","x":1},"y":2}`
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		id, _ := mcp.Text(mcp.Find(x.Params, "taskId"))
		switch x.Method {
		case "tools/call":
			if era == mcp.Modern {
				return jsontext.Value(`{"resultType":"task","taskId":"t 1","status":"working","ttlMs":1000}`), nil
			}
			if mcp.Find(x.Params, "task") != nil {
				return jsontext.Value(`{"task":{"taskId":"t 1","status":"working","ttl":9007199254740993},"_meta":{}}`), nil
			}
		case "tasks/get", "tasks/cancel", "tasks/update":
			if id != "t 1" {
				return nil, mcp.NewError(mcp.CodeInvalidParams, "Unknown task: "+id)
			}
			return jsontext.Value(`{"resultType":"complete","taskId":"t 1","status":"` + x.Method + `"}`), nil
		case "tasks/result":
			return jsontext.Value(`{"content":[{"type":"text","text":"t 1"}],` + related + `}`), nil
		case "tasks/list":
			return jsontext.Value(`{"tasks":[{"taskId":"t 1","status":"working"},{"taskId":"another's","status":"working"}]}`), nil
		}
		return nil, nil
	}
	return s
}

var sealedTask = regexp.MustCompile(`"taskId":"([A-Za-z0-9_-]{40,})"`)

// taskOf is the id in an answer, and the answer with ID in its place.
func taskOf(t *testing.T, answer string) (id, rest string) {
	t.Helper()
	found := sealedTask.FindStringSubmatch(answer)
	if found == nil {
		t.Fatalf("no task in %s", answer)
	}
	return found[1], sealedTask.ReplaceAllString(answer, `"taskId":"ID"`)
}

// TestTasksAreOfThoseWhoStartedThem uses a task in every way, as the principal
// that started it and as another.
func TestTasksAreOfThoseWhoStartedThem(t *testing.T) {
	s := worker(mcp.Legacy)
	g := newRig(t, nil, s)
	p, another := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "payments", able)
	later := legacy(t, g.World, "/mcp/worker", "developer", able) // another session of the same principal
	_, answer := p.do("tools/call", `{"name":"worker__work","task":{"ttl":1000}}`)
	id, rest := taskOf(t, answer)
	if want := `{"task":{"taskId":"ID","status":"working","ttl":9007199254740993},"_meta":{}}`; rest != want {
		t.Errorf("started %s, want %s", rest, want)
	}
	another.do("tools/call", `{"name":"worker__also"}`) // has a conversation with the server
	for method, want := range map[string]string{
		"tasks/get":    `{"resultType":"complete","taskId":"ID","status":"tasks/get"}`,
		"tasks/cancel": `{"resultType":"complete","taskId":"ID","status":"tasks/cancel"}`,
		"tasks/result": `{"content":[{"type":"text","text":"t 1"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"ID","x":1},"y":2}}`,
	} {
		s.Forget()
		for who, mine := range map[string]*peer{"the session": p, "another session": later} {
			if _, answer := mine.do(method, `{"taskId":"`+id+`"}`); strings.ReplaceAll(answer, `"`+id+`"`, `"ID"`) != want {
				t.Errorf("%s of %s: %s\nwant %s", method, who, answer, want)
			}
		}
		for _, r := range s.Got(method) {
			if got, _ := mcp.Text(mcp.Find(mcp.Find(r.Body, "params"), "taskId")); got != "t 1" {
				t.Errorf("%s: the server was asked for %q", method, got)
			}
		}
		s.Forget()
		if _, answer := another.do(method, `{"taskId":"`+id+`"}`); answer != `error {"code":-32602,"message":"Unknown task: `+id+`"}` {
			t.Errorf("%s of another principal: %s", method, answer)
		}
		if _, answer := another.do(method, `{"taskId":"t 1"}`); answer != `error {"code":-32602,"message":"Unknown task: t 1"}` {
			t.Errorf("%s by the server's id: %s", method, answer)
		}
		if got := s.Got(method); len(got) != 0 {
			t.Errorf("%s of another principal arrived", method)
		}
	}
	_, answer = p.do("tasks/list", `{}`)
	if answer != `{"tasks":[{"taskId":"`+id+`","status":"working"}]}` {
		t.Errorf("list %s", answer)
	}
	if _, answer := another.do("tasks/list", `{}`); answer != `{"tasks":[]}` {
		t.Errorf("another's list %s", answer)
	}
	other := legacy(t, g.World, "/mcp/none", "developer", able)
	if _, answer := other.do("tasks/get", `{"taskId":"`+id+`"}`); answer != `error {"code":-32601,"message":"Method not found: tasks/get"}` {
		t.Errorf("on the route of another server: %s", answer)
	}
}

// TestATaskFallsWithItsTool hides the tool that started it, and single methods.
func TestATaskFallsWithItsTool(t *testing.T) {
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		s := worker(era)
		g := newRig(t, nil, s)
		p, params, methods := legacy(t, g.World, "/mcp", "developer", able), `{"name":"worker__work","task":{}}`, []string{"tasks/get", "tasks/result", "tasks/cancel"}
		if era == mcp.Modern {
			p, params, methods = modern(t, g.World, "/mcp", "developer"), `{"name":"worker__work"}`, []string{"tasks/get", "tasks/update", "tasks/cancel"}
		}
		_, answer := p.do("tools/call", params)
		id, _ := taskOf(t, answer)
		s.Forget()
		unknown := `error {"code":-32602,"message":"Unknown task: ` + id + `"}`
		g.hide("work")
		for _, method := range methods {
			if _, answer := p.do(method, `{"taskId":"`+id+`"}`); answer != unknown {
				t.Errorf("%s with the tool hidden: %s", method, answer)
			}
		}
		if era == mcp.Legacy {
			if _, answer := p.do("tasks/list", `{}`); answer != `{"tasks":[]}` {
				t.Errorf("the list with the tool hidden: %s", answer)
			}
		}
		for _, hidden := range methods {
			g.hide(hidden + " work")
			s.Forget()
			for _, method := range methods {
				_, answer := p.do(method, `{"taskId":"`+id+`"}`)
				if refused := answer == unknown; refused != (method == hidden) {
					t.Errorf("%s with %s hidden: %s", method, hidden, answer)
				}
			}
			if got := s.Got(hidden); len(got) != 0 {
				t.Errorf("%s arrived while hidden", hidden)
			}
		}
	}
}

// TestStatusOfTasks is told to the session that started it alone, while the
// policy allows it.
func TestStatusOfTasks(t *testing.T) {
	s := worker(mcp.Legacy)
	g := newRig(t, nil, s)
	p, another := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "payments", able)
	own, others := p.get(""), another.get("")
	_, answer := p.do("tools/call", `{"name":"worker__work","task":{}}`)
	id, _ := taskOf(t, answer)
	another.do("tools/call", `{"name":"worker__also"}`)
	eventually(t, "the server can tell", func() bool { return s.Streams() >= 2 })
	for range 2 {
		s.Say("notifications/tasks/status", jsontext.Value(`{"taskId":"t 1","status":"completed"}`))
		got := own.next()
		told, rest := taskOf(t, got)
		if rest != `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"ID","status":"completed"}}` {
			t.Errorf("told %s", got)
		}
		if _, answer := p.do("tasks/get", `{"taskId":"`+told+`"}`); !strings.Contains(answer, `"status":"tasks/get"`) {
			t.Errorf("by the id that was told: %s", answer)
		}
	}
	s.Say("notifications/tasks/status", jsontext.Value(`{"taskId":"another's","status":"completed"}`))
	g.hide("notifications/tasks/status work")
	s.Say("notifications/tasks/status", jsontext.Value(`{"taskId":"t 1","status":"completed"}`))
	own.quiet("not its task, or denied")
	others.quiet("another's task")
	if _, answer := p.do("tasks/get", `{"taskId":"`+id+`"}`); !strings.Contains(answer, `"status":"tasks/get"`) {
		t.Errorf("get: %s", answer)
	}
}

// TestModernTasks seals the ids of the tasks that servers of the modern era
// start on their own.
func TestModernTasks(t *testing.T) {
	s := worker(mcp.Modern)
	g := newRig(t, nil, s)
	p, another := modern(t, g.World, "/mcp", "developer"), modern(t, g.World, "/mcp", "payments")
	_, discovered := p.do("server/discover", `{}`)
	if _, c := introduced(t, discovered); c != `{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{}}}` {
		t.Errorf("capabilities %s", c)
	}
	_, answer := p.do("tools/call", `{"name":"worker__work"}`)
	id, rest := taskOf(t, answer)
	if want := `{"resultType":"task","taskId":"ID","status":"working","ttlMs":1000`; !strings.HasPrefix(rest, want) {
		t.Errorf("started %s", rest)
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		params := `{"taskId":"` + id + `","inputResponses":{"a":{"n":9007199254740993}}}`
		if _, answer := p.do(method, params); sealedTask.ReplaceAllString(answer, `"taskId":"ID"`) != `{"resultType":"complete","taskId":"ID","status":"`+method+`"}` {
			t.Errorf("%s: %s", method, answer)
		}
		got := s.Got(method)
		if len(got) != 1 || !strings.Contains(string(got[0].Body), `"taskId":"t 1","inputResponses":{"a":{"n":9007199254740993}}`) || got[0].Header.Get("Mcp-Name") != "t 1" {
			t.Errorf("%s: arrived %s", method, got)
		}
		if _, answer := another.do(method, params); answer != `error {"code":-32602,"message":"Unknown task: `+id+`"}` {
			t.Errorf("%s of another principal: %s", method, answer)
		}
		if got := s.Got(method); len(got) != 1 {
			t.Errorf("%s of another principal arrived", method)
		}
	}
}
