package gateway_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
)

func TestAdminRoutes(t *testing.T) {
	for _, profiles := range []bool{false, true} {
		o := newOperators(t, func(c *gateway.Config) { c.Admin.Pprof = profiles })
		pprof := http.StatusNotFound
		if profiles {
			pprof = http.StatusOK
		}
		for path, want := range map[string]int{
			"/healthz": 200, "/readyz": 200, "/status": 200, "/metrics": 200, "/": 404,
			"/debug/pprof/": pprof, "/debug/pprof/goroutine?debug=1": pprof, "/debug/pprof/cmdline": pprof, "/debug/pprof/trace?seconds=0.01": pprof,
			"/loglevel": 404, // this gateway's log has a level that stays
			"/mcp":      404,
		} {
			if status, body := o.ask("GET", path, ""); status != want {
				t.Errorf("pprof %v: %s is %d, want %d: %s", profiles, path, status, want, body)
			}
			if path == "/healthz" || path == "/readyz" || path == "/mcp" {
				continue
			}
			// Not even who has a token for the gateway finds any of it there.
			p := &peer{t: t, url: o.URL + path, token: token(t, o.World, "admin")}
			if resp, body := p.send("GET", ""); resp.StatusCode != http.StatusNotFound {
				t.Errorf("clients: %s is %d: %s", path, resp.StatusCode, body)
			}
		}
	}
}

func TestAdminReadiness(t *testing.T) {
	o := newOperators(t, func(*gateway.Config) {})
	type parts = map[string]struct {
		Status, Revision string
		Problems         []string
	}
	var got struct {
		Status string
		Parts  parts
	}
	read := func() int {
		t.Helper()
		got.Parts = nil
		status, body := o.ask("GET", "/readyz", "")
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return status
	}
	revision := o.revision()
	if status := read(); status != 200 || got.Status != "ready" || len(got.Parts) != 4 {
		t.Errorf("%d %+v", status, got)
	}
	for name, p := range got.Parts {
		if p.Status != "ready" || p.Problems != nil || (p.Revision != "") != (name == "policy" || name == "registry") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p := got.Parts["policy"]; p.Revision != revision {
		t.Errorf("policy %s, want %s", p.Revision, revision)
	}
	o.rules.write("authz.rego", []byte("package mcp.authz\nallow if nonsense"))
	eventually(t, "the broken policy is told", func() bool { return read() == 200 && got.Status == "degraded" })
	if p := got.Parts["policy"]; p.Status != "degraded" || p.Revision != revision || len(p.Problems) == 0 || !strings.Contains(p.Problems[0], "authz.rego") {
		t.Errorf("policy: %+v", p)
	}
	s := o.scrape()
	if s["regogate_ready"] != 1 || s[`regogate_part_ready{part="policy"}`] != 0 || s[`regogate_part_ready{part="registry"}`] != 1 || s["regogate_policy_problems"] == 0 {
		t.Errorf("metrics of a policy that is refused: %v", s)
	}
}

// What a web page could have an operator's browser do is refused, and so is
// whoever does not have the token.
func TestAdminIsGuarded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	o := newOperators(t, func(c *gateway.Config) { c.Admin.TokenFile = file })
	check := func(want int, headers ...string) {
		t.Helper()
		for _, path := range []string{"/metrics", "/status", "/readyz", "/healthz"} {
			if status, body := o.ask("GET", path, "", headers...); status != want {
				t.Errorf("%s with %q is %d, want %d: %s", path, headers, status, want, body)
			}
		}
	}
	check(401)
	check(401, "Authorization", "Bearer second")
	check(401, "Authorization", "Basic first")
	check(401, "Authorization", "Bearer "+token(t, o.World, "admin"))
	check(200, "Authorization", "Bearer first")
	check(200, "Authorization", "bearer first", "Host", "localhost:1")
	check(403, "Authorization", "Bearer first", "Host", "rebound.example")
	check(403, "Authorization", "Bearer first", "Origin", "https://page.example")
	check(403, "Authorization", "Bearer first", "Sec-Fetch-Site", "cross-site")
	write("second")
	check(401, "Authorization", "Bearer first")
	check(200, "Authorization", "Bearer second")
	write("")
	check(401, "Authorization", "Bearer ")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check(401, "Authorization", "Bearer second")
}

func TestLogLevel(t *testing.T) {
	level := &slog.LevelVar{}
	address := freeAddress(t)
	w := start(t, world.Options{Level: level, Adjust: func(c *gateway.Config) { c.Admin.Listen = address }})
	o := &operators{&rig{w, t, nil}, address}
	eventually(t, "the listener for operators", func() bool {
		resp, err := http.Get("http://" + address + "/healthz")
		return err == nil && resp.Body.Close() == nil
	})
	for _, c := range []struct {
		method, body string
		status       int
		answer       string
		level        slog.Level
	}{
		{"GET", "", 200, "info\n", slog.LevelInfo},
		{"PUT", "debug\n", 200, "debug\n", slog.LevelDebug},
		{"PUT", "DEBUG-4", 400, "send one of debug, info, warn, error\n", slog.LevelDebug},
		{"PUT", "", 400, "send one of debug, info, warn, error\n", slog.LevelDebug},
		{"PUT", strings.Repeat("error", 20), 400, "send one of debug, info, warn, error\n", slog.LevelDebug},
		{"GET", "", 200, "debug\n", slog.LevelDebug},
		{"PUT", "error", 200, "error\n", slog.LevelError},
		{"POST", "info", 405, "Method Not Allowed\n", slog.LevelError},
	} {
		status, body := o.ask(c.method, "/loglevel", c.body)
		if status != c.status || body != c.answer || level.Level() != c.level {
			t.Errorf("%s %q: %d %q, and the level is %v; want %+v", c.method, c.body, status, body, level.Level(), c)
		}
	}
}

func TestAdminConfig(t *testing.T) {
	const others = "others can reach this: give admin.token_file, or say admin.insecure_no_auth: true"
	const form = "must be host:port, such as 127.0.0.1:9464, and not the one of listen"
	for _, c := range []struct {
		admin gateway.Admin
		want  []string
	}{
		{gateway.Admin{}, nil},
		{gateway.Admin{Listen: "127.0.0.1:9464", Pprof: true}, nil},
		{gateway.Admin{Listen: "[::1]:9464"}, nil},
		{gateway.Admin{Listen: "localhost:9464"}, nil},
		{gateway.Admin{Listen: ":9464"}, []string{"admin.listen: " + others}},
		{gateway.Admin{Listen: "0.0.0.0:9464"}, []string{"admin.listen: " + others}},
		{gateway.Admin{Listen: "gateway.internal:9464"}, []string{"admin.listen: " + others}},
		{gateway.Admin{Listen: ":9464", TokenFile: "token"}, nil},
		{gateway.Admin{Listen: ":9464", InsecureNoAuth: true}, nil},
		{gateway.Admin{Listen: "127.0.0.1:8080"}, []string{"admin.listen: " + form}},
		{gateway.Admin{Listen: "9464"}, []string{"admin.listen: " + form}},
		{gateway.Admin{Pprof: true}, []string{"admin: needs admin.listen: without it nothing is served to operators"}},
	} {
		config := gateway.Config{Admin: c.admin}
		config.Defaults()
		var got []string
		for _, p := range config.Validate() {
			if strings.HasPrefix(p.Path, "admin") {
				got = append(got, p.Path+": "+p.Message)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.admin, got, c.want)
		}
	}
}
