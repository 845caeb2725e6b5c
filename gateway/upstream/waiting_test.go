package upstream

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// TestCallsWaitForTheOwnStream where the peer can be asked: some servers ask on
// it during the call, and ask nobody while it is not open.
func TestCallsWaitForTheOwnStream(t *testing.T) {
	d := newWebDouble(t, nil)
	goOn, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done) })
	var gets atomic.Int32
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.method != http.MethodGet {
			return false
		}
		if gets.Add(1) == 1 {
			<-goOn
		}
		stream(w, s)(": open\n\n")
		<-done
		return true
	}
	p := newPool(t, alpha(d), quick(nil))
	answered := make(chan error, 1)
	call := func(peer Peer) error {
		_, err := p.Do(t.Context(), Call{Server: "alpha", Peer: peer, Method: "tools/call", Params: jsontext.Value(`{"name":"read"}`)})
		return err
	}
	go func() { answered <- call(ablePeer("ada")) }()
	eventually(t, "the GET", func() bool { return gets.Load() == 1 })
	time.Sleep(300 * time.Millisecond)
	if n := len(d.posts("tools/call")); n != 0 {
		t.Errorf("%d calls were sent before the stream was open", n)
	}
	close(goOn)
	if err := receive(t, answered, "the answer"); err != nil {
		t.Error(err)
	}
	if n := len(d.posts("tools/call")); n != 1 {
		t.Errorf("%d calls were sent, want 1", n)
	}
}

// TestCallsWaitForNoStreamInVain: of those who cannot be asked none waits, and
// the others do not for ever.
func TestCallsWaitForNoStreamInVain(t *testing.T) {
	d := newWebDouble(t, nil)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	d.first = func(w http.ResponseWriter, s seen) bool {
		if s.method != http.MethodGet {
			return false
		}
		<-done // it never says whether it has one
		return true
	}
	p := newPool(t, alpha(d), quick(nil))
	for _, tt := range []struct {
		peer        *tester
		least, most time.Duration
	}{
		{testPeer("bob"), 0, 1500 * time.Millisecond},
		{ablePeer("ada"), 1900 * time.Millisecond, time.Minute},
		{ablePeer("ada"), 0, 1500 * time.Millisecond}, // it has waited once
	} {
		call := func() time.Duration {
			began := time.Now()
			m, err := p.Do(t.Context(), Call{Server: "alpha", Peer: tt.peer, Method: "tools/call", Params: jsontext.Value(`{"name":"read"}`)})
			must(t, m, err)
			return time.Since(began)
		}
		took := call()
		for range 5 { // of those who never wait, one is not held up by the machine
			if tt.least == 0 && took > tt.most {
				took = min(took, call())
			}
		}
		if took < tt.least || took > tt.most {
			t.Errorf("the call of %s took %s, want between %s and %s", tt.peer.key, took, tt.least, tt.most)
		}
	}
}

// TestForgottenSessionsAreDropped where the server turns everything in them
// away: the next call begins anew. One that still answers pings is kept.
func TestForgottenSessionsAreDropped(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable} {
		d := newWebDouble(t, nil)
		var refuse atomic.Bool
		d.first = func(w http.ResponseWriter, s seen) bool {
			id := s.header.Get("Mcp-Session-Id")
			call := s.message != nil && s.message.Method == "tools/call"
			if id == "" || s.method != http.MethodPost || d.has(id) && !(call && refuse.Load()) {
				return false
			}
			w.WriteHeader(status)
			return true
		}
		p := newPool(t, alpha(d), quick(nil))
		call := func() error {
			_, err := callTool(t.Context(), p, "alpha", "ada", "read", "{}")
			return err
		}
		sessions := func() int { return len(d.posts("initialize")) }
		if err := call(); err != nil {
			t.Fatal(err)
		}
		d.restart()
		if err := call(); err == nil {
			t.Errorf("%d: the call was sent again, although it may have been carried out", status)
		}
		if err := call(); err != nil || sessions() != 2 {
			t.Errorf("%d: the next call: %v, after %d sessions, want 2", status, err, sessions())
		}
		refuse.Store(true)
		if err := call(); err == nil {
			t.Errorf("%d: a call that is refused has no error", status)
		}
		refuse.Store(false)
		if err := call(); err != nil || sessions() != 2 {
			t.Errorf("%d: in a session that lives: %v, after %d sessions, want 2", status, err, sessions())
		}
	}
}
