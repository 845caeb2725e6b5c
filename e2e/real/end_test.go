package real_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestDrain ends the gateway while a call is under way.
func TestDrain(t *testing.T) {
	s := newStand(t, everything, files, memory)
	s.run(t)
	session, err := connect(t, s.URL+"/mcp", s.tokens[builder], nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: files + "__list_allowed_directories"}); err != nil {
		t.Fatal(err)
	}
	ended, _ := s.begin(t, session, 2)
	from := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(s.URL, "http://")
	within(t, time.Second, "no new connection is taken", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	select {
	case o := <-ended:
		if o.err != nil || !strings.Contains(text(o.result), "completed") {
			t.Errorf("the call under way ended with %v, %q", o.err, text(o.result))
		}
	case <-s.exited:
		t.Error("the gateway ended before the call under way")
	}
	t.Logf("the call ended %v after SIGTERM", time.Since(from).Round(time.Millisecond))
	s.stop(t) // waits, and wants exit status 0
	t.Logf("the gateway ended %v after SIGTERM", time.Since(from).Round(time.Millisecond))
	if err := session.Close(); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Logf("closing the session: %v", err) // its gateway is gone
	}
	s.nothingLeft(t)
	records, err := os.ReadFile(filepath.Join(s.dir, "decisions.jsonl"))
	if err != nil || !strings.Contains(string(records), `"name":"trigger-long-running-operation"`) {
		t.Errorf("the decision on the call under way is not on record: %v", err)
	}
}

// TestDrainEnds ends the gateway while calls are under way that take longer
// than they are given then. They are answered all the same.
func TestDrainEnds(t *testing.T) {
	s := newStand(t, everything)
	s.config["limits"] = map[string]any{"drain": "1s"}
	s.run(t)
	under := map[string]<-chan outcome{}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		session, err := connectAs(t, version, s.URL+"/mcp", s.tokens[builder], nil)
		if err != nil {
			t.Fatal(err)
		}
		under[version], _ = s.begin(t, session, 60)
	}
	from := time.Now()
	s.stop(t)
	took := time.Since(from)
	if took < time.Second || took > 5*time.Second {
		t.Errorf("the gateway ended %v after SIGTERM, want a little more than 1s", took)
	}
	t.Logf("the gateway ended %v after SIGTERM", took.Round(time.Millisecond))
	for version, ended := range under {
		o := <-ended
		t.Logf("%s: the call under way ended with: %v", version, o.err)
		failure(t, o.err, everything)
	}
	s.nothingLeft(t)
}

// TestGatewayKilled kills the gateway, which cannot end its servers any more.
// What it started dies with it, and what that started finds its input closed.
func TestGatewayKilled(t *testing.T) {
	s := newStand(t, everything, files, memory)
	s.run(t)
	session, err := connect(t, s.URL+"/mcp", s.tokens[builder], nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: files + "__list_allowed_directories"}); err != nil {
		t.Fatal(err)
	}
	kill(t, s.cmd.Process.Pid)
	<-s.exited
	s.err = nil // as it should be
	s.nothingLeft(t)
}

// nothingLeft waits until no process of a server runs any more.
func (s *stand) nothingLeft(t *testing.T) {
	t.Helper()
	seen := 0
	for server, r := range s.recorders {
		for _, m := range r.messages(t) {
			for _, pid := range m.pids {
				seen++
				within(t, 5*time.Second, "no process of server "+server+" is left", func() bool { return !alive(t, pid) })
			}
		}
	}
	if seen == 0 {
		t.Error("no process of a server was seen")
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// alive reports whether the process runs. One that has ended and that nobody
// has asked for its status yet does not.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if process.Signal(syscall.Signal(0)) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}
