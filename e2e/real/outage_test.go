package real_test

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// slow is a tool that takes as long as it is told to.
const slow = everything + "__trigger-long-running-operation"

// outcome is how a call ended.
type outcome struct {
	result *mcp.CallToolResult
	err    error
}

// begin calls the slow tool and returns when the call has arrived at the
// server, with the process ids of the server and its tee.
func (s *stand) begin(t *testing.T, session *mcp.ClientSession, seconds float64) (<-chan outcome, []int) {
	t.Helper()
	calls := func() []message {
		return slices.DeleteFunc(s.recorders[everything].messages(t), func(m message) bool { return m.Method != "tools/call" })
	}
	before := len(calls())
	ended := make(chan outcome, 1)
	go func() {
		params := &mcp.CallToolParams{Name: slow, Arguments: map[string]any{"duration": seconds, "steps": 2}}
		// Not the test's context, which ends before the cleanup that waits for this.
		result, err := session.CallTool(context.WithoutCancel(t.Context()), params)
		ended <- outcome{result, err}
	}()
	within(t, 10*time.Second, "the call arrives", func() bool { return len(calls()) > before })
	return ended, calls()[before].pids
}

// failure checks that an error is a server's failure and names the server.
func failure(t *testing.T, err error, server string) {
	t.Helper()
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || wire.Code != -32603 || !strings.Contains(wire.Message, "server "+server+" ") {
		t.Errorf("got %v, want -32603 and the name of server %s", err, server)
	}
}

// TestServerKilled kills the process of a server over stdio in the middle of a
// call.
func TestServerKilled(t *testing.T) {
	s := newStand(t, everything, files)
	s.run(t)
	session, err := connect(t, s.URL+"/mcp", s.tokens[builder], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	visible, _ := s.expected(t, builder)
	m := s.newMark(t, "killed")
	call := func(name string) (*mcp.CallToolResult, error) {
		return session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: m.arguments(t, name)})
	}
	works := func(name string) {
		t.Helper()
		if result, err := call(name); err != nil || result.IsError {
			t.Errorf("%s: %v %s", name, err, text(result))
		}
	}
	works(files + "__list_directory")

	ended, pids := s.begin(t, session, 30)
	kill(t, pids[1])
	select {
	case o := <-ended:
		failure(t, o.err, everything)
	case <-time.After(5 * time.Second):
		t.Fatal("the call goes on 5s after its server was killed")
	}
	works(files + "__list_directory")
	if names, err := listNames(t, session); err != nil || !slices.Equal(names, visible) {
		t.Errorf("listed %v, %v; want %v", names, err, visible)
	}
	took := within(t, 10*time.Second, "the server works again", func() bool {
		result, err := call(everything + "__echo")
		if err != nil {
			failure(t, err, everything)
			return false
		}
		return text(result) == "Echo: killed"
	})
	t.Logf("it worked again after %v", took.Round(time.Millisecond))
	within(t, 10*time.Second, "ready", func() bool { return s.status(t) == "ready" })
	all := s.recorders[everything].messages(t)
	if last := all[len(all)-1]; last.pids[1] == pids[1] {
		t.Errorf("the last message went to the process that was killed: %s", last.raw)
	}
	for _, pid := range pids {
		within(t, 2*time.Second, "nothing of the killed server is left", func() bool { return !alive(t, pid) })
	}
}

// TestServerDown takes a server over HTTP away and brings it back.
func TestServerDown(t *testing.T) {
	s := newStand(t, files, ledger)
	s.run(t)
	session, err := connect(t, s.URL+"/mcp", s.tokens[clerk], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	visible, _ := s.expected(t, clerk)
	call := func(name string, arguments any) error {
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
		return err
	}
	if err := call(ledger+"__list_charges", nil); err != nil {
		t.Fatal(err)
	}
	address := s.ledger.Listener.Addr().String()
	s.ledger.CloseClientConnections()
	s.ledger.Close()
	within(t, 5*time.Second, "degraded", func() bool {
		failure(t, call(ledger+"__list_charges", nil), ledger)
		if err := call(files+"__list_directory", map[string]any{"path": s.files}); err != nil {
			t.Errorf("another server: %v", err)
		}
		return s.ready(t).Parts["backends"] == "degraded"
	})
	if names, err := listNames(t, session); err != nil || !slices.Equal(names, visible) {
		t.Errorf("listed %v, %v; want %v", names, err, visible)
	}
	hidden := call(ledger+"__create_refund", nil)
	if hidden == nil || !strings.Contains(hidden.Error(), "Unknown tool: "+ledger+"__create_refund") {
		t.Errorf("a hidden tool of the server: got %v, want an unknown tool", hidden)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(s.books)
	again.Listener.Close()
	again.Listener = listener
	again.Start()
	defer again.Close()
	took := within(t, 10*time.Second, "the server works again", func() bool { return call(ledger+"__list_charges", nil) == nil })
	t.Logf("it worked again after %v", took.Round(time.Millisecond))
	within(t, 10*time.Second, "ready", func() bool { return s.status(t) == "ready" })
}
