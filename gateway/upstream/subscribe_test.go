package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/regogate/regogate/gateway/mcp"
)

// restartable is an official server over HTTP that can be started anew.
type restartable struct {
	*httptest.Server
	all     []*sdk.Server
	now     atomic.Pointer[sdk.Server]
	handler atomic.Pointer[sdk.StreamableHTTPHandler]
	options sdk.StreamableHTTPOptions
}

func newRestartable(t *testing.T, o sdk.StreamableHTTPOptions) *restartable {
	r := &restartable{options: o}
	r.restart()
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.handler.Load().ServeHTTP(w, q) }))
	t.Cleanup(func() {
		r.Close()
		for _, s := range r.all { // each waits for its calls to end
			for ss := range s.Sessions() {
				ss.Close()
			}
		}
	})
	return r
}

func (r *restartable) restart() {
	s := officialServer()
	r.now.Store(s)
	r.all = append(r.all, s)
	r.handler.Store(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &r.options))
	if r.Server != nil {
		r.CloseClientConnections()
	}
}

// touchUntil says that a resource has changed until somebody has heard of it.
func (r *restartable) touchUntil(t *testing.T, uri string, peer *tester) {
	t.Helper()
	eventually(t, peer.key+" to hear of "+uri, func() bool {
		if err := r.now.Load().ResourceUpdated(t.Context(), &sdk.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
		for len(peer.notes) > 0 {
			if m := <-peer.notes; m.Method == updated && strings.Contains(string(m.Params), uri) {
				return true
			}
		}
		return false
	})
}

// TestSubscriptionsOutliveTheirSession: without anybody asking again.
func TestSubscriptionsOutliveTheirSession(t *testing.T) {
	for name, o := range map[string]sdk.StreamableHTTPOptions{
		"legacy": {}, "resumable": {EventStore: sdk.NewMemoryEventStore(nil)}, "modern": {Stateless: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestartable(t, o)
			p := newPool(t, map[string]Config{"official": {URL: r.URL}}, quick(nil))
			ada := testPeer("ada")
			for _, uri := range []string{"test://one", "test://two"} {
				m, err := p.Subscribe(t.Context(), "official", ada, uri)
				must(t, m, err)
			}
			for range 2 {
				r.restart()
				r.touchUntil(t, "test://one", ada)
				r.touchUntil(t, "test://two", ada)
			}
			if err := p.Unsubscribe(t.Context(), "official", ada, "test://one"); err != nil {
				t.Fatal(err)
			}
			r.restart()
			r.touchUntil(t, "test://two", ada)
			p.Close()
		})
	}
}

// TestStdioSubscriptionOutlivesItsProcess.
func TestStdioSubscriptionOutlivesItsProcess(t *testing.T) {
	c, record := doubleConfig(t)
	p := newPool(t, one(c), quick(nil))
	m, err := p.Subscribe(t.Context(), "gamma", testPeer("ada"), "test://a")
	must(t, m, err)
	for want := 2; want <= 3; want++ {
		eventually(t, "the end of the process", func() bool {
			_, err := callTool(t.Context(), p, "gamma", "ada", "die", "{}")
			return kindOf(err.(*Error).Err) == Broken
		})
		eventually(t, "another subscription", func() bool { return countRecorded(t, record, subscribe) == want })
	}
	p.Release("ada")
	eventually(t, "the end of the last process", func() bool { return len(p.Open("ada")) == 0 })
	if n := countRecorded(t, record, subscribe); n != 3 {
		t.Errorf("subscribed %d times", n)
	}
}

// TestSubscribeRefused: what the server says of it, and what cannot be said.
func TestSubscribeRefused(t *testing.T) {
	for _, modern := range []bool{false, true} {
		d := newWebDouble(t, func(d *webDouble) { d.modern = modern })
		p := newPool(t, alpha(d), quick(nil))
		for range 2 { // it is not remembered
			m, err := p.Subscribe(t.Context(), "alpha", testPeer("ada"), "test://a")
			if err != nil || m.Err() == nil || m.Err().Code != mcp.CodeMethodNotFound {
				t.Fatalf("modern %v: a refusal is %v, %v", modern, m, err)
			}
		}
		if n := len(d.posts(subscribe)) + len(d.posts(listen)); n != 2 {
			t.Errorf("modern %v: asked %d times", modern, n)
		}
		if err := p.Unsubscribe(t.Context(), "alpha", testPeer("ada"), "test://a"); err != nil {
			t.Errorf("modern %v: the end of nothing: %v", modern, err)
		}
		if len(p.servers["alpha"].subs.quota.of) != 0 {
			t.Errorf("modern %v: refusals count", modern)
		}
	}
	p := newPool(t, map[string]Config{"alpha": {URL: "http://127.0.0.1:1/mcp"}}, quick(nil))
	_, err := p.Subscribe(t.Context(), "alpha", testPeer("ada"), "test://a")
	wantKind(t, err, Unavailable, "alpha")
	_, err = p.Subscribe(t.Context(), "beta", testPeer("ada"), "test://a")
	wantKind(t, err, Unavailable, "beta")
}

// TestListenInPart: a modern server that agrees to some resources only.
func TestListenInPart(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) { d.modern = true })
	agreed := `"test://a","test://b"`
	var open atomic.Int32
	done := make(chan struct{})
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.message == nil || s.message.Method != listen {
			return false
		}
		open.Add(1)
		send := stream(w, s)
		send("data: {\"jsonrpc\":\"2.0\",\"method\":\"" + acknowledged + "\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":ID},\"notifications\":{\"resourceSubscriptions\":[" + agreed + "]}}}\n\n")
		send("data: {\"jsonrpc\":\"2.0\",\"method\":\"" + updated + "\",\"params\":{\"_meta\":{\"x\":1,\"io.modelcontextprotocol/subscriptionId\":ID},\"uri\":\"test://a\",\"n\":9007199254740993}}\n\n")
		<-done
		return true
	}
	t.Cleanup(func() { close(done) })
	ada := testPeer("ada")
	p := newPool(t, alpha(d), quick(nil))
	m, err := p.Subscribe(t.Context(), "alpha", ada, "test://a")
	must(t, m, err)
	if got, want := ada.told(t, updated), `{"_meta":{"x":1},"uri":"test://a","n":9007199254740993}`; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	m, err = p.Subscribe(t.Context(), "alpha", ada, "test://c")
	if err != nil || m.Err() == nil || m.Err().Code != mcp.CodeInvalidParams {
		t.Errorf("one that it does not agree to: %v, %v", m, err)
	}
	m, err = p.Subscribe(t.Context(), "alpha", ada, "test://b")
	must(t, m, err)
	sent := d.posts(listen)
	if want := `"notifications":{"resourceSubscriptions":["test://a","test://b"]}`; !strings.Contains(sent[len(sent)-1].body, want) {
		t.Errorf("%s is not in %s", want, sent[len(sent)-1].body)
	}
	p.Close()
}

// TestListenRefusedForOne: a modern server that refuses all resources for one
// of them, which it knew before.
func TestListenRefusedForOne(t *testing.T) {
	d := newWebDouble(t, func(d *webDouble) { d.modern = true })
	var broken atomic.Bool
	cut, done := make(chan struct{}), make(chan struct{})
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.message == nil || s.message.Method != listen {
			return false
		}
		if broken.Load() && strings.Contains(s.body, "test://b") {
			fail(w, s, http.StatusOK, mcp.CodeInvalidParams, "no such resource", "")
			return true
		}
		params, _ := mcp.Split(s.message.Params)
		send := stream(w, s)
		send("data: {\"jsonrpc\":\"2.0\",\"method\":\"" + acknowledged + "\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":ID},\"notifications\":" + string(mcp.Get(params, "notifications")) + "}}\n\n")
		if broken.Load() {
			send("data: {\"jsonrpc\":\"2.0\",\"method\":\"" + updated + "\",\"params\":{\"uri\":\"test://a\"}}\n\n")
			<-done
		}
		<-cut
		return true
	}
	t.Cleanup(func() { close(done) })
	ada := testPeer("ada")
	p := newPool(t, alpha(d), quick(nil))
	for _, uri := range []string{"test://a", "test://b"} {
		m, err := p.Subscribe(t.Context(), "alpha", ada, uri)
		must(t, m, err)
	}
	broken.Store(true)
	close(cut)
	if got := ada.told(t, updated); !strings.Contains(got, "test://a") {
		t.Errorf("told %s", got)
	}
	m, err := p.Subscribe(t.Context(), "alpha", ada, "test://bb")
	if err != nil || m.Err() == nil || m.Err().Code != mcp.CodeInvalidParams {
		t.Errorf("one that it refuses: %v, %v", m, err)
	}
	m, err = p.Subscribe(t.Context(), "alpha", ada, "test://c")
	must(t, m, err)
	p.Close()
}

// TestSubscriptionsAreBounded: for each key, over all servers.
func TestSubscriptionsAreBounded(t *testing.T) {
	d := newWebDouble(t, nil)
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.message == nil || s.message.Method != subscribe {
			return false
		}
		answer(w, s, `{}`)
		return true
	}
	p := newPool(t, map[string]Config{"alpha": d.config(), "beta": d.config()}, quick(nil))
	ada := testPeer("ada")
	var all sync.WaitGroup
	for i := range subscriptionsMost {
		all.Go(func() {
			m, err := p.Subscribe(t.Context(), []string{"alpha", "beta"}[i%2], ada, fmt.Sprint("test://", i))
			if err != nil || m.Error != nil {
				t.Errorf("subscription %d: %v, %v", i, m, err)
			}
		})
	}
	all.Wait()
	m, err := p.Subscribe(t.Context(), "alpha", ada, "test://more")
	if err != nil || m.Err() == nil || m.Err().Code != mcp.CodeTooManyRequests {
		t.Errorf("one too many: %v, %v", m, err)
	}
	m, err = p.Subscribe(t.Context(), "alpha", ada, "test://0")
	must(t, m, err)
	m, err = p.Subscribe(t.Context(), "alpha", testPeer("bob"), "test://more")
	must(t, m, err)
	if n := len(d.posts(subscribe)); n != subscriptionsMost+1 {
		t.Errorf("%d were asked for", n)
	}
	p.Release("ada")
	m, err = p.Subscribe(t.Context(), "alpha", ada, "test://more")
	must(t, m, err)
}

// TestOwnStream: what a server says on a session's own stream, which is taken
// up where it was cut off.
func TestOwnStream(t *testing.T) {
	d := newWebDouble(t, nil)
	var round atomic.Int32
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.method != http.MethodGet {
			return false
		}
		n := round.Add(1)
		if n == 2 {
			fail(w, s, http.StatusBadRequest, -32000, "no replay here", "")
			return true
		}
		stream(w, s)(fmt.Sprintf("id: e%d\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"n\":%d}}\n\n", n, n))
		return true
	}
	p := newPool(t, alpha(d), quick(nil))
	ada := testPeer("ada")
	m, err := p.Do(t.Context(), Call{Server: "alpha", Peer: ada, Method: "tools/call", Params: jsontext.Value(`{"name":"read"}`)})
	must(t, m, err)
	for _, want := range []string{`{"n":1}`, `{"n":3}`, `{"n":4}`} {
		if got := ada.told(t, "notifications/message"); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	}
	var from []string
	for _, s := range d.got(func(s seen) bool { return s.method == http.MethodGet })[:4] {
		from = append(from, s.header.Get("Last-Event-Id"))
	}
	if want := []string{"", "e1", "", "e3"}; !slices.Equal(from, want) {
		t.Errorf("the stream was opened from %q, want %q", from, want)
	}
}

// TestReleaseEndsCalls: and closes the session, without waiting for either.
func TestReleaseEndsCalls(t *testing.T) {
	d := newWebDouble(t, nil)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	d.call = func(w http.ResponseWriter, s seen) { <-done }
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.method == http.MethodDelete {
			<-done
		}
		return false
	}
	p := newPool(t, alpha(d), quick(nil))
	failed := make(chan error, 1)
	go func() {
		_, err := callTool(t.Context(), p, "alpha", "ada", "read", "{}")
		failed <- err
	}()
	eventually(t, "the call", func() bool { return len(d.posts("tools/call")) == 1 })
	began := time.Now()
	p.Release("ada")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Release took %s", took)
	}
	wantKind(t, receive(t, failed, "the end of the call"), Canceled, "alpha")
	eventually(t, "the end of the session", func() bool {
		return len(d.got(func(s seen) bool { return s.method == http.MethodDelete })) == 1
	})
	p.Release("ada")
	p.Release("nobody")
}

// TestConversationsEndAllAtOnce: whatever is under way when a key is released,
// sessions are lost, or the pool closes, nothing is left and nobody hangs.
func TestConversationsEndAllAtOnce(t *testing.T) {
	r := newRestartable(t, sdk.StreamableHTTPOptions{})
	c, _ := doubleConfig(t)
	c.Shared = true
	p := running(t, map[string]Config{"official": {URL: r.URL}, "gamma": c}, quick(nil))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	loop := func(f func(i int)) {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f(i)
			}
		})
	}
	for _, key := range []string{"ada", "bob", "eve"} {
		peer := ablePeer(key)
		peer.notes = nil
		quiet := &quietPeer{tester: peer}
		loop(func(i int) {
			text := []string{"sampling", "roots", "elicitation"}[i%3]
			p.Do(ctx, Call{Server: "official", Peer: quiet, Method: "tools/call", Params: ofTool("ask", text), LogLevel: "info",
				Ask: func(_ context.Context, m *mcp.Message) *mcp.Message { return answerAs(key, m) }})
		})
		loop(func(i int) {
			server := []string{"official", "gamma"}[i%2]
			p.Subscribe(ctx, server, quiet, "test://one")
			p.Tell("", key, mcp.NewRequest(mcp.ID{}, "notifications/roots/list_changed", nil))
			p.Open(key)
			p.Unsubscribe(ctx, server, quiet, "test://one")
		})
		loop(func(i int) {
			time.Sleep(50 * time.Millisecond)
			p.Release(key)
		})
	}
	loop(func(int) {
		time.Sleep(300 * time.Millisecond)
		r.restart()
	})
	time.Sleep(1500 * time.Millisecond)
	p.Close() // while all of it goes on
	cancel()
	all.Wait()
	if n := len(p.servers["official"].subs.quota.of); n != 0 {
		t.Errorf("subscriptions of %d keys are left", n)
	}
	if err := p.Unsubscribe(t.Context(), "official", testPeer("ada"), "test://one"); err == nil {
		t.Error("a pool that is closed takes requests")
	}
}

// quietPeer does not want to know.
type quietPeer struct{ *tester }

func (quietPeer) Notify(string, *mcp.Message) {}
