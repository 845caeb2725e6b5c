// Package metrics holds what the gateway says to Prometheus against the programs
// that read it, and against what the README says of it.
package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"
)

const secret = "the-token-of-operators"

// estate is a gateway with every part that has metrics.
type estate struct {
	*world.World
	t     *testing.T
	admin string // host:port
	token string // file
}

func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T) *estate {
	t.Helper()
	built, err := bundles.Build(filepath.Join("..", "..", "policies"), bundles.Options{Revision: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	depot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(built.Bytes) }))
	t.Cleanup(depot.Close)
	e := &estate{t: t, admin: address(t), token: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(e.token, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := redisserver.Start(t)
	if e.World, err = world.Start(t.Context(), world.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	c := e.Config
	c.Admin = gateway.Admin{Listen: e.admin, TokenFile: e.token}
	c.Registry.Redis = &registry.RedisConfig{Addrs: []string{redis.Addr}}
	c.Policy.OPA = map[string]any{
		"services": map[string]any{"depot": map[string]any{"url": depot.URL}},
		"bundles":  map[string]any{"authz": map[string]any{"service": "depot", "resource": "authz"}},
	}
	e.serve(c)
	return e
}

// serve puts a gateway in front of the world's servers that has a decision log of
// its own, and returns when it is ready.
func (e *estate) serve(c gateway.Config) {
	e.t.Helper()
	log := slog.New(slog.DiscardHandler)
	records := decisionlog.New(decisionlog.Options{Log: log})
	records.Attach("file", io.Discard)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g, err := gateway.New(ctx, c, gateway.Options{
		Version: "test", Log: log, Policies: policies.FS, Catalogue: catalogue.FS, Records: records,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, l) }()
	e.t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := errors.Join(<-ended, records.Close(context.Background())); err != nil {
			e.t.Error(err)
		}
	})
	e.URL = "http://" + l.Addr().String()
	eventually(e.t, "the gateway is ready", func() bool {
		resp, err := http.Get(e.URL + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), `"status":"ready"`)
	})
}

// call calls a tool; the status is that of HTTP.
func (e *estate) call(persona, tool string) string {
	e.t.Helper()
	token, err := e.Token(persona, time.Hour)
	if err != nil {
		e.t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, value)
	}
	return e.send(r)
}

func (e *estate) send(r *http.Request) string {
	e.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		e.t.Fatalf("%d %v %s", resp.StatusCode, err, text)
	}
	return string(text)
}

func (e *estate) scrape() string {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "http://"+e.admin+"/metrics", nil)
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	return e.send(r)
}

// traffic makes one of each: a call that goes through, and one that is refused.
func (e *estate) traffic() {
	e.t.Helper()
	if text := e.call("admin", "stripe__list_prices"); strings.Contains(text, `"error"`) {
		e.t.Fatal(text)
	}
	if text := e.call("developer", "stripe__create_refund"); !strings.Contains(text, "Unknown tool") {
		e.t.Fatal(text)
	}
}

// eventually waits for what others do in their own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not happen: " + what)
		}
	}
}

// tool runs promtool.
func tool(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// program fails the test where Debian's package prometheus is not installed and
// REGOGATE_E2E is 1, and skips it otherwise.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("REGOGATE_E2E") == "1":
		t.Fatalf("install the Debian package prometheus, or run make deps: %v", err)
	default:
		t.Skipf("make deps installs it: %v", err)
	}
	return path
}

func TestPromtoolFindsNothing(t *testing.T) {
	program(t, "promtool")
	e := start(t)
	e.traffic()
	if out := tool(t, e.scrape(), "check", "metrics"); strings.TrimSpace(out) != "" {
		t.Errorf("promtool says\n%s", out)
	}
	// What it says of bad ones shows that it looked.
	bad := "# HELP regogate_bad_seconds_count Bad.\n# TYPE regogate_bad_seconds_count counter\nregogate_bad_seconds_count 1\n"
	cmd := exec.Command(program(t, "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(bad)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("promtool finds nothing wrong with a counter without _total: %s", out)
	}
}

// TestReadmeNamesAll: the table of the README has the metrics that there are, and
// its alerts are rules over these.
func TestReadmeNamesAll(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Metrics\n")
	if !ok {
		t.Fatal("the README has no section Metrics")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	e := start(t)
	e.traffic()
	var told, there []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_`, ]+)` \\| (counter|gauge|histogram) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range strings.Split(row[1], "`, `") {
			told = append(told, "regogate_"+name+" "+row[2])
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (regogate_.*)$`).FindAllStringSubmatch(e.scrape(), -1) {
		there = append(there, line[1])
	}
	slices.Sort(told)
	slices.Sort(there)
	for _, m := range there {
		if !slices.Contains(told, m) {
			t.Errorf("the README lacks %s", m)
		}
	}
	for _, m := range told {
		if !slices.Contains(there, m) {
			t.Errorf("there is no %s", m)
		}
	}
	_, rules, ok := strings.Cut(section, "```yaml\ngroups:")
	if !ok {
		t.Fatal("the README has no alerts")
	}
	rules, _, _ = strings.Cut(rules, "```")
	for _, name := range regexp.MustCompile(`regogate_\w+`).FindAllString(rules, -1) {
		name = strings.TrimSuffix(name, "_bucket")
		if !slices.ContainsFunc(there, func(m string) bool { return strings.HasPrefix(m, name+" ") }) {
			t.Errorf("an alert is about %s, which does not exist", name)
		}
	}
	program(t, "promtool")
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("groups:"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := tool(t, "", "check", "rules", file); !strings.Contains(out, "SUCCESS") {
		t.Errorf("promtool says\n%s", out)
	}
}

// TestPrometheusScrapes has a Prometheus read a gateway whose operators need a
// token, and asks it.
func TestPrometheusScrapes(t *testing.T) {
	path := program(t, "prometheus")
	e := start(t)
	e.traffic()
	dir, listen := t.TempDir(), address(t)
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: regogate\n    authorization: {credentials_file: %s}\n    static_configs: [{targets: [%q]}]\n", e.token, e.admin)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	ask := func(query string) (value string) {
		resp, err := http.Get("http://" + listen + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		var answer struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		if json.NewDecoder(resp.Body).Decode(&answer) != nil || len(answer.Data.Result) != 1 {
			return ""
		}
		value, _ = answer.Data.Result[0].Value[1].(string)
		return value
	}
	eventually(t, "Prometheus has scraped", func() bool { return ask(`up{job="regogate"}`) == "1" })
	for query, want := range map[string]string{
		`sum(regogate_requests_total{method="tools/call",outcome="ok"})`:                                                "1",
		`sum(regogate_decisions_total{gate="allow",outcome!="allowed"})`:                                                "1",
		`histogram_quantile(0.5, sum by (le) (regogate_request_duration_seconds_bucket{method="tools/call"})) > bool 0`: "1",
		`regogate_bundle_info{bundle="authz",revision="v1"}`:                                                            "1",
		`sum(regogate_upstream_up)`: fmt.Sprint(len(e.Servers)),
	} {
		eventually(t, query+" is "+want, func() bool { return ask(query) == want })
	}
	end()
}
