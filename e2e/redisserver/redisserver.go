// Package redisserver runs real redis-servers for a test: one, a master with
// replicas and sentinels, a cluster.
package redisserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	tls bool
	cmd *exec.Cmd
}

// Durable are the arguments of a server that forgets nothing when it is killed.
func Durable() []string { return []string{"--appendonly", "yes", "--appendfsync", "always"} }

// Start runs a server with these arguments until the test ends, and returns when
// it answers. Without a redis-server on the PATH the test fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: address(t), Args: args, t: t, dir: t.TempDir()}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// StartTLS runs a server that speaks TLS only and wants a certificate that the root
// issued. The arguments are names of PEM files.
func StartTLS(t testing.TB, cert, key, root string) *Server {
	t.Helper()
	s := &Server{Addr: address(t), t: t, dir: t.TempDir(), tls: true}
	s.Args = []string{"--port", "0", "--tls-port", Port(s.Addr), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", root}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// address is one that nobody listens on.
func address(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Start runs the server again after Kill.
func (s *Server) Start() {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("these tests need a redis-server on the PATH: %v", err)
	}
	args := append([]string{"--port", Port(s.Addr), "--bind", "127.0.0.1", "--save", "", "--dir", s.dir}, s.Args...)
	if conf := filepath.Join(s.dir, sentinelFile); exists(conf) {
		args = append([]string{conf, "--sentinel"}, s.Args...)
	}
	s.cmd = exec.Command(path, args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !s.answers(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("redis-server does not answer")
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Port is that of host:port, or "".
func Port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func (s *Server) answers() bool {
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return false
	}
	defer c.Close()
	if s.tls {
		return true // it listens as the last thing
	}
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
