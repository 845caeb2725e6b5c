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

	"github.com/regogate/regogate/gateway/auth/mint"
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
	signer, err := mint.Generate("ES256")
	if err != nil {
		t.Fatal(err)
	}
	key, err := signer.PEM()
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := filepath.Join(dir, "key.pem")
	if err := os.WriteFile(pkcs8, key, 0o600); err != nil {
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
		{"credentials", "url: http://user:sekret@a/", []string{"s.url: holds credentials; put them into headers instead"}},
		{"fragment", "url: http://a/#x", []string{"s.url: has a fragment (#…), which is never sent; remove it"}},
		{"no URL", `url: "http://a:sekret port/"`, []string{"s.url: is not a URL"}},
		{"headers", `{url: http://a/, headers: {"": x, "a b": x, Accept: x, mcp-session-id: x, X-A: "sekret\n", x-a: x}}`, []string{
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
		{"NUL and names", `{command: "a\0", args: [a, "b\0"], env: {"A=B": x, C: "sekret\0"}, dir: /no/such/dir}`, []string{
			"s.command: holds a NUL character", "s.args[1]: holds a NUL character",
			`s.env["A=B"]: is not the name of an environment variable`, "s.env.C: holds a NUL character",
			"s.dir: is not a directory that can be read",
		}},
		{"a command line", "command: npx -y sekret", []string{
			"s.command: must be the name or the path of a program alone, and no program is called that; put what follows its name into args",
		}},
		{"a path with a space", `command: "` + spaced + `"`, nil},
		{"a path from its directory", `{command: "./a program", dir: "` + dir + `"}`, nil},
		{"oauth", "url: https://a/\noauth: {token_url: https://idp/token, client_id: c, client_secret: s}", nil},
		{"an exchange", "url: https://a/\noauth: {grant: token_exchange, token_url: http://127.0.0.1:1/token, client_id: c, client_secret: s, " +
			"auth_method: post, scopes: [a, b], audience: x, resource: urn:x, subject_issuer: i, timeout: 1s}", nil},
		{"private_key_jwt", "url: https://a/\noauth: {token_url: https://idp/token, client_id: c, auth_method: private_key_jwt, private_key_file: " + pkcs8 + ", key_id: k}", nil},
		{"empty oauth", "url: https://a/\noauth: {}", []string{
			"s.oauth.token_url: is missing: name the issuer's token endpoint, such as https://idp.example.com/oauth/token",
			"s.oauth.client_id: is missing: register the gateway as a client of the issuer",
			"s.oauth.client_secret: is missing: give it as ${NAME} or ${file:PATH}, or use auth_method: private_key_jwt",
		}},
		{"oauth beside a token", "url: https://a/\nheaders: {authorization: Bearer k}\noauth: {token_url: https://idp/token, client_id: c, client_secret: s}", []string{
			"s.headers.authorization: is what oauth sets; remove one of the two",
		}},
		{"oauth of a command", "command: a\nshared: true\noauth: {token_url: https://idp/token, client_id: c, client_secret: s}", []string{
			"s.oauth: is for a url: a command gets no token of anybody, only what its env holds; remove it",
		}},
		{"a token URL in the clear", "url: https://a/\noauth: {token_url: http://idp/token, client_id: c, client_secret: sekret}", []string{
			"s.oauth.token_url: must be https, or else whoever reads along has the client's secret and the tokens; insecure_token_http: true allows it",
		}},
		{"a token URL in the clear, allowed", "url: https://a/\noauth: {token_url: http://idp/token, client_id: c, client_secret: s, insecure_token_http: true}", nil},
		{"no token URL", `{url: https://a/, oauth: {token_url: "https://a:sekret port/", client_id: c, client_secret: s}}`, []string{"s.oauth.token_url: is not a URL"}},
		{"another scheme", "url: https://a/\noauth: {token_url: ldap://idp, client_id: c, client_secret: s}", []string{"s.oauth.token_url: must be an https URL"}},
		{"credentials in it", `{url: https://a/, oauth: {token_url: "https://c:sekret@idp/token#x", client_id: c, client_secret: s}}`, []string{
			"s.oauth.token_url: must not have a user, a password or a fragment; credentials are client_id and client_secret",
		}},
		{"words of oauth", `{url: https://a/, oauth: {grant: exchange, token_url: https://idp/token, client_id: c, auth_method: mtls, scopes: [ok, "a b", ""], resource: "/mcp#x", timeout: 2m}}`, []string{
			"s.oauth.grant: want client_credentials or token_exchange",
			"s.oauth.auth_method: want basic, post or private_key_jwt",
			"s.oauth.scopes[1]: is not one scope: printable ASCII without spaces, quotes and backslashes",
			"s.oauth.scopes[2]: is not one scope: printable ASCII without spaces, quotes and backslashes",
			"s.oauth.resource: must be an absolute URI without a fragment (#…), such as the server's own URL",
			"s.oauth.timeout: must be between 0s and 1m0s",
		}},
		{"an exchange for anything", "url: https://a/\noauth: {grant: token_exchange, token_url: https://idp/token, client_id: c, client_secret: s}", []string{
			"s.oauth: token_exchange needs an audience or a resource: what the server wants to see in its tokens' aud",
		}},
		{"whose tokens without an exchange", "url: https://a/\noauth: {token_url: https://idp/token, client_id: c, client_secret: s, subject_issuer: i}", []string{
			"s.oauth.subject_issuer: is for grant: token_exchange; remove it",
		}},
		{"a key and a secret", "url: https://a/\noauth: {token_url: https://idp/token, client_id: c, client_secret: sekret, auth_method: private_key_jwt}", []string{
			"s.oauth.client_secret: is of no use with auth_method: private_key_jwt; remove it",
			"s.oauth.private_key_file: is missing: auth_method: private_key_jwt signs with it",
		}},
		{"a key for nothing", "url: https://a/\noauth: {token_url: https://idp/token, client_id: c, client_secret: s, key_id: k}", []string{
			"s.oauth.private_key_file: private_key_file and key_id are for auth_method: private_key_jwt; remove them",
		}},
		{"no key", "url: https://a/\noauth: {token_url: https://idp/token, client_id: c, auth_method: private_key_jwt, private_key_file: " + noPEM + "}", []string{
			"s.oauth.private_key_file: holds no PEM block PRIVATE KEY (PKCS #8)",
		}},
		{"a key that is not there", "url: https://a/\noauth: {token_url: https://idp/token, client_id: c, auth_method: private_key_jwt, private_key_file: /no/such/file}", []string{
			"s.oauth.private_key_file: cannot be read: no such file or directory",
		}},
		{"an issuer's CA", "url: https://a/\noauth: {token_url: http://127.0.0.1/token, client_id: c, client_secret: s, tls: {ca_file: " + noPEM + "}}", []string{
			"s.oauth.tls.ca_file: holds no certificate in PEM form",
			"s.oauth.tls.ca_file: has no effect with an http:// token_url; use https:// or remove it",
		}},
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
			if strings.Contains(strings.Join(got, ""), "sekret") {
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
