//go:build unix

// Package pgserver runs a real PostgreSQL for a test.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a PostgreSQL on a port and in a directory of its own. Its superuser
// is regogate, whom it trusts; others need their password.
type Server struct {
	Addr   string   // host:port
	Socket string   // directory of its unix socket
	Dir    string   // its data
	Args   []string // of postgres, at the next start

	t   testing.TB
	bin string
	as  *syscall.Credential // nil is whoever runs the test
	log string
	cmd *exec.Cmd
}

// Start makes a cluster and runs it, with further arguments of postgres, until
// the test ends. It returns when the server answers. Without PostgreSQL the test
// fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := place(t, args)
	s.run("initdb", "-D", s.Dir, "-U", "regogate", "--no-sync", "-E", "UTF8", "--locale=C", "-A", "trust")
	rules := "local all regogate trust\nhost all regogate 127.0.0.1/32 trust\nhost replication regogate 127.0.0.1/32 trust\n" +
		"local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n"
	s.Write("pg_hba.conf", rules)
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Standby runs a hot standby of the server until the test ends.
func (s *Server) Standby() *Server {
	s.t.Helper()
	standby := place(s.t, s.Args)
	host, port, _ := net.SplitHostPort(s.Addr)
	standby.run("pg_basebackup", "-D", standby.Dir, "-R", "--no-sync", "-c", "fast", "-h", host, "-p", port, "-U", "regogate")
	standby.Start()
	s.t.Cleanup(standby.Kill)
	return standby
}

// place is a server that has nothing yet but where it is going to be.
func place(t testing.TB, args []string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	// A unix socket's path is bounded, and those of a test's own directory are long.
	root, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	s := &Server{
		Addr: l.Addr().String(), Socket: root, Dir: filepath.Join(root, "data"),
		t: t, bin: binaries(t), log: filepath.Join(root, "log"), Args: args,
	}
	s.own(root)
	return s
}

// run runs one of PostgreSQL's programs to its end.
func (s *Server) run(name string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := s.command(ctx, name, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// URL is the address of a database for a role, without a password.
func (s *Server) URL(role, database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s", role, s.Addr, database)
}

// binaries finds where PostgreSQL is: on the PATH, or where Debian puts it.
func binaries(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Fatal("these tests need PostgreSQL: apt-get install postgresql")
	}
	return filepath.Dir(slices.Max(found))
}

// own gives the directory to the role that PostgreSQL runs as, which must not be
// root.
func (s *Server) own(dir string) {
	s.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		s.t.Fatalf("as root these tests need the user postgres: apt-get install postgresql: %v", err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.Socket
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// Write writes a file of its data, such as pg_hba.conf, which it reads when it
// starts.
func (s *Server) Write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if s.as == nil {
		return
	}
	if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
		s.t.Fatal(err)
	}
}

// Start runs the server again after Kill or Stop.
func (s *Server) Start() {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	args := append([]string{"-D", s.Dir, "-h", host, "-p", port, "-k", s.Socket,
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "shared_buffers=16MB",
		"-c", "max_connections=50", "-c", "autovacuum=off", "-c", "restart_after_crash=off"}, s.Args...)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if s.cmd == nil {
			s.cmd = s.command(context.Background(), "postgres", args...)
			s.cmd.Stdout, s.cmd.Stderr = out, out
			if err := s.cmd.Start(); err != nil {
				s.t.Fatal(err)
			}
		}
		if s.answers() {
			return
		}
		// What a killed server left behind may hold on to its memory for a moment.
		if pid, _ := syscall.Wait4(s.cmd.Process.Pid, nil, syscall.WNOHANG, nil); pid != 0 {
			s.cmd = nil
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(s.log)
			s.t.Fatalf("PostgreSQL does not answer:\n%s", text)
		}
	}
}

func (s *Server) answers() bool {
	host, port, _ := net.SplitHostPort(s.Addr)
	return s.command(context.Background(), "pg_isready", "-q", "-h", host, "-p", port, "-t", "2").Run() == nil
}

// Kill leaves the server no time to say goodbye. It may be dead already.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	// Stopped children would outlive it, and hold on to its shared memory.
	if err := s.Signal(syscall.SIGKILL); err != nil {
		_ = s.cmd.Process.Kill()
	}
	_ = s.cmd.Wait() // it was killed
	s.cmd = nil
}

// Stop ends the server in good order, and every connection with it.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait() // it says how it ended
	s.cmd = nil
}

// Signal sends a signal to the server and to all its processes, each of which is
// a session of its own, such as SIGSTOP.
func (s *Server) Signal(sig syscall.Signal) error {
	parent := s.cmd.Process.Pid
	children, err := exec.Command("pgrep", "-P", strconv.Itoa(parent)).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("these tests need pgrep: apt-get install procps: %w", err)
	}
	err = syscall.Kill(parent, sig) // no children is an error of pgrep's, but none here
	for _, field := range strings.Fields(string(children)) {
		if pid, err := strconv.Atoi(field); err == nil {
			_ = syscall.Kill(pid, sig) // it may have ended meanwhile
		}
	}
	return err
}

// Exec runs SQL as the superuser, a statement each, and returns what psql prints:
// values alone, | between columns.
func (s *Server) Exec(database string, sql ...string) string {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	args := []string{"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", port, "-U", "regogate", "-d", database}
	for _, statement := range sql {
		args = append(args, "-c", statement)
	}
	return s.run("psql", args...)
}
