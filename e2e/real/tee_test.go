package real_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/regogate/regogate/e2e/world"
)

// teeVariable makes this test binary a tee. Its value is the log file.
const teeVariable = "REGOGATE_E2E_TEE"

// tee runs a server over stdio and stands before it. Each line for the server
// is on record before the server can see it: the process ids of tee and server,
// then the message.
func tee(path string, argv []string) int {
	record, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		defer in.Close()
		if err := copyLines(in, record, cmd.Process.Pid); err != nil {
			fmt.Fprintln(os.Stderr, "tee:", err)
		}
	}()
	if err := cmd.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "tee: the server ended:", err)
		return 1
	}
	return 0
}

func copyLines(server, record io.Writer, pid int) error {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			// One write for a line: several processes share the file.
			if _, err := record.Write(fmt.Appendf(nil, "%d %d %s", os.Getpid(), pid, line)); err != nil {
				return err
			}
			if _, err := server.Write(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// message is one JSON-RPC message as it arrived at a server.
type message struct {
	pids   []int       // of a stdio server and its tee
	header http.Header // over HTTP
	raw    string
	Method string
	Params struct{ Name string }

	// refusal of a request of the server: the policy's, of one to its client, or
	// that of the gateway's own conversation, which says that it can be asked and
	// answers nothing.
	refusal bool
}

func parse(t testing.TB, raw []byte) message {
	t.Helper()
	m := message{raw: string(raw)}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("a server was sent what is no message: %v: %s", err, raw)
	}
	for _, refusal := range []string{
		`"code":403,"message":"the policy does not allow this request to the client"`,
		`"code":-32601,"message":"the client does not support this method"`,
	} {
		m.refusal = m.refusal || m.Method == "" && strings.HasSuffix(strings.TrimSpace(m.raw), `,"error":{`+refusal+`}}`)
	}
	return m
}

// recorder knows everything that arrived at one server, oldest first.
type recorder interface {
	messages(t testing.TB) []message
}

// teed reads the log of tees.
type teed string

func (path teed) messages(t testing.TB) []message {
	t.Helper()
	data, err := os.ReadFile(string(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []message
	for line := range strings.Lines(string(data)) {
		var tee, server int
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		if _, err := fmt.Sscanf(line, "%d %d ", &tee, &server); err != nil {
			t.Fatalf("reading the log of a tee: %v: %s", err, line)
		}
		parts := strings.SplitN(line, " ", 3)
		m := parse(t, []byte(parts[2]))
		m.pids = []int{tee, server}
		all = append(all, m)
	}
	return all
}

// relay passes HTTP requests on to a server and keeps the messages.
type relay struct {
	*httptest.Server
	mu   sync.Mutex
	seen []message
}

func newRelay(t testing.TB, target string) *relay {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = to.Scheme, to.Host, to.Host
		},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // a server that ends is no news here
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if len(body) > 0 {
			r.mu.Lock()
			r.seen = append(r.seen, message{header: req.Header.Clone(), raw: string(body)})
			r.mu.Unlock()
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func (r *relay) messages(t testing.TB) []message {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []message
	for _, seen := range r.seen {
		m := parse(t, []byte(seen.raw))
		m.header = seen.header
		all = append(all, m)
	}
	return all
}

// own reads what one of our recording servers wrote down.
type own struct{ *world.Server }

func (o own) messages(t testing.TB) []message {
	t.Helper()
	var all []message
	for _, r := range o.Received() {
		m := parse(t, r.Body)
		m.header = r.Header
		all = append(all, m)
	}
	return all
}
