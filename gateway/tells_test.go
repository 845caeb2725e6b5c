package gateway_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// teller is a server whose tool tell sends the notifications in its arguments
// before it answers.
func teller(name string, era mcp.Era) *world.Server {
	s := shop()
	s.Name, s.Era, s.Tells = name, era, true
	s.Tools = []jsontext.Value{tool("tell"), tool("open")}
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		call, err := mcp.ReadCall(x.Params)
		if x.Method != mcp.MethodToolsCall || err != nil {
			return nil, nil
		}
		list, _ := mcp.Elements(mcp.Find(call.Arguments, "say"))
		token := mcp.Find(mcp.Find(x.Params, "_meta"), "progressToken")
		for _, one := range list {
			method, _ := mcp.Text(mcp.Find(one, "method"))
			params := mcp.Find(one, "params")
			if method == "notifications/progress" && token != nil {
				params, _ = mcp.Edit(params, mcp.Set{Name: "progressToken", Value: token})
			}
			x.Notify(method, params)
		}
		return text("told"), nil
	}
	return s
}

const log = `{"method":"notifications/message","params":{"level":"error","logger":"l","data":{"n":9007199254740993}}}`

func say(tool string, list ...string) string {
	return `{"name":"` + tool + `","arguments":{"say":[` + strings.Join(list, ",") + `]}}`
}

func notification(entry string) string { return `{"jsonrpc":"2.0",` + entry[1:] }

// levels are what a server is told of the level that the client wants.
func levels(s *world.Server) (list []string) {
	for _, r := range s.Received() {
		if r.Method == "logging/setLevel" {
			level, _ := mcp.Text(mcp.Find(mcp.Find(r.Body, "params"), "level"))
			list = append(list, "set "+level)
		}
		if r.Method == "tools/call" {
			level, _ := mcp.Text(mcp.Find(mcp.Find(mcp.Find(r.Body, "params"), "_meta"), "io.modelcontextprotocol/logLevel"))
			list = append(list, "call "+level)
		}
	}
	return list
}

// TestLogMessagesAreJudged passes them to clients of both eras from servers of
// both, where the policy lets the server log to the client.
func TestLogMessagesAreJudged(t *testing.T) {
	old, now := teller("old", mcp.Legacy), teller("now", mcp.Modern)
	g := newRig(t, nil, old, now)
	clients := map[string]*peer{
		"legacy": legacy(t, g.World, "/mcp", "developer", able),
		"modern": modern(t, g.World, "/mcp", "developer", `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/logLevel":"warning"`),
	}
	if _, answer := clients["legacy"].do("logging/setLevel", `{"level":"warning"}`); answer != `{}` {
		t.Fatalf("setLevel: %s", answer)
	}
	for era, p := range clients {
		for _, s := range []*world.Server{old, now} {
			s.Forget()
			f := p.open("tools/call", say(s.Name+"__tell", log))
			f.want(notification(log))
			if got := said(t, f.message()); got != "told" {
				t.Errorf("%s, %s: answer %s", era, s.Name, got)
			}
			want := map[string]string{"old": "set warning call ", "now": "call warning"}[s.Name]
			if got := strings.Join(levels(s), " "); got != want {
				t.Errorf("%s, %s: the server was told %q, want %q", era, s.Name, got, want)
			}
		}
	}
	// A modern client that did not ask for messages gets none.
	silent := modern(t, g.World, "/mcp", "developer")
	for _, s := range []*world.Server{old, now} {
		if got := said(t, silent.open("tools/call", say(s.Name+"__tell", log)).message()); got != "told" {
			t.Errorf("%s: without a level: %s", s.Name, got)
		}
	}
	// The policy says no to messages of this tool.
	g.hide("notifications/message tell")
	for era, p := range clients {
		for _, s := range []*world.Server{old, now} {
			if got := said(t, p.open("tools/call", say(s.Name+"__tell", log, log)).message()); got != "told" {
				t.Errorf("%s, %s: denied messages: %s", era, s.Name, got)
			}
		}
	}
	// And to the level, which the servers then do not hear of.
	g.hide("logging/setLevel server:now", "logging/setLevel server:old")
	for era, p := range clients {
		now.Forget()
		said(t, p.open("tools/call", say("now__open")).message())
		if got := strings.Join(levels(now), " "); got != "call " {
			t.Errorf("%s: a server that may not be told was told %q", era, got)
		}
	}
}

// TestProgressIsTheClientsOwn restores the token, and passes no other progress.
func TestProgressIsTheClientsOwn(t *testing.T) {
	g := newRig(t, nil, teller("old", mcp.Legacy), teller("now", mcp.Modern))
	const step = `{"method":"notifications/progress","params":{"progressToken":"?","progress":0.5,"total":1,"message":"half"}}`
	for _, token := range []string{`"t 1"`, `7`, `9007199254740993`} {
		for _, server := range []string{"old", "now"} {
			for era, p := range map[string]*peer{"legacy": legacy(t, g.World, "/mcp", "developer", able), "modern": modern(t, g.World, "/mcp", "developer")} {
				params := say(server+"__tell", step)
				f := p.open("tools/call", strings.TrimSuffix(params, "}")+`,"_meta":{"progressToken":`+token+`}}`)
				f.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":0.5,"total":1,"message":"half"}}`)
				if got := said(t, f.message()); got != "told" {
					t.Errorf("%s, %s: answer %s", era, server, got)
				}
				if got := said(t, p.open("tools/call", params).message()); got != "told" {
					t.Errorf("%s, %s: without a token: %s", era, server, got)
				}
			}
		}
	}
	g.hide("notifications/progress tell")
	for _, server := range []string{"old", "now"} {
		p := modern(t, g.World, "/mcp", "developer")
		f := p.open("tools/call", strings.TrimSuffix(say(server+"__tell", step), "}")+`,"_meta":{"progressToken":1}}`)
		if got := said(t, f.message()); got != "told" {
			t.Errorf("%s: denied progress: %s", server, got)
		}
	}
}

// TestServersCannotSayWhatIsNotTheirs sends notifications in a call that no
// server may make a client believe.
func TestServersCannotSayWhatIsNotTheirs(t *testing.T) {
	g := newRig(t, nil, teller("old", mcp.Legacy), teller("now", mcp.Modern))
	var all []string
	for _, method := range []string{
		"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/roots/list_changed", "notifications/initialized", "notifications/x", "notifications/subscriptions/acknowledged",
		"notifications/tasks/status", "notifications/tasks", "notifications/cancelled", "x", "tools/call", "notifications/Message",
	} {
		all = append(all, `{"method":"`+method+`","params":{"requestId":1,"taskId":"x","level":"error","data":1,"notifications":{}}}`)
	}
	for _, server := range []string{"old", "now"} {
		for era, p := range map[string]*peer{
			"legacy": legacy(t, g.World, "/mcp", "developer", able),
			"modern": modern(t, g.World, "/mcp", "developer", `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/logLevel":"debug"`),
		} {
			if got := said(t, p.open("tools/call", say(server+"__tell", all...)).message()); got != "told" {
				t.Errorf("%s, %s: answer %s", era, server, got)
			}
		}
	}
}

// TestWhatServersTellOutsideACall is judged by the server, and what belongs to
// a call alone is told to nobody.
func TestWhatServersTellOutsideACall(t *testing.T) {
	s := teller("old", mcp.Legacy)
	g := newRig(t, nil, s)
	p, other := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "payments", able)
	own, others := p.get(""), other.get("")
	said(t, p.open("tools/call", say("old__open")).message())
	eventually(t, "the server's stream is open", func() bool { return s.Streams() >= 2 })
	message := jsontext.Value(`{"level":"error","data":1}`)
	s.Say("notifications/message", message)
	own.want(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}`)
	for _, method := range []string{
		"notifications/progress", "notifications/initialized", "notifications/roots/list_changed", "notifications/x", "notifications/tasks",
		"notifications/subscriptions/acknowledged", "notifications/cancelled", "notifications/tasks/status",
	} {
		s.Say(method, jsontext.Value(`{"progressToken":1,"progress":1,"requestId":1,"taskId":"x","status":"working"}`))
	}
	own.quiet("nothing of this is for clients")
	g.hide("notifications/message server:old")
	s.Say("notifications/message", message)
	own.quiet("the policy does not let the server log")
	others.quiet("it has no conversation with the server")
}

// TestClientsWithoutEventsGetTheAnswerAlone is for those that accept JSON alone.
func TestClientsWithoutEventsGetTheAnswerAlone(t *testing.T) {
	g := newRig(t, nil, teller("old", mcp.Legacy), teller("now", mcp.Modern))
	p := legacy(t, g.World, "/mcp", "developer", able)
	for _, server := range []string{"old", "now"} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + say(server+"__tell", log, log) + `}`
		resp, answer := p.post(body, "Accept", "application/json")
		if want := `{"jsonrpc":"2.0","id":1,"result":` + string(text("told")) + `}`; resp.Header.Get("Content-Type") != "application/json" || answer != want {
			t.Errorf("%s: %s %s", server, resp.Header.Get("Content-Type"), answer)
		}
	}
}
