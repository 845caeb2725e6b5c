// Package redisserver runs a real redis-server for a test.
package redisserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Server is a redis-server on a port and in a directory of its own. What it
// keeps over a restart is for its arguments to say.
type Server struct {
	Addr string   // host:port
	Args []string // of the next start

	t   testing.TB
	dir string
	cmd *exec.Cmd
}

// Durable are the arguments of a server that forgets nothing when it is killed.
func Durable() []string { return []string{"--appendonly", "yes", "--appendfsync", "always"} }

// Start runs a server with these arguments until the test ends, and returns when
// it answers. Without a redis-server on the PATH the test fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), Args: args, t: t, dir: t.TempDir()}
	l.Close()
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Start runs the server again after Kill.
func (s *Server) Start() {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("these tests need a redis-server on the PATH: %v", err)
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir}, s.Args...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !s.answers(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("redis-server does not answer")
		}
	}
}

func (s *Server) answers() bool {
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second)) // a connection that is closed is no answer either
	fmt.Fprint(c, "PING\r\n")
	n, _ := c.Read(make([]byte, 64))
	return n > 0
}

// Kill leaves the server no time to say goodbye. It may be dead already.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed
	s.cmd = nil
}

// Signal sends a signal to the running server, such as SIGSTOP.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }
