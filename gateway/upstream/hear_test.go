package upstream

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// TestWhoHearsWhat: of what a server says during a call.
func TestWhoHearsWhat(t *testing.T) {
	for _, modern := range []bool{false, true} {
		d := newWebDouble(t, func(d *webDouble) { d.modern = modern })
		d.call = func(w http.ResponseWriter, s seen) {
			send := stream(w, s)
			for _, method := range []string{
				mcpMessage, updated, elicited, taskStatus, toolsChanged, promptsChanged, resourcesChanged, cancelled, "notifications/other",
			} {
				send("data: {\"jsonrpc\":\"2.0\",\"method\":\"" + method + "\",\"params\":{}}\n\n")
			}
			send("data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n")
		}
		o := quick(nil)
		o.Refresh = time.Hour
		p := running(t, alpha(d), o)
		looked := len(d.posts("tools/list"))
		ada := testPeer("ada")
		var during, alone []string
		call := Call{Server: "alpha", Peer: ada, Method: "tools/call", Params: jsontext.Value(`{"name":"read"}`)}
		call.Notify = func(m *mcp.Message) { during = append(during, m.Method) }
		m, err := p.Do(t.Context(), call)
		must(t, m, err)
		for len(ada.notes) > 0 {
			alone = append(alone, (<-ada.notes).Method)
		}
		if want := []string{mcpMessage, "notifications/other"}; !slices.Equal(during, want) {
			t.Errorf("modern %v: the call heard %q, want %q", modern, during, want)
		}
		if want := []string{updated, elicited, taskStatus}; !slices.Equal(alone, want) {
			t.Errorf("modern %v: the peer heard %q, want %q", modern, alone, want)
		}
		eventually(t, "another look", func() bool { return len(d.posts("tools/list")) > looked })
		// A call that does not listen leaves nothing to the peer.
		call.Notify = nil
		m, err = p.Do(t.Context(), call)
		must(t, m, err)
		if n := len(ada.notes); n != 3 {
			t.Errorf("modern %v: the peer heard %d of a call that does not listen", modern, n)
		}
		p.Close()
	}
}

const mcpMessage = "notifications/message"

// TestStdioHearsAlone: what comes when no call is under way.
func TestStdioHearsAlone(t *testing.T) {
	c, _ := doubleConfig(t)
	p := newPool(t, one(c), quick(nil))
	ada := testPeer("ada")
	m, err := callTool(t.Context(), p, "gamma", "bob", "echo", "{}")
	must(t, m, err)
	m, err = p.Do(t.Context(), Call{Server: "gamma", Peer: ada, Method: "tools/call", Params: jsontext.Value(`{"name":"echo"}`)})
	must(t, m, err)
	if got := ada.told(t, mcpMessage); got != `{"level":"info","data":"early"}` {
		t.Errorf("told %s", got)
	}
	if len(ada.notes) != 0 {
		t.Errorf("and told of %d more", len(ada.notes))
	}
}

// TestStdioListensAgain: when the server has ended the subscription.
func TestStdioListensAgain(t *testing.T) {
	c, record := doubleConfig(t, "modern")
	p := newPool(t, one(c), quick(nil))
	ada := testPeer("ada")
	m, err := p.Subscribe(t.Context(), "gamma", ada, "test://a")
	must(t, m, err)
	const asked = `"notifications":{"resourceSubscriptions":["test://a"]}`
	for want := 2; want <= 3; want++ {
		m, err = callTool(t.Context(), p, "gamma", "ada", "unlisten", "{}")
		must(t, m, err)
		eventually(t, "another subscription", func() bool { return countRecorded(t, record, asked) == want })
	}
	if err := p.Unsubscribe(t.Context(), "gamma", ada, "test://a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the last one", func() bool { return countRecorded(t, record, cancelled) == 1 })
	var listened, ended string
	for _, line := range recorded(t, record) {
		_, text, _ := strings.Cut(line, " ")
		m, bad := mcp.Parse([]byte(text))
		switch {
		case bad != nil:
		case m.Method == listen:
			listened = string(m.ID.Raw())
		case m.Method == cancelled:
			id, _ := cancelledID(m)
			ended = string(id.Raw())
		}
	}
	if listened == "" || listened != ended {
		t.Errorf("the end of %q was told, of %q was to be", ended, listened)
	}
}

// TestEventsTellAndAsk: over a server's one stream.
func TestEventsTellAndAsk(t *testing.T) {
	d := newEventsDouble(t)
	p := newPool(t, beta(d), quick(nil))
	ada := ablePeer("ada")
	m, err := p.Do(t.Context(), Call{Server: "beta", Peer: ada, Method: "tools/call", Params: jsontext.Value(`{"name":"read"}`)})
	must(t, m, err)
	p.Tell("beta", "ada", mcp.NewRequest(mcp.ID{}, "notifications/roots/list_changed", nil))
	eventually(t, "what was told", func() bool { return len(d.bodies("notifications/roots/list_changed")) == 1 })
	d.mu.Lock()
	texts := d.sessions["1"].texts
	d.mu.Unlock()
	texts <- `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`
	texts <- `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}`
	eventually(t, "the answer", func() bool { return len(d.bodies("")) == 1 })
	if got, want := d.bodies("")[0], `{"jsonrpc":"2.0","id":"r","result":{"roots":[{"uri":"file:///ada"}]}}`; strings.TrimSpace(got) != want {
		t.Errorf("the answer is %s, want %s", got, want)
	}
	if got := ada.told(t, updated); got != `{"uri":"a:b"}` {
		t.Errorf("told %s", got)
	}
}

// TestProgressOnTheOwnStream: there are servers that do not say it where the
// answer comes.
func TestProgressOnTheOwnStream(t *testing.T) {
	d := newWebDouble(t, nil)
	say, said := make(chan string), make(chan struct{})
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.method != http.MethodGet {
			return false
		}
		send := stream(w, s)
		send(": open\n\n")
		for text := range say {
			send(text)
		}
		return true
	}
	t.Cleanup(func() { close(say) })
	d.call = func(w http.ResponseWriter, s seen) {
		meta, _ := mcp.ReadMeta(s.message.Params)
		say <- `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99,"progress":1}}` + "\n\n"
		say <- `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(meta.ProgressToken) + `,"progress":2}}` + "\n\n"
		<-said
		answer(w, s, "{}")
	}
	p := newPool(t, alpha(d), quick(nil))
	ada := testPeer("ada")
	m, err := p.Do(t.Context(), Call{
		Server: "alpha", Peer: ada, Method: "tools/call", Params: jsontext.Value(`{"name":"read","_meta":{"progressToken":"mine"}}`),
		Notify: func(m *mcp.Message) {
			if got := string(m.Params); got != `{"progressToken":"mine","progress":2}` {
				t.Errorf("told %s", got)
			}
			close(said)
		},
	})
	must(t, m, err)
	if len(ada.notes) != 0 {
		t.Error("the peer heard of it as well")
	}
}

// TestNoOwnStream: a server without one, whatever it says in answer to a GET,
// has its sessions all the same.
func TestNoOwnStream(t *testing.T) {
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusNotFound, http.StatusBadRequest, http.StatusOK, http.StatusNotImplemented} {
		d := newWebDouble(t, nil)
		d.first = func(w http.ResponseWriter, s seen) bool {
			if s.method != http.MethodGet && (s.message == nil || s.message.Method != "ping") {
				return false
			}
			w.WriteHeader(status)
			return true
		}
		p := newPool(t, alpha(d), quick(nil))
		gets := func() int { return len(d.got(func(s seen) bool { return s.method == http.MethodGet })) }
		m, err := callTool(t.Context(), p, "alpha", "ada", "read", "{}")
		must(t, m, err)
		eventually(t, "the GET", func() bool { return gets() == 1 })
		m, err = callTool(t.Context(), p, "alpha", "ada", "read", "{}")
		must(t, m, err)
		p.Close()
		if n := len(d.posts("initialize")); n != 1 || gets() != 1 {
			t.Errorf("%d: %d sessions, %d GETs", status, n, gets())
		}
	}
}
