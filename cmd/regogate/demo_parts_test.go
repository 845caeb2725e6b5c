package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/world"
)

// TestDemoParts puts the demo together from its parts, as docker-compose.yml
// does.
func TestDemoParts(t *testing.T) {
	dir := t.TempDir()
	issuer, stripe, gateway := unused(t), unused(t), unused(t)
	key, config := filepath.Join(dir, "key.pem"), filepath.Join(dir, "regogate.yaml")
	expect(t, 0, "token", "--key", key, "--jwks", filepath.Join(dir, "keys.json"), "--persona", "admin")
	text := fmt.Sprintf("listen: %s\nservers: {stripe: {url: http://%s/mcp}}\nauth: {issuers: [{issuer: %s, audience: [%s], algorithms: [ES256], "+
		"jwks_url: http://%s/jwks}]}\n", gateway, stripe, world.Issuer, world.Audience, issuer)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := expect(t, 1, "health", "-c", config); !strings.Contains(out, "connection refused: is it running?") {
		t.Errorf("health of nothing: %s", out)
	}
	background(t, "demo", "issuer", "--listen", issuer, "--key", key)
	background(t, "demo", "server", "stripe", "--listen", stripe)
	background(t, "serve", "-c", config)
	for from := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, out := command("health", "-c", config)
		if strings.Contains(out, `"status":"ready"`) {
			break
		}
		if time.Since(from) > time.Minute {
			t.Fatalf("the gateway is not ready: %s", out)
		}
	}
	try := []string{"demo", "try", "--url", "http://" + gateway + "/mcp", "--key", key, "--server", "stripe=http://" + stripe + "/calls"}
	var got struct {
		OK       bool
		Tools    int
		Servers  int
		Personas []world.Report
	}
	if err := json.Unmarshal([]byte(expect(t, 0, try...)), &got); err != nil {
		t.Fatal(err)
	}
	if !got.OK || got.Servers != 1 || got.Tools != 22 || len(got.Personas) != len(world.Personas()) || got.Personas[0].ArrivedCalls == 0 {
		t.Errorf("the check says %+v", got)
	}
	// A gateway that lets through what the policy does not allow is found out.
	policies := filepath.Join(dir, "policies", "mcp", "authz")
	if err := os.MkdirAll(policies, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(policies, "authz.rego"), []byte("package mcp.authz\n\ndefault allow := false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := expect(t, 1, append(try, "--policies", filepath.Join(dir, "policies"))...); !strings.Contains(out, `"unauthorized_arrived": 22,`) ||
		!strings.Contains(out, "regogate demo: what arrived at the servers is not what the policy allows") || !strings.Contains(out, "arrived at the servers: too many [stripe__") {
		t.Errorf("against a policy that allows nothing: %s", out)
	}
}

func TestPartsSayWhatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"demo server":                         "regogate demo server: name one NAME: see regogate demo server --help",
		"demo server nobody":                  "regogate demo server: the shipped catalogue has no server nobody: see registry/catalogue, or regogate registry status",
		"demo server stripe --listen x":       "--listen: listen tcp: address x: missing port in address: choose another address, or end what uses this one",
		"demo issuer":                         "regogate demo issuer: --key: is missing: name the PEM file of the key that signs the tokens",
		"demo issuer --key none.pem":          "regogate demo issuer: --key: open none.pem: no such file or directory",
		"demo try --key none.pem":             "regogate demo try: --key: open none.pem: no such file or directory",
		"health -c none.yaml":                 "none.yaml: cannot be read: no such file or directory: write a first configuration with regogate init, or name another with --config",
		"health --url :x":                     `regogate health: --url: parse ":x": missing protocol scheme: want such as http://127.0.0.1:8080/readyz`,
		"health --url http://127.0.0.1:1/ -c": "regogate health: flag needs an argument: 'c' in -c: see regogate health --help",
	} {
		if out := strings.TrimSpace(expect(t, 1, strings.Fields(line)...)); out != want {
			t.Errorf("regogate %s\n got %s\nwant %s", line, out, want)
		}
	}
}

// command runs a command line to its end and returns its exit code and all that
// it wrote.
func command(args ...string) (int, string) {
	var out strings.Builder
	code := run(context.Background(), args, &out, &out)
	return code, out.String()
}

func expect(t *testing.T, code int, args ...string) string {
	t.Helper()
	got, out := command(args...)
	if got != code {
		t.Fatalf("regogate %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// background runs a command line until the test ends; it has to end well.
func background(t *testing.T, args ...string) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var out strings.Builder
	go func() { ended <- run(ctx, args, &out, &out) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("regogate %s: exit code %d\n%s", strings.Join(args, " "), code, out.String())
		}
	})
}

// unused is an address that nobody listens on.
func unused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
