package gateway_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

// counter is a server whose tool count sends a log message for each number that
// it is given, progress for 0, and answers when there are no more.
func counter(era mcp.Era, numbers <-chan int) *world.Server {
	s := &world.Server{Name: "counter", Era: era, Tells: true, Tools: []jsontext.Value{tool("count")}}
	s.Handle = func(x *world.Exchange) (jsontext.Value, *mcp.Error) {
		if x.Method != mcp.MethodToolsCall {
			return nil, nil
		}
		for n := range numbers {
			if n == 0 {
				token := mcp.Find(mcp.Find(x.Params, "_meta"), "progressToken")
				x.Notify("notifications/progress", jsontext.Value(`{"progress":0,"progressToken":`+string(token)+`}`))
				continue
			}
			x.Notify("notifications/message", jsontext.Value(`{"level":"error","data":`+strconv.Itoa(n)+`}`))
		}
		return text("done"), nil
	}
	return s
}

func logged(n int) string {
	return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":` + strconv.Itoa(n) + `}}`
}

// TestACutStreamIsResumed cuts the connection of a call after one event, of the
// same kind as the others and of another one. Each event comes once.
func TestACutStreamIsResumed(t *testing.T) {
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for first := range 2 {
			numbers := make(chan int)
			g := newRig(t, nil, counter(era, numbers))
			p := legacy(t, g.World, "/mcp", "developer", able)
			p.do("logging/setLevel", `{"level":"debug"}`)
			opened := make(chan *flow)
			go func() { opened <- p.open("tools/call", `{"name":"counter__count","_meta":{"progressToken":1}}`) }()
			numbers <- first
			f := <-opened
			if first == 0 {
				f.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0,"progressToken":1}}`)
			} else {
				f.want(logged(1))
			}
			f.cut()
			noticed()
			numbers <- 2
			numbers <- 3
			again := p.get(f.last)
			again.want(logged(2))
			again.want(logged(3))
			last := again.last
			numbers <- 4
			again.want(logged(4))
			close(numbers)
			if got := said(t, again.message()); got != "done" {
				t.Errorf("the answer: %s", got)
			}
			if got := again.next(); got != "" {
				t.Errorf("after the answer: %s", got)
			}
			// Once more from the middle: what came after it, in order.
			third := p.get(last)
			third.want(logged(4))
			if got := said(t, third.message()); got != "done" {
				t.Errorf("the answer once more: %s", got)
			}
		}
	}
}

// noticed gives the gateway time to see that a connection was cut. What comes
// earlier is replayed all the same; later, nobody is there to be asked.
func noticed() { time.Sleep(100 * time.Millisecond) }

// TestTheSessionsStreamIsResumed misses a change while nobody listens, and gets
// it by the last event's id.
func TestTheSessionsStreamIsResumed(t *testing.T) {
	s := shop()
	s.Era, s.Tells = mcp.Legacy, true
	g := newRig(t, nil, s)
	p := legacy(t, g.World, "/mcp", "developer", able)
	own := p.get("")
	if _, answer := p.do("resources/subscribe", `{"uri":"shop://a/open"}`); answer != `{}` {
		t.Fatalf("subscribe: %s", answer)
	}
	const update = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"shop://a/open"}}`
	tell := func() { s.Say("notifications/resources/updated", jsontext.Value(`{"uri":"shop://a/open"}`)) }
	eventually(t, "the server can tell", func() bool { return s.Streams() >= 2 })
	tell()
	own.want(update)
	last := own.last
	own.cut()
	noticed()
	tell()
	tell()
	again := p.get(last)
	again.want(update)
	again.want(update)
	again.quiet("two updates were missed")
	if again.last == last {
		t.Error("an event has the id of another one")
	}
}

// TestIdsOfEventsAreOfTheirSession resumes from ids that are not the session's
// own: it is given its own stream, and nothing of any other.
func TestIdsOfEventsAreOfTheirSession(t *testing.T) {
	numbers := make(chan int)
	g := newRig(t, nil, counter(mcp.Legacy, numbers))
	p := legacy(t, g.World, "/mcp", "developer", able)
	opened := make(chan *flow)
	go func() { opened <- p.open("tools/call", `{"name":"counter__count"}`) }()
	numbers <- 1
	f := <-opened
	f.want(logged(1))
	numbers <- 2
	f.want(logged(2))
	id := f.last
	stream, _, _ := strings.Cut(id, "-")
	same, another := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "payments", able)
	for what, foreign := range map[*peer][]string{
		same: {id, stream + "-1", stream + "-0"}, another: {id, stream + "-1"},
		p: {stream + "-99", stream + "-0", stream, stream + "-", stream + "-01", stream + "-+1", stream + "--1", "x-1", "-1", "-", "1", strings.Repeat("x", 5000), stream + "-1-1", strings.ToLower(stream) + "-1"},
	} {
		for _, one := range foreign {
			own := what.get(one)
			if own.status != http.StatusOK {
				t.Errorf("%.40q: status %d", one, own.status)
			}
			own.quiet("an event of another stream")
			own.cut()
		}
	}
	thief := &peer{t: t, url: p.url, token: another.token, session: p.session}
	if resp, _ := thief.send(http.MethodGet, "", "Last-Event-Id", id); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another principal: %d", resp.StatusCode)
	}
	close(numbers)
	if got := said(t, f.message()); got != "done" {
		t.Errorf("the stream itself: %s", got)
	}
}

// TestStreamsEndWithTheToken opens every kind of stream with a token that is
// good for a moment.
func TestStreamsEndWithTheToken(t *testing.T) {
	g := newRig(t, nil, shop())
	claims, err := world.Claims("developer")
	if err != nil {
		t.Fatal(err)
	}
	brief, err := g.Mint(claims, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	p, m := legacy(t, g.World, "/mcp", "developer", able), modern(t, g.World, "/mcp", "developer")
	p.token, m.token = brief, brief
	own := p.get("")
	listen := m.open("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	if got := listen.next(); !strings.Contains(got, "acknowledged") {
		t.Fatalf("got %s", got)
	}
	if got := own.next(); got != "" {
		t.Errorf("on the session's stream: %s", got)
	}
	want := `{"jsonrpc":"2.0","id":` + listen.id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + listen.id + `}}}`
	if got := listen.next(); got != want {
		t.Errorf("on the listener's: %s\nwant %s", got, want)
	}
	if got := listen.next(); got != "" {
		t.Errorf("after its end: %s", got)
	}
}

// TestDeleteEndsTheStreams of its session, and of no other.
func TestDeleteEndsTheStreams(t *testing.T) {
	numbers := make(chan int)
	s := counter(mcp.Legacy, numbers)
	g := newRig(t, nil, s)
	p, another := legacy(t, g.World, "/mcp", "developer", able), legacy(t, g.World, "/mcp", "developer", able)
	own, others := p.get(""), another.get("")
	opened := make(chan *flow)
	go func() { opened <- p.open("tools/call", `{"name":"counter__count"}`) }()
	numbers <- 1
	f := <-opened
	f.want(logged(1))
	if resp, _ := p.send(http.MethodDelete, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", resp.StatusCode)
	}
	if got := own.next(); got != "" {
		t.Errorf("on the session's stream: %s", got)
	}
	if got := f.next(); got != "" && !strings.Contains(got, `"error"`) {
		t.Errorf("on the call's stream: %s", got)
	}
	close(numbers)
	others.quiet("another session")
	if resp, _ := p.send(http.MethodGet, "", "Last-Event-Id", f.last); resp.StatusCode != http.StatusNotFound {
		t.Errorf("resuming: %d", resp.StatusCode)
	}
}
