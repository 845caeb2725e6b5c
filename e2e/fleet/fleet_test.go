package fleet_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/binary"
	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/gateway/auth/mint"
)

type object = map[string]any

func encode(t testing.TB, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	sealKey  = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	otherKey = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY="
)

// fleet is the replicas, what they share and what is behind them.
type fleet struct {
	dir      string
	signer   *mint.Signer
	store    *redisserver.Server
	old      *ledger // of the legacy era, with sessions
	new      *ledger // of the modern era
	config   object
	replicas []*replica
}

// newFleet starts so many replicas. The test is skipped, or failed where
// REGOGATE_E2E is 1, without a redis-server.
func newFleet(t *testing.T, replicas int) *fleet {
	t.Helper()
	f := &fleet{dir: t.TempDir(), store: redisserver.Start(t, redisserver.Durable()...), old: newLedger("old"), new: newLedger("new")}
	var err error
	if f.signer, err = mint.Generate("ES256"); err != nil {
		t.Fatal(err)
	}
	keys, err := mint.KeySet(f.signer)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "keys.json", keys)
	f.write(t, "catalogue.yaml", []byte("version: 1\nservers: {}\n"))
	f.write(t, "policies/mcp/authz/authz.rego", []byte("package mcp.authz\n\ndefault allow := false\n\nallow if input.claims.sub\n"))
	servers := object{}
	for name, h := range map[string]http.HandlerFunc{"old": f.old.legacy, "new": f.new.modern} {
		s := httptest.NewServer(h)
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
		servers[name] = object{"url": s.URL}
	}
	f.config = object{
		"listen": "127.0.0.1:0", "servers": servers, "page_size": 2,
		"auth": object{"issuers": []object{{
			"issuer": "fleet", "audience": []string{"fleet"}, "algorithms": []string{"ES256"}, "jwks_file": "keys.json",
		}}},
		"policy": object{"dir": "policies"}, "registry": object{"path": "catalogue.yaml"},
		"sessions": object{"redis": object{"url": "redis://" + f.store.Addr}, "key": sealKey},
		"log":      object{"level": "warn"},
	}
	for n := range replicas {
		f.replicas = append(f.replicas, f.start(t, fmt.Sprint("replica", n), f.config))
	}
	return f
}

func (f *fleet) write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (f *fleet) token(t *testing.T, principal string) string {
	t.Helper()
	now := time.Now()
	token, err := f.signer.Sign(map[string]any{
		"iss": "fleet", "aud": "fleet", "sub": principal, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// replica is one regogate process.
type replica struct {
	url    string // without a path
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // once exited is closed

	mu  sync.Mutex
	log strings.Builder
}

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// start runs `regogate serve` and returns when it is ready. It is ended with
// the test, and has to end well.
func (f *fleet) start(t *testing.T, name string, config object) *replica {
	t.Helper()
	program := binary.Path(t, "-race")
	config = maps.Clone(config)
	config["log"] = object{"level": "info"} // for the address
	path := f.write(t, name+".yaml", encode(t, config))
	r := &replica{cmd: exec.Command(program, "serve", "-c", path), exited: make(chan struct{})}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		r.read(stderr, address)
		r.err = r.cmd.Wait()
		close(r.exited)
	}()
	t.Cleanup(func() {
		r.stop(t)
		for _, bad := range []string{"panic", "DATA RACE", `"level":"ERROR"`} {
			if strings.Contains(r.text(), bad) {
				t.Errorf("%s: %s in its log:\n%s", name, bad, r.text())
			}
		}
	})
	select {
	case a := <-address:
		r.url = "http://" + a
	case <-r.exited:
		t.Fatalf("%s ended at once: %v\n%s", name, r.err, r.text())
	case <-time.After(startTimeout):
		t.Fatalf("%s does not serve after %v", name, startTimeout)
	}
	within(t, startTimeout, name+" is ready", func() bool { return r.status() == "ready" })
	return r
}

func (r *replica) read(stderr io.Reader, address chan<- string) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		var entry struct{ Msg, Address string }
		known := json.Unmarshal([]byte(line), &entry) == nil
		if known && entry.Msg == "serving" {
			address <- entry.Address
		}
		if !known || entry.Msg != "request" {
			r.mu.Lock()
			r.log.WriteString(line)
			r.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

func (r *replica) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.log.String()
	return text[max(0, len(text)-6000):]
}

// status is what readiness says in one word, "" where nobody answers.
func (r *replica) status() string {
	resp, err := http.Get(r.url + "/readyz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var is struct{ Status string }
	_ = json.NewDecoder(resp.Body).Decode(&is)
	return is.Status
}

// stop ends the replica as an operator does; it has to exit with 0.
func (r *replica) stop(t testing.TB) {
	t.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-r.exited:
		if r.err != nil {
			t.Errorf("a replica ended with %v, want exit status 0", r.err)
		}
	case <-time.After(stopTimeout):
		t.Errorf("a replica has not ended %v after SIGTERM", stopTimeout)
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
}

// within waits until a condition holds and returns how long that took.
func within(t testing.TB, d time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	from := time.Now()
	for !holds() {
		if time.Since(from) > d {
			t.Fatalf("%s: not so within %v", what, d)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(from)
}
