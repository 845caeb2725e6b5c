package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// asked is a request of a server.
func asked(id int64, method string) *mcp.Message {
	return mcp.NewRequest(mcp.NumberID(id), method, jsontext.Value(`{"n":9007199254740993}`))
}

// TestAsksAreBounded: what a server may have under way at its client.
func TestAsksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := ablePeer("ada")
		under := 0
		peer.ask = func(ctx context.Context, m *mcp.Message) *mcp.Message {
			under++
			<-ctx.Done()
			return errorAnswer(1, "over")
		}
		p := newParty("alpha", peer, func(string) {})
		sent := make(chan *mcp.Message, 100)
		for i := range int64(asksMost) {
			if m := p.take(asked(i, "roots/list"), nil, func(m *mcp.Message) { sent <- m }); m != nil {
				t.Fatalf("request %d is answered at once: %s", i, m.Append(nil))
			}
			synctest.Wait()
		}
		m := p.take(asked(99, "roots/list"), nil, nil)
		if got, want := string(m.Append(nil)), `{"jsonrpc":"2.0","id":99,"error":{"code":-32603,"message":"too many requests to the client are under way"}}`; got != want {
			t.Errorf("one too many: %s, want %s", got, want)
		}
		if m := p.take(asked(3, "roots/list"), nil, nil); m != nil {
			t.Errorf("a repeated request is answered with %s", m.Append(nil))
		}
		if m := p.take(asked(99, "ping"), nil, nil); string(m.Append(nil)) != `{"jsonrpc":"2.0","id":99,"result":{}}` {
			t.Errorf("a ping is answered with %s", m.Append(nil))
		}
		if m := p.take(asked(99, "tools/call"), nil, nil); m.Err().Code != mcp.CodeMethodNotFound {
			t.Errorf("an unknown method is answered with %s", m.Append(nil))
		}
		// The server withdraws one, which makes room and is not answered.
		p.hear(mcp.NewRequest(mcp.ID{}, cancelled, jsontext.Value(`{"requestId":3}`)), nil)
		synctest.Wait()
		if len(sent) != 0 || len(p.asks) != asksMost-1 {
			t.Errorf("%d answers, %d under way", len(sent), len(p.asks))
		}
		p.close()
		if len(sent) != 0 || under != asksMost {
			t.Errorf("%d answers after the end, %d asks", len(sent), under)
		}
		if m := p.take(asked(1, "roots/list"), nil, nil); m != nil {
			t.Errorf("after the end: %s", m.Append(nil))
		}
	})
}

// TestAsksEndWithTheirCall: and the server is told what there is to say.
func TestAsksEndWithTheirCall(t *testing.T) {
	p := newParty("alpha", testPeer("ada"), func(string) {})
	defer p.close()
	ctx, clock := newClock(t.Context(), time.Hour)
	of := &turn{ctx: ctx, clock: clock, ask: func(ctx context.Context, m *mcp.Message) *mcp.Message {
		<-ctx.Done()
		return &mcp.Message{}
	}}
	sent := make(chan *mcp.Message, 1)
	p.take(asked(5, "sampling/createMessage"), of, func(m *mcp.Message) { sent <- m })
	clock.stop()
	m := receive(t, sent, "the answer")
	if want := `{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"the client gave no answer"}}`; string(m.Append(nil)) != want {
		t.Errorf("the answer is %s, want %s", m.Append(nil), want)
	}
}

// TestDeadlineWaitsForTheClient: a call takes as long as somebody thinks.
func TestDeadlineWaitsForTheClient(t *testing.T) {
	d := newWebDouble(t, nil)
	answers, seenBy := make(chan string, 10), make(chan string, 10)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.message != nil && s.message.Kind() == mcp.Response {
			answers <- s.body
		}
		return false
	}
	d.call = func(w http.ResponseWriter, s seen) {
		send := stream(w, s)
		send("data: {\"jsonrpc\":\"2.0\",\"id\":\"q-1\",\"method\":\"elicitation/create\",\"params\":{\"x\":9007199254740993}}\n\n")
		got := <-answers
		seenBy <- got
		if strings.Contains(got, "too late") {
			<-done
		}
		send("data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"got\":" + got + "}}\n\n")
	}
	c := d.config()
	c.CallTimeout = time.Second // what else it takes is far less
	p := newPool(t, map[string]Config{"alpha": c}, quick(nil))
	call := Call{Server: "alpha", Peer: testPeer("ada"), Method: "tools/call", Params: jsontext.Value(`{"name":"read"}`)}
	call.Ask = func(ctx context.Context, m *mcp.Message) *mcp.Message {
		if got, want := string(m.Append(nil)), `{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"x":9007199254740993}}`; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		time.Sleep(2 * c.CallTimeout)
		return &mcp.Message{ID: mcp.NumberID(4), Result: jsontext.Value(`{ "big":9007199254740993 }`)}
	}
	m, err := p.Do(t.Context(), call)
	if got, want := must(t, m, err), `{"got":{"jsonrpc":"2.0","id":"q-1","result":{ "big":9007199254740993 }}}`; got != want {
		t.Errorf("the result is %s, want %s", got, want)
	}
	// Nobody thinks for ever: the call ends, and with it what is asked.
	ended := make(chan error, 1)
	call.Ask = func(ctx context.Context, m *mcp.Message) *mcp.Message {
		<-ctx.Done()
		ended <- ctx.Err()
		return errorAnswer(1, "too late")
	}
	_, err = p.Do(t.Context(), call)
	wantKind(t, err, Timeout, "alpha")
	receive(t, ended, "the end of what was asked")
	receive(t, seenBy, "the first answer")
	if got := receive(t, seenBy, "the answer"); !strings.Contains(got, "too late") {
		t.Errorf("the server was answered with %s", got)
	}
}

// TestStdioWithdraws: a server that no longer wants to know gets no answer.
func TestStdioWithdraws(t *testing.T) {
	c, record := doubleConfig(t, "withdraws")
	p := newPool(t, one(c), quick(nil))
	peer := ablePeer("ada")
	ended := make(chan error, 1)
	call := Call{Server: "gamma", Peer: peer, Method: "tools/call", Params: jsontext.Value(`{"name":"withdraw"}`)}
	call.Ask = func(ctx context.Context, m *mcp.Message) *mcp.Message {
		<-ctx.Done()
		ended <- ctx.Err()
		return answerAs("late", m)
	}
	m, err := p.Do(t.Context(), call)
	must(t, m, err)
	if err := receive(t, ended, "the withdrawal"); !errors.Is(err, context.Canceled) {
		t.Errorf("what was asked ended with %v", err)
	}
	m, err = callTool(t.Context(), p, "gamma", "ada", "echo", "{}")
	must(t, m, err)
	if n := countRecorded(t, record, "file:///late"); n != 0 {
		t.Errorf("the withdrawn request was answered %d times", n)
	}
	if n := countRecorded(t, record, `"capabilities":`+peer.capabilities+`,`); n != 1 {
		t.Errorf("the capabilities of the client were declared %d times", n)
	}
}

// TestSharedIsAskedNothing: what all share knows of no client.
func TestSharedIsAskedNothing(t *testing.T) {
	c, record := doubleConfig(t)
	c.Shared = true
	p := running(t, one(c), quick(nil))
	peer := ablePeer("ada")
	m, err := p.Do(t.Context(), Call{Server: "gamma", Peer: peer, Method: "tools/call", Params: jsontext.Value(`{"name":"asks"}`), LogLevel: "debug",
		Ask: func(_ context.Context, m *mcp.Message) *mcp.Message { return answerAs("ada", m) }})
	must(t, m, err)
	eventually(t, "the answer", func() bool {
		return countRecorded(t, record, `{"jsonrpc":"2.0","id":"q","error":{"code":-32601,`) == 1
	})
	if n := countRecorded(t, record, `"capabilities":{},`); n != 1 {
		t.Errorf("no capabilities were declared %d times", n)
	}
	if names := p.Open("ada"); len(names) > 0 {
		t.Errorf("Open is %q", names)
	}
	// A subscription is made once for all, and all who made it hear of it.
	bob := testPeer("bob")
	for _, peer := range []*tester{peer, bob} {
		m, err := p.Subscribe(t.Context(), "gamma", peer, "test://a")
		must(t, m, err)
	}
	touch := func() {
		t.Helper()
		m, err := callTool(t.Context(), p, "gamma", "eve", "touch", "{}")
		must(t, m, err)
	}
	touch()
	for _, peer := range []*tester{peer, bob} {
		if got := peer.told(t, updated); got != `{"uri":"test://a/b"}` {
			t.Errorf("%s was told %s", peer.key, got)
		}
	}
	if err := p.Unsubscribe(t.Context(), "gamma", bob, "test://a"); err != nil {
		t.Fatal(err)
	}
	if n := countRecorded(t, record, unsubscribe); n != 0 {
		t.Error("the end of one subscription ended that of somebody else")
	}
	touch()
	peer.told(t, updated)
	if len(bob.notes) != 0 {
		t.Error("one who has unsubscribed is still told")
	}
	if err := p.Unsubscribe(t.Context(), "gamma", peer, "test://a"); err != nil || countRecorded(t, record, unsubscribe) != 1 {
		t.Errorf("the end of the last subscription: %v", err)
	}
}

// TestModernPassesThrough: a modern server is told of a modern client's
// capabilities, and its way of asking is left alone.
func TestModernPassesThrough(t *testing.T) {
	const required = `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"x y"}`
	d := newWebDouble(t, func(d *webDouble) { d.modern = true })
	d.call = func(w http.ResponseWriter, s seen) { answer(w, s, required) }
	p := newPool(t, alpha(d), quick(nil))
	modern, legacy := ablePeer("ada"), ablePeer("ada")
	modern.era = mcp.Modern
	own := `{"sampling":{"x":9007199254740993}}`
	for _, tt := range []struct {
		peer         *tester
		params, want string
	}{
		{modern, `{"name":"read","_meta":{"io.modelcontextprotocol/clientCapabilities":` + own + `}}`, own},
		{modern, `{"name":"read"}`, modern.capabilities},
		{legacy, `{"name":"read","_meta":{"io.modelcontextprotocol/clientCapabilities":` + own + `}}`, `{}`},
		{legacy, `{"name":"read"}`, `{}`},
	} {
		m, err := p.Do(t.Context(), Call{Server: "alpha", Peer: tt.peer, Method: "tools/call", Params: jsontext.Value(tt.params), LogLevel: "info"})
		if got := must(t, m, err); got != required {
			t.Errorf("the result is %s", got)
		}
		sent := d.posts("tools/call")
		body := sent[len(sent)-1].body
		for _, want := range []string{`"io.modelcontextprotocol/clientCapabilities":` + tt.want, `"io.modelcontextprotocol/logLevel":"info"`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s is not in %s", want, body)
			}
		}
	}
	if names := p.Open("ada"); len(names) > 0 {
		t.Errorf("a server without conversations has those of %q", names)
	}
	p.Tell("", "ada", mcp.NewRequest(mcp.ID{}, "notifications/roots/list_changed", nil))
	p.Close()
	if n := len(d.posts("notifications/roots/list_changed")); n != 0 {
		t.Errorf("it was told %d times", n)
	}
}

// TestTell: in order, over the conversation of that key alone.
func TestTell(t *testing.T) {
	d := newWebDouble(t, nil)
	c, record := doubleConfig(t)
	p := newPool(t, map[string]Config{"alpha": d.config(), "gamma": c}, quick(nil))
	p.Tell("", "ada", mcp.NewRequest(mcp.ID{}, "notifications/early", nil))
	for _, key := range []string{"ada", "bob"} {
		for _, server := range []string{"alpha", "gamma"} {
			m, err := callTool(t.Context(), p, server, key, map[string]string{"alpha": "read", "gamma": "echo"}[server], "{}")
			must(t, m, err)
		}
	}
	for i := range 20 {
		p.Tell("", "ada", mcp.NewRequest(mcp.ID{}, "notifications/progress", jsontext.Value(fmt.Sprintf(`{"progress":%d}`, i))))
	}
	p.Tell("gamma", "ada", mcp.NewRequest(mcp.ID{}, "notifications/roots/list_changed", nil))
	p.Tell("alpha", "eve", mcp.NewRequest(mcp.ID{}, "notifications/roots/list_changed", nil))
	eventually(t, "what was told", func() bool {
		return len(d.posts(progress)) == 20 && countRecorded(t, record, progress) == 20 && countRecorded(t, record, "roots/list_changed") == 1
	})
	session := d.posts(progress)[0].header.Get(headerSession)
	for i, s := range d.posts(progress) {
		if want := fmt.Sprintf(`{"progress":%d}`, i); string(s.message.Params) != want || s.header.Get(headerSession) != session {
			t.Errorf("message %d is %s over session %s", i, s.body, s.header.Get(headerSession))
		}
	}
	if len(d.posts("notifications/roots/list_changed")) != 0 || countRecorded(t, record, "early") != 0 || len(d.posts("notifications/early")) != 0 {
		t.Error("a server was told what was not for it")
	}
}

// TestLostSessionIsMadeOnce: however many find out.
func TestLostSessionIsMadeOnce(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		d := newWebDouble(t, nil)
		var calls atomic.Int32
		d.call = func(w http.ResponseWriter, s seen) {
			calls.Add(1)
			answer(w, s, `{}`)
		}
		d.first = func(w http.ResponseWriter, s seen) bool {
			id := s.header.Get(headerSession)
			if id == "" || d.has(id) || status == http.StatusNotFound {
				return false
			}
			fail(w, s, status, -32000, "Bad Request: no valid session", "")
			return true
		}
		p := newPool(t, alpha(d), quick(nil))
		m, err := callTool(t.Context(), p, "alpha", "ada", "read", "{}")
		must(t, m, err)
		for round := range 3 {
			d.restart()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					m, err := callTool(t.Context(), p, "alpha", "ada", "read", "{}")
					if err != nil || m.Error != nil {
						t.Errorf("a call on a lost session: %v %v", m, err)
					}
				})
			}
			all.Wait()
			if got, want := len(d.posts("initialize")), round+2; got != want {
				t.Errorf("%d: %d sessions were begun after %d losses", status, got, round+1)
			}
			if got, want := int(calls.Load()), 1+20*(round+1); got != want {
				t.Errorf("%d: %d calls were carried out, want %d", status, got, want)
			}
		}
	}
}

// TestTurnedAwayIsNotLost: what says nothing of the session begins no new one.
func TestTurnedAwayIsNotLost(t *testing.T) {
	var status atomic.Int32
	d := newWebDouble(t, nil)
	d.first = func(w http.ResponseWriter, s seen) bool {
		if status.Load() != 0 && s.message != nil && s.message.Method == "tools/call" {
			w.WriteHeader(int(status.Load()))
			return true
		}
		return false
	}
	p := newPool(t, alpha(d), quick(nil))
	m, err := callTool(t.Context(), p, "alpha", "ada", "read", "{}")
	must(t, m, err)
	for _, code := range []int32{http.StatusUnauthorized, http.StatusServiceUnavailable} {
		status.Store(code)
		_, err := callTool(t.Context(), p, "alpha", "ada", "read", "{}")
		wantKind(t, err, Unavailable, "alpha")
	}
	if n := len(d.posts("initialize")); n != 1 {
		t.Errorf("%d sessions were begun", n)
	}
}
