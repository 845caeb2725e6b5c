package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/policies"
)

func TestMain(m *testing.M) {
	if os.Getenv(talkativeEnv) != "" {
		talkative()
		return
	}
	goleak.VerifyTestMain(m)
}

// start runs a world for the test, with connections that end with it.
func start(t *testing.T, o world.Options) *world.World {
	t.Helper()
	w, err := world.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func token(t *testing.T, w *world.World, persona string) string {
	t.Helper()
	tok, err := w.Token(persona, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// peer is a client that shows every detail of the answers.
type peer struct {
	t       *testing.T
	url     string
	token   string
	session string
	meta    string // of every request, in the modern era
}

func (p *peer) request(method, body string, headers ...string) *http.Request {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if p.session != "" {
		r.Header.Set("Mcp-Session-Id", p.session)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (p *peer) send(method, body string, headers ...string) (*http.Response, string) {
	p.t.Helper()
	resp, err := http.DefaultClient.Do(p.request(method, body, headers...))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, string(text)
}

func (p *peer) post(body string, headers ...string) (*http.Response, string) {
	p.t.Helper()
	return p.send(http.MethodPost, body, headers...)
}

func connect(t *testing.T, w *world.World, path, persona string) *peer {
	t.Helper()
	p := &peer{t: t, url: w.URL + path, token: token(t, w, persona)}
	before := len(w.Records.All())
	resp, body := p.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if p.session = resp.Header.Get("Mcp-Session-Id"); resp.StatusCode != 200 || p.session == "" {
		t.Fatalf("initialize: %d %s", resp.StatusCode, body)
	}
	eventually(t, "what it was told of the servers is on record", func() bool { return len(w.Records.All()) > before })
	return p
}

func call(id any, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, name)
}

// TestDeniedAndAbsentAreOne compares everything a client can see of a tool
// that is hidden, one that no backend offers and one of an unknown server,
// their names being equally long.
func TestDeniedAndAbsentAreOne(t *testing.T) {
	w := start(t, world.Options{})
	varying := regexp.MustCompile(`(?m)^(X-Request-Id|Date): .*\r\n`)
	for _, route := range []struct {
		path  string
		names []string
	}{
		{"/mcp", []string{"stripe__create_refund", "stripe__create_nothin", "strips__create_refund", "stripe_create__refund"}},
		{"/mcp/stripe", []string{"create_refund", "create_nothin"}},
	} {
		p := connect(t, w, route.path, "developer")
		var first string
		for _, name := range route.names {
			w.Records.Forget()
			resp, body := p.post(call(1, name))
			var headers bytes.Buffer
			if err := resp.Header.Write(&headers); err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d\n%s\n%s", resp.StatusCode, varying.ReplaceAllString(headers.String(), ""), strings.ReplaceAll(body, name, "NAME"))
			if first == "" {
				first = got
				if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: ` + name + `"}}`; body != want {
					t.Errorf("body = %s, want %s", body, want)
				}
			}
			if got != first {
				t.Errorf("%s%s answers differently:\n%s\n%s", route.path, name, got, first)
			}
			records := settled(t, w, 1)
			if len(records) != 1 || records[0].Allowed || records[0].Rule != "allow" {
				t.Errorf("%s: records %+v", name, records)
			}
		}
	}
	for _, s := range w.Servers {
		if n := len(s.Calls()); n != 0 {
			t.Errorf("%d calls arrived at %s", n, s.Name)
		}
	}
}

// settled waits for the records of requests that have been answered.
func settled(t *testing.T, w *world.World, n int) []*recordView {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for len(w.Records.All()) < n && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	var out []*recordView
	for _, r := range w.Records.All() {
		out = append(out, &recordView{r.Allowed, r.Rule, r.Reasons})
	}
	return out
}

type recordView struct {
	Allowed bool
	Rule    string
	Reasons []string
}

func TestPagesAreSealed(t *testing.T) {
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.PageSize = 200 }})
	admin, err := w.Client("admin")
	if err != nil {
		t.Fatal(err)
	}
	names, err := admin.List(t.Context())
	if err != nil || len(names) != len(w.Tools) {
		t.Fatalf("%d of %d tools over pages, %v", len(names), len(w.Tools), err)
	}
	p := connect(t, w, "/mcp", "admin")
	_, page := p.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	cursor := regexp.MustCompile(`"nextCursor":"([^"]+)"`).FindStringSubmatch(page)
	if cursor == nil {
		t.Fatalf("no cursor in %.200s", page)
	}
	next := `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"` + cursor[1] + `"}}`
	if _, body := p.post(next); strings.Count(body, `"inputSchema"`) != 200 {
		t.Errorf("the second page: %.200s", body)
	}
	other := connect(t, w, "/mcp", "developer")
	for who, body := range map[string]string{
		"another principal": second(other.post(next)),
		"an unknown cursor": second(p.post(strings.Replace(next, cursor[1], "zzz", 1))),
		"an empty cursor":   second(p.post(strings.Replace(next, cursor[1], "", 1))),
	} {
		if !strings.Contains(body, `"code":-32602`) {
			t.Errorf("%s: %.200s", who, body)
		}
	}
}

func second(_ *http.Response, body string) string { return body }

// policyDir writes the shipped policies to a directory.
func policyDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, policies.FS); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestListChangedGoesToThoseWhoseListChanged changes the grant of one role and
// watches the streams of two.
func TestListChangedGoesToThoseWhoseListChanged(t *testing.T) {
	dir := policyDir(t)
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.Policy.Dir = dir }})
	developer, payments := connect(t, w, "/mcp", "developer"), connect(t, w, "/mcp", "payments")
	changed, quiet := developer.listen(), payments.listen()

	// A module of its own takes the developer's sight away, whatever the
	// grants are.
	rule := "package mcp.authz\n\nallow := false if \"developer\" in input.claims.roles\n"
	if err := os.WriteFile(filepath.Join(dir, "freeze.rego"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case message := <-changed:
		if message != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
			t.Errorf("message %s", message)
		}
	case <-time.After(10 * time.Second):
		t.Error("the developer was told nothing")
	}
	if _, body := developer.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); body != `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}` {
		t.Errorf("list after the change: %.200s", body)
	}
	select {
	case message := <-quiet:
		t.Errorf("the other was told %s", message)
	case <-time.After(300 * time.Millisecond):
	}
}

// TestStreamOutlivesTheReadTimeout keeps a stream open for longer than a
// request may take to be read.
func TestStreamOutlivesTheReadTimeout(t *testing.T) {
	dir := policyDir(t)
	w := start(t, world.Options{Adjust: func(c *gateway.Config) {
		c.Policy.Dir = dir
		c.Limits.ReadTimeout = 300 * time.Millisecond
	}})
	p := connect(t, w, "/mcp", "developer")
	events := p.listen()
	select {
	case message, open := <-events:
		t.Fatalf("message %q, stream open: %v", message, open)
	case <-time.After(time.Second):
	}
	rule := "package mcp.authz\n\nallow := false if \"developer\" in input.claims.roles\n"
	if err := os.WriteFile(filepath.Join(dir, "freeze.rego"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case _, open := <-events:
		if !open {
			t.Error("the stream ended")
		}
	case <-time.After(10 * time.Second):
		t.Error("the stream is dead")
	}
}

// listen opens the peer's stream and returns the data of its events.
func (p *peer) listen() <-chan string {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	r := p.request(http.MethodGet, "").WithContext(ctx)
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		p.t.Fatalf("GET: %v, %v", resp, err)
	}
	events, ended := make(chan string, 8), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(events)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				events <- data
			}
		}
	}()
	p.t.Cleanup(func() { cancel(); <-ended; resp.Body.Close() })
	return events
}

func TestSessionsAreNotShared(t *testing.T) {
	w := start(t, world.Options{})
	mine := connect(t, w, "/mcp", "developer")
	thief := &peer{t: t, url: mine.url, token: token(t, w, "admin"), session: mine.session}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for what, status := range map[string]int{
		"another's session": first(thief.post(list)).StatusCode,
		"another's stream":  first(thief.send(http.MethodGet, "")).StatusCode,
		"another's end":     first(thief.send(http.MethodDelete, "")).StatusCode,
	} {
		if status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", what, status)
		}
	}
	if resp, _ := mine.post(list); resp.StatusCode != 200 {
		t.Errorf("the session did not survive: %d", resp.StatusCode)
	}
	if resp, _ := mine.send(http.MethodDelete, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", resp.StatusCode)
	}
	if resp, _ := mine.post(list); resp.StatusCode != http.StatusNotFound {
		t.Errorf("after DELETE: %d", resp.StatusCode)
	}
	none := &peer{t: t, url: mine.url, token: mine.token}
	if resp, _ := none.post(list); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without a session: %d", resp.StatusCode)
	}
}

func first(resp *http.Response, _ string) *http.Response { return resp }

// TestCancelEndsTheCallItNames holds a call at the backend and cancels it by
// an id that is not its own, then by its own.
func TestCancelEndsTheCallItNames(t *testing.T) {
	entered, left := make(chan struct{}, 1), make(chan struct{})
	w := start(t, world.Options{})
	w.Servers["stripe"].Result = func(string, jsontext.Value) jsontext.Value {
		entered <- struct{}{}
		<-left
		return jsontext.Value(`{"content":[]}`)
	}
	defer close(left)
	p := connect(t, w, "/mcp", "admin")
	answered := make(chan string, 1)
	go func() { answered <- second(p.post(call(7, "stripe__list_prices"))) }()
	<-entered
	cancel := func(id string) {
		resp, _ := p.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"x"}}`)
		if resp.StatusCode != http.StatusAccepted {
			t.Errorf("cancel %s: %d", id, resp.StatusCode)
		}
	}
	cancel(`"7"`)
	cancel(`8`)
	select {
	case body := <-answered:
		t.Fatalf("the call ended without being named: %s", body)
	case <-time.After(100 * time.Millisecond):
	}
	cancel(`7`)
	select {
	case body := <-answered:
		if strings.Contains(body, `"result"`) {
			t.Errorf("a cancelled call has a result: %s", body)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the call did not end")
	}
}

// TestDrainLetsCallsFinish stops the gateway while a call is under way.
func TestDrainLetsCallsFinish(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	w, err := world.Start(ctx, world.Options{})
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan struct{}, 1)
	leave := make(chan struct{})
	w.Servers["stripe"].Result = func(string, jsontext.Value) jsontext.Value {
		entered <- struct{}{}
		<-leave
		return jsontext.Value(`{"content":[{"type":"text","text":"done"}]}`)
	}
	p := connect(t, w, "/mcp", "admin")
	stream := p.listen()
	answered := make(chan string, 1)
	go func() { answered <- second(p.post(call(1, "stripe__list_prices"))) }()
	<-entered
	w.StopGateway()
	eventually(t, "new connections are refused", func() bool {
		_, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(w.URL + "/healthz")
		return err != nil
	})
	close(leave)
	if body := <-answered; !strings.Contains(body, `"text":"done"`) {
		t.Errorf("the call under way ended with %s", body)
	}
	if message, open := <-stream; open {
		t.Errorf("a message on a stream that ends: %s", message)
	}
	stop()
	http.DefaultClient.CloseIdleConnections()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("did not happen: " + what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestTooMuchAtOnceIsRefused(t *testing.T) {
	hold := make(chan struct{})
	entered := make(chan struct{}, 2)
	w := start(t, world.Options{Adjust: func(c *gateway.Config) { c.Limits.Concurrent = 2 }})
	w.Servers["stripe"].Result = func(string, jsontext.Value) jsontext.Value {
		entered <- struct{}{}
		<-hold
		return jsontext.Value(`{"content":[]}`)
	}
	p, other := connect(t, w, "/mcp", "admin"), connect(t, w, "/mcp", "developer")
	ended := make(chan int, 2)
	for i := range 2 {
		go func() { ended <- first(p.post(call(i+1, "stripe__list_prices"))).StatusCode }()
	}
	<-entered
	<-entered
	resp, body := p.post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, `"code":429`) {
		t.Errorf("one more: %d %s", resp.StatusCode, body)
	}
	if resp, _ := other.post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`); resp.StatusCode != 200 {
		t.Errorf("another principal: %d", resp.StatusCode)
	}
	close(hold)
	for range 2 {
		if status := <-ended; status != 200 {
			t.Errorf("the calls under way: %d", status)
		}
	}
}
