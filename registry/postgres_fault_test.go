//go:build unix

package registry

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/pgserver"
	"github.com/regogate/regogate/registry/strictyaml"
)

// filled is a registry with a catalogue in it, on a server of the test's own.
func filled(t *testing.T, timeout time.Duration, args ...string) (*pgserver.Server, PostgresConfig, *Postgres) {
	t.Helper()
	server := pgserver.Start(t, args...)
	tr := postgresTruth(server)(t)
	write(t, tr.dir, "a.yaml", catalogueYAML("a", 3, "read"))
	tr.write(t, "b.yaml", catalogueYAML("b", 2, "write"))
	cfg := tr.cfg
	cfg.Timeout = timeout
	return server, cfg, openPostgres(t, cfg)
}

// one line that says it all.
func wantError(t testing.TB, what string, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("%s:\ngot:  %v\nwant: %s", what, err, want)
	}
}

func drain(hints <-chan struct{}) {
	select {
	case <-hints:
	default:
	}
}

func awaitHint(t testing.TB, hints <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-hints:
	case <-time.After(30 * time.Second):
		t.Fatalf("no hint: %s", what)
	}
}

// A change is told at once, also after the connection that listens was cut.
func TestPostgresHints(t *testing.T) {
	server, cfg, p := filled(t, 10*time.Second)
	writer := openPostgres(t, cfg)
	change := func(what, reason string) {
		t.Helper()
		drain(p.Changed())
		if _, err := writer.Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a", Reason: reason}); err != nil {
			t.Fatal(err)
		}
		awaitHint(t, p.Changed(), what)
	}
	awaitHint(t, p.Changed(), "at the beginning")
	change("of a change", "one")
	drain(p.Changed())
	cut := "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'regogate'"
	server.Exec("postgres", cut)
	awaitHint(t, p.Changed(), "of the new connection")
	head(t, p) // connections of the pool that were cut are not noticed
	change("of a change after the cut", "two")
	server.Stop()
	eventually(t, 20*time.Second, "the problem shows", func() bool { return len(p.Problems()) == 1 })
	if got := p.Problems()[0]; !strings.HasPrefix(got, "changes of the registry show up to half a second later: listen for changes of the registry: PostgreSQL "+server.Addr+"/postgres ") || strings.Contains(got, "\n") {
		t.Errorf("problems %q", got)
	}
	drain(p.Changed())
	server.Start()
	awaitHint(t, p.Changed(), "after the restart")
	eventually(t, 20*time.Second, "the problem ends", func() bool { return len(p.Problems()) == 0 })
}

// A server that is killed costs an error, and nothing after it is back.
func TestPostgresKilled(t *testing.T) {
	server, _, p := filled(t, 2*time.Second)
	before := load(t, p)
	server.Kill()
	_, err := p.Head(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "read the head of the registry: PostgreSQL "+server.Addr+"/postgres cannot be used: ") ||
		!strings.HasSuffix(err.Error(), "connect: connection refused") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if _, err := p.Load(t.Context(), before.Head); err == nil {
		t.Error("no error of Load")
	}
	if _, err := p.Release(t.Context(), Author{Name: "x"}, "a", ""); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("error of Release: %v", err)
	}
	server.Start()
	eventually(t, 20*time.Second, "it answers again", func() bool { h, err := p.Head(t.Context()); return err == nil && h == before.Head })
}

// A server that is frozen, or accepts and never answers, holds nobody up: not
// questions, not changes, not Close.
func TestPostgresHung(t *testing.T) {
	const timeout = 200 * time.Millisecond
	const patience = 20 * time.Second // far below for ever, far above what a loaded machine takes
	within := func(what string, do func() error) {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- do() }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: hangs", what)
		}
	}
	all := func(name string, p *Postgres) {
		t.Helper()
		for range 2 * maxConnections { // however many were given up
			within(name+": Head", func() error { _, err := p.Head(t.Context()); return err })
		}
		within(name+": Load", func() error { _, err := p.Load(t.Context(), Head{}); return err })
		within(name+": Quarantine", func() error {
			_, err := p.Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a", Reason: "no"})
			return err
		})
		within(name+": a deadline", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := p.Load(ctx, Head{})
			return err
		})
		eventually(t, patience, "the problem shows", func() bool { return len(p.Problems()) > 0 })
	}
	server, cfg, _ := filled(t, 10*time.Second)
	cfg.Timeout = timeout
	silent := cfg
	silent.URL = strictyaml.Secret("postgres://regogate@" + hung(t) + "/postgres")
	p := openPostgres(t, silent)
	all("never answers", p)
	within("Close", func() error { p.Close(); return context.DeadlineExceeded })

	p, other := openPostgres(t, cfg), openPostgres(t, cfg)
	eventually(t, patience, "it answers", func() bool { _, err := p.Head(t.Context()); return err == nil })
	eventually(t, patience, "it answers", func() bool { _, err := other.Head(t.Context()); return err == nil })
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	all("frozen", p)
	within("Close", func() error { other.Close(); return context.DeadlineExceeded })
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "it answers again", func() bool { _, err := p.Head(t.Context()); return err == nil })
	eventually(t, patience, "the problem ends", func() bool { return len(p.Problems()) == 0 })
}

// A keeper over a server that is away serves the last good snapshot.
func TestPostgresKeeper(t *testing.T) {
	server, _, p := filled(t, time.Second)
	k := NewKeeper(p, Config{}, quiet())
	if err := k.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := k.Refresh(t.Context()); err == nil {
		t.Error("no error")
	}
	if n := len(k.Current().Tools()); n != 5 || !k.Fresh(time.Now()) {
		t.Errorf("%d tools", n)
	}
}

// through passes connections on; asked and answered see what goes each way, and
// cut the connection after it where they return false.
func through(t *testing.T, to string, asked, answered func([]byte) bool) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.Close(); wg.Wait() })
	pass := func(from, to net.Conn, see func([]byte) bool) {
		defer from.Close()
		defer to.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			goOn := see(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil || !goOn {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			context.AfterFunc(ctx, func() { c.Close(); s.Close() })
			wg.Go(func() { pass(c, s, asked) })
			wg.Go(func() { pass(s, c, answered) })
		}
	})
	return l.Addr().String()
}

// Whoever does not know whether a change was made is told so, and the registry
// is whole either way.
func TestPostgresCutAtCommit(t *testing.T) {
	server, cfg, p := filled(t, 10*time.Second)
	uncut := func(data []byte) bool { return !bytes.Contains(data, []byte("commit\x00")) }
	always := func([]byte) bool { return true }
	cfg.URL = strictyaml.Secret("postgres://regogate@" + through(t, server.Addr, uncut, always) + "/postgres")
	_, err := openPostgres(t, cfg).Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a", Reason: "no"})
	if err == nil || !strings.HasPrefix(err.Error(), "quarantine a (the connection broke at the very end, so look whether it was done): PostgreSQL ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if c := load(t, p); len(c.Tools) != 5 || len(c.Quarantine) > 1 {
		t.Errorf("%+v", c)
	}
	// The other way round: what broke before is known not to be done.
	early := func(data []byte) bool { return !bytes.Contains(data, []byte("for update")) }
	cfg.URL = strictyaml.Secret("postgres://regogate@" + through(t, server.Addr, early, always) + "/postgres")
	_, err = openPostgres(t, cfg).Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "b", Reason: "no"})
	if err == nil || !strings.HasPrefix(err.Error(), "quarantine b: PostgreSQL ") {
		t.Errorf("error %v", err)
	}
	for _, q := range load(t, p).Quarantine {
		if q.Server == "b" {
			t.Error("it was done")
		}
	}
}

// A slow server is slow, not broken; one slower than the timeout is.
func TestPostgresSlow(t *testing.T) {
	server, cfg, p := filled(t, 10*time.Second)
	want := head(t, p)
	cfg.URL = strictyaml.Secret("postgres://regogate@" + through(t, server.Addr, func([]byte) bool { return true }, func([]byte) bool { time.Sleep(50 * time.Millisecond); return true }) + "/postgres")
	slow := openPostgres(t, cfg)
	if c := load(t, slow); c.Head != want || len(c.Tools) != 5 {
		t.Errorf("%v", c.Head)
	}
	cfg.Timeout = minPostgresTimeout
	if _, err := openPostgres(t, cfg).Head(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// A database that is read-only by its settings is read from.
func TestPostgresReadOnly(t *testing.T) {
	server, cfg, p := filled(t, 10*time.Second)
	want := head(t, p)
	server.Exec("postgres", "alter database postgres set default_transaction_read_only = on")
	p = openPostgres(t, cfg)
	wantReadOnly(t, server, p)
	if c := load(t, p); c.Head != want {
		t.Errorf("head %v", c.Head)
	}
	if _, _, err := Migrate(t.Context(), cfg); err != nil {
		t.Errorf("there is nothing to migrate: %v", err)
	}
}

func wantReadOnly(t *testing.T, server *pgserver.Server, p *Postgres) {
	t.Helper()
	_, err := p.Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a", Reason: "no"})
	if !errors.Is(err, ErrReadOnly) {
		t.Errorf("error %v", err)
	}
	wantError(t, "read-only", err, "quarantine a: PostgreSQL "+server.Addr+"/postgres is read-only, being a standby or set to it, so the registry cannot be changed; change it at the primary")
}

// A standby is read from, says that it is one, and is a primary once it was made
// one.
func TestPostgresStandby(t *testing.T) {
	primary, cfg, p := filled(t, 10*time.Second)
	standby := primary.Standby()
	cfg.URL = strictyaml.Secret(standby.URL("regogate", "postgres"))
	replica := openPostgres(t, cfg)
	if c := load(t, replica); c.Head != head(t, p) || len(c.Tools) != 5 {
		t.Errorf("%v", c.Head)
	}
	wantReadOnly(t, standby, replica)
	want := "PostgreSQL " + standby.Addr + "/postgres is a standby: a change shows when it has been replicated, and nobody knows whether it has; use the primary"
	if got := replica.Problems(); len(got) != 1 || got[0] != want {
		t.Errorf("problems %q", got)
	}
	after, err := p.Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a", Reason: "no"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the change is replicated", func() bool { return head(t, replica) == after })
	primary.Kill()
	standby.Exec("postgres", "select pg_promote()")
	head(t, replica)
	if _, err := replica.Release(t.Context(), Author{Name: "x"}, "a", ""); err != nil || len(replica.Problems()) != 0 {
		t.Errorf("%v, problems %q", err, replica.Problems())
	}
}
