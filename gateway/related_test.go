package gateway_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// related is the member that names a task in what belongs to it.
func related(id string) string {
	return `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}`
}

var relatedTask = regexp.MustCompile(`related-task":{"taskId":"([^"]*)"`)

// relatedIn is the task that is named in a message; "" is none.
func relatedIn(m *mcp.Message) string {
	if found := relatedTask.FindSubmatch(m.Append(nil)); found != nil {
		return string(found[1])
	}
	return ""
}

// TestWhatBelongsToATaskNamesItToBothSides asks, tells and answers about a task
// during a call and outside of all, and about tasks of others.
func TestWhatBelongsToATaskNamesItToBothSides(t *testing.T) {
	s := asker("asker")
	s.Capabilities = jsontext.Value(`{"tools":{},"logging":{},"tasks":{"requests":{"tools":{"call":{}}}}}`)
	ask := s.Handle
	sessions := make(chan string, 100)
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		switch {
		case x.Method == "tasks/get":
			return jsontext.Value(`{"taskId":` + string(mcp.Find(x.Params, "taskId")) + `,"status":"working"}`), nil
		case x.Method != "tools/call":
			return nil, nil
		case mcp.Find(x.Params, "task") != nil:
			sessions <- x.Session
			return jsontext.Value(`{"task":{"taskId":"t 1","status":"input_required"}}`), nil
		}
		for _, id := range []string{"t 1", "another's"} {
			x.Notify("notifications/message", jsontext.Value(`{"level":"error","data":1,`+related(id)+`}`))
		}
		return ask(x)
	}
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	own := p.get("")
	_, answer := p.do("tools/call", `{"name":"asker__ask","arguments":{},"task":{}}`)
	started, _ := taskOf(t, answer)
	session := <-sessions
	eventually(t, "the server's stream is open", func() bool { return s.Streams() >= 1 })

	// mine checks an id that the client was told.
	mine := func(what, id string) {
		t.Helper()
		if _, answer := p.do("tasks/get", `{"taskId":"`+id+`"}`); !strings.Contains(answer, `"status":"working"`) || strings.Contains(answer, "t 1") {
			t.Errorf("%s names the task %q: %s", what, id, answer)
		}
	}
	for _, c := range []struct{ asked, answered, arrives string }{
		{"t 1", started, "t 1"}, {"another's", "", ""}, {"t 1", "t 1", ""}, {"t 1", strings.Repeat("A", 80), ""},
	} {
		reply := `{"action":"accept"}`
		if c.answered != "" {
			reply = `{"action":"accept",` + related(c.answered) + `}`
		}
		params := `{"message":"who?",` + related(c.asked) + `}`
		check := func(what string, m *mcp.Message) {
			t.Helper()
			switch id := relatedIn(m); {
			case c.asked == "t 1":
				mine(what, id)
			case id != "" || strings.Contains(string(m.Append(nil)), c.asked):
				t.Errorf("%s names another's task: %s", what, m.Append(nil))
			}
		}
		// During a call.
		f := p.open("tools/call", asking("asker__ask", `1`, "elicitation/create", params))
		if first := f.message(); first.Method != "notifications/message" {
			t.Errorf("first came %s", first.Append(nil))
		} else {
			mine("a log message in a call", relatedIn(first))
		}
		if second := f.message(); second.Method != "notifications/message" || relatedIn(second) != "" {
			t.Errorf("of another's task: %s", second.Append(nil))
		}
		m := f.message()
		check("a request in a call", m)
		p.answer(m.ID, reply)
		got := said(t, f.message())
		if id := relatedTask.FindStringSubmatch(got); (id == nil) != (c.arrives == "") || id != nil && id[1] != c.arrives {
			t.Errorf("in a call, to %s: the server got %s", reply, got)
		}
		// Outside of all.
		back := s.Put(session, mcp.NumberID(7), "elicitation/create", jsontext.Value(params))
		m = own.message()
		check("a request outside of calls", m)
		p.answer(m.ID, reply)
		if got := <-back; relatedIn(got) != c.arrives {
			t.Errorf("outside of calls, to %s: the server got %s", reply, got.Append(nil))
		}
		s.Say("notifications/message", jsontext.Value(`{"level":"error","data":1,`+related(c.asked)+`}`))
		check("a log message outside of calls", own.message())
	}
}
