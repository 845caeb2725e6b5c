package upstream

import (
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/registry/strictyaml"
)

func TestConfigValidate(t *testing.T) {
	dir := t.TempDir()
	noPEM := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(noPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	spaced := filepath.Join(dir, "a program")
	if err := os.WriteFile(spaced, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, yaml string
		want       []string
	}{
		{"url", "url: https://example.test/mcp?x=1\nheaders: {Authorization: Bearer k, X-Key: k}\nprotocol: modern", nil},
		{"command", "command: npx\nargs: [-y, server]\nenv: {TOKEN: s}\nshared: true\nmax_response: 4MiB\ncall_timeout: 5m", nil},
		{"nothing", "shared: false", []string{"s: needs either url or command"}},
		{"both", "url: http://a/\ncommand: b", []string{"s: has both url and command; remove one"}},
		{"scheme", "url: file:///etc/passwd", []string{"s.url: must begin with http:// or https://"}},
		{"no host", "url: http:///mcp", []string{"s.url: names no host"}},
		{"credentials", "url: http://user:secret@a/", []string{"s.url: holds credentials; put them into headers instead"}},
		{"fragment", "url: http://a/#x", []string{"s.url: has a fragment (#…), which is never sent; remove it"}},
		{"no URL", `url: "http://a:secret port/"`, []string{"s.url: is not a URL"}},
		{"headers", `{url: http://a/, headers: {"": x, "a b": x, Accept: x, mcp-session-id: x, X-A: "secret\n", x-a: x}}`, []string{
			`s.headers[""]: is not the name of a header`, "s.headers.Accept: is set by the gateway itself; remove it",
			"s.headers.X-A: holds characters that a header cannot carry, such as a line break",
			`s.headers["a b"]: is not the name of a header`, "s.headers.mcp-session-id: is set by the gateway itself; remove it",
			"s.headers.x-a: is the same header as X-A; remove one",
		}},
		{"of a command", "url: http://a/\nargs: [x]", []string{"s: args, env, dir and shared are for a command; remove them or the url"}},
		{"of a url", "command: a\nheaders: {x: v}", []string{"s: headers and tls are for a url; remove them or the command"}},
		{"limits", "{command: a, protocol: new, call_timeout: -1s, max_response: 1KiB, max_concurrent: -1, max_sessions: -1}", []string{
			"s.protocol: want auto, legacy or modern", "s.call_timeout: must not be negative",
			"s.max_response: must be between 4KiB and 1GiB", "s.max_concurrent: must not be negative",
			"s.max_sessions: must not be negative",
		}},
		{"NUL and names", `{command: "a\0", args: [a, "b\0"], env: {"A=B": x, C: "secret\0"}, dir: /no/such/dir}`, []string{
			"s.command: holds a NUL character", "s.args[1]: holds a NUL character",
			`s.env["A=B"]: is not the name of an environment variable`, "s.env.C: holds a NUL character",
			"s.dir: is not a directory that can be read",
		}},
		{"a command line", "command: npx -y secret", []string{
			"s.command: must be the name or the path of a program alone, and no program is called that; put what follows its name into args",
		}},
		{"a path with a space", `command: "` + spaced + `"`, nil},
		{"a path from its directory", `{command: "./a program", dir: "` + dir + `"}`, nil},
		{"no CA", "url: https://a/\ntls: {ca_file: /no/such/file}", []string{"s.tls.ca_file: cannot be read: no such file or directory"}},
		{"bad CA", "url: http://a/\ntls: {ca_file: " + noPEM + "}", []string{
			"s.tls.ca_file: holds no certificate in PEM form",
			"s.tls.ca_file: has no effect with an http:// url; use https:// or remove it",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Config
			if _, problems := strictyaml.Decode([]byte(tt.yaml), &c, strictyaml.Options{}); len(problems) > 0 {
				t.Fatalf("decode: %v", problems)
			}
			var got []string
			for _, p := range c.Validate("s") {
				got = append(got, p.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("the problems are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if strings.Contains(strings.Join(got, ""), "secret") {
				t.Error("a problem repeats a secret")
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	url := Config{URL: "http://a/"}.withDefaults()
	command := Config{Command: "a", CallTimeout: time.Second}.withDefaults()
	if url.ConnectTimeout != 5*time.Second || command.ConnectTimeout != 30*time.Second || command.CallTimeout != time.Second ||
		url.CallTimeout != 2*time.Minute || url.MaxResponse != 16<<20 || url.Protocol != "auto" {
		t.Errorf("the defaults are %+v and %+v", url, command)
	}
}

// TestTLS: a CA of one's own is trusted, and instead of the system's.
func TestTLS(t *testing.T) {
	d := newWebDouble(t, nil)
	server := httptest.NewUnstartedServer(d)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	p := running(t, map[string]Config{"trusted": {URL: server.URL, TLS: TLS{CAFile: ca}}, "unknown": {URL: server.URL}}, quick(nil))
	if s := p.Current().Server("trusted"); !s.Up {
		t.Errorf("with its CA: %s", s.Problem)
	}
	if s := p.Current().Server("unknown"); s.Up || !strings.Contains(s.Problem, "certificate") {
		t.Errorf("without: up %v, %s", s.Up, s.Problem)
	}
}
