package registry

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/regogate/regogate/registry/catalogue"
	"github.com/regogate/regogate/registry/strictyaml"
)

func TestConfigProblems(t *testing.T) {
	const pgForm = "want postgres://user[:password]@host[:port]/database, or postgres://user@/database?host=/DIRECTORY for a unix socket"
	const urlForm = "want redis://[user:password@]host[:port][/db], or rediss:// for TLS"
	for _, c := range []struct{ in, want string }{
		{"{}", ""},
		{"{path: catalogue, max_staleness: 1m, insecure_serve_stale: true}", ""},
		{"{redis: {url: 'rediss://u:p@r.example:6380/2', prefix: 'a:b', timeout: 100ms}, cache_ttl: 10m}", ""},
		{"{redis: {addrs: ['a:1', 'b:2'], sentinel: {master: m}, db: 3, username: u, password: p}}", ""},
		{"{redis: {url: 'rediss://r.example', tls: {ca_file: x}}}", ""},
		{"{max_staleness: 1s}", "f:1: registry.max_staleness: want at least 2s"},
		{"{max_staleness: -30s}", "f:1: registry.max_staleness: want at least 2s"},
		{"{cache_ttl: 1m}", "f:1: registry.cache_ttl: has no effect without redis"},
		{"{cache_ttl: 1s, redis: {addrs: ['a:1']}}", "f:1: registry.cache_ttl: want at least 1m0s"},
		{"{redis: {}}", "f:1: registry.redis.url: is missing; want url or addrs"},
		{"{redis: {url: 'redis://a', addrs: ['a:1']}}", "f:1: registry.redis.addrs: want url or addrs, not both"},
		{"{redis: {url: 'http://hunter2'}}", "f:1: registry.redis.url: " + urlForm},
		{"{redis: {url: 'redis://u:hunter2@a b'}}", "f:1: registry.redis.url: " + urlForm},
		{"{redis: {url: 'redis://a?skip_verify=true'}}", "f:1: registry.redis.url: " + urlForm},
		{"{redis: {url: 'redis://a/x'}}", "f:1: registry.redis.url: " + urlForm},
		{"{redis: {url: 'redis://a:0'}}", "f:1: registry.redis.url: " + urlForm},
		{"{redis: {url: 'redis://'}}", "f:1: registry.redis.url: " + urlForm},
		{"{redis: {url: 'redis://a', password: hunter2}}", "f:1: registry.redis.password: has no effect beside url; put it into the url, or use addrs"},
		{"{redis: {url: 'redis://a', tls: {}}}", "f:1: registry.redis.tls: has no effect beside a redis:// url; use rediss://"},
		{"{redis: {addrs: ['a', 'b:x', ':1']}}", "f:1: registry.redis.addrs[0]: want host:port\nf:1: registry.redis.addrs[1]: want host:port\nf:1: registry.redis.addrs[2]: want host:port"},
		{"{redis: {addrs: ['a:1', 'b:1'], db: 1}}", "f:1: registry.redis.db: want 0 or more, and 0 for a cluster"},
		{"{redis: {addrs: ['a:1'], sentinel: {}}}", "f:1: registry.redis.sentinel.master: is missing"},
		{"{redis: {addrs: ['a:1'], prefix: 'a b'}}", "f:1: registry.redis.prefix: want at most 64 of A-Z a-z 0-9 . - _ :"},
		{"{redis: {addrs: ['a:1'], timeout: 1m}}", "f:1: registry.redis.timeout: want more than 0 and at most 5s"},
		{"{redis: {addrs: ['a:1'], tls: {cert_file: x}}}", "f:1: registry.redis.tls.cert_file: want cert_file and key_file, or neither"},
		{"{postgres: {url: 'postgres://u:hunter2@db.example:5433/r', schema: s_1, timeout: 1s}, redis: {addrs: ['a:1']}}", ""},
		{"{postgres: {url: 'postgresql://u@[2001:db8::1]/r', password: hunter2, tls: {ca_file: x}}}", ""},
		{"{postgres: {url: 'postgres://u@/r?host=/run/pg&port=5433', password: hunter2}}", ""},
		{"{postgres: {url: 'postgres://u@db.example/r', insecure_plaintext: true}}", ""},
		{"{path: c, postgres: {url: 'postgres://u@a/r'}}", "f:1: registry.path: want path or postgres, not both"},
		{"{postgres: {}}", "f:1: registry.postgres.url: is missing; " + pgForm},
		{"{postgres: {url: 'host=a user=u password=hunter2'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'mysql://u:hunter2@a/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://a/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a:0/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a:1,b:2/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a,b/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u:hun/ter2@a/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a/r/x'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a/r#x'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u%00:hunter2@a/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u@/r'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u@/r?host=run'}}", "f:1: registry.postgres.url: " + pgForm},
		{"{postgres: {url: 'postgres://u@/r?host=/a&host=/b'}}", "f:1: registry.postgres.url: has a parameter that is not understood; " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a/r?host=/run'}}", "f:1: registry.postgres.url: has a parameter that is not understood; " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a/r?servicefile=x'}}", "f:1: registry.postgres.url: has a parameter that is not understood; " + pgForm},
		{"{postgres: {url: 'postgres://u:hunter2@a/r?sslmode=disable'}}", "f:1: registry.postgres.url: says how to use TLS; that is set in tls beside it"},
		{"{postgres: {url: 'postgres://u:hunter2@a/r', password: hunter2}}", "f:1: registry.postgres.password: want it here or in url, not both"},
		{"{postgres: {url: 'postgres://u@/r?host=/run', tls: {}}}", "f:1: registry.postgres.tls: has no effect on a unix socket"},
		{"{postgres: {url: 'postgres://u@a/r', tls: {}, insecure_plaintext: true}}", "f:1: registry.postgres.insecure_plaintext: want tls or insecure_plaintext, not both"},
		{"{postgres: {url: 'postgres://u@127.0.0.2/r', insecure_plaintext: true}}", "f:1: registry.postgres.insecure_plaintext: has no effect on a unix socket or over loopback, where there is no TLS without tls"},
		{"{postgres: {url: 'postgres://u@a/r', tls: {key_file: x}}}", "f:1: registry.postgres.tls.cert_file: want cert_file and key_file, or neither"},
		{"{postgres: {url: 'postgres://u@a/r', schema: Mine}}", "f:1: registry.postgres.schema: want at most 48 of a-z 0-9 _, neither beginning with a digit nor with pg_"},
		{"{postgres: {url: 'postgres://u@a/r', schema: pg_x}}", "f:1: registry.postgres.schema: want at most 48 of a-z 0-9 _, neither beginning with a digit nor with pg_"},
		{"{postgres: {url: 'postgres://u@a/r', timeout: 1h}}", "f:1: registry.postgres.timeout: want 50ms to 30s"},
	} {
		var file struct {
			Registry Config `yaml:"registry"`
		}
		pos, problems := strictyaml.Decode([]byte("registry: "+c.in+"\n"), &file, strictyaml.Options{File: "f"})
		if len(problems) > 0 {
			t.Errorf("%s: %v", c.in, problems)
			continue
		}
		problems = file.Registry.Validate("registry")
		pos.Locate(problems)
		got := ""
		if err := strictyaml.Err(problems); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", c.in, got, c.want)
		}
		if strings.Contains(fmt.Sprintf("%+v %s", file, got), "hunter2") {
			t.Errorf("%s: the secret is shown", c.in)
		}
	}
}

func TestOpen(t *testing.T) {
	embedded := fstest.MapFS{"a.yaml": {Data: []byte(catalogueYAML("a", 2, "read"))}}
	dir := t.TempDir()
	write(t, dir, "b.yaml", catalogueYAML("b", 3, "read"))
	redis := miniredis.RunT(t)
	url := strictyaml.Secret("redis://" + redis.Addr())
	for name, c := range map[string]struct {
		cfg  Config
		want int
	}{
		"embedded":        {Config{}, 2},
		"embedded, redis": {Config{Redis: &RedisConfig{URL: url}}, 2},
		"directory":       {Config{Path: dir}, 3},
		"file":            {Config{Path: filepath.Join(dir, "b.yaml")}, 3},
		"redis":           {Config{Path: dir, Redis: &RedisConfig{Addrs: []string{redis.Addr()}}}, 3},
		"redis down":      {Config{Path: dir, Redis: &RedisConfig{URL: "redis://127.0.0.1:1"}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := Open(t.Context(), c.cfg, embedded, quiet())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(k.Current().Tools()); n != c.want || !k.Fresh(time.Now()) {
				t.Errorf("%d tools, fresh %v", n, k.Fresh(time.Now()))
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	write(t, dir, "b.yaml", "version: 3\n")
	if _, err := Open(t.Context(), Config{Path: dir}, embedded, quiet()); err == nil || err.Error() != dir+"/b.yaml:1: version: want version: 1" {
		t.Errorf("error %v", err)
	}
	bad := Config{Redis: &RedisConfig{URL: "rediss://a", TLS: &TLSConfig{CAFile: filepath.Join(dir, "absent.pem")}}}
	if _, err := Open(t.Context(), bad, embedded, quiet()); err == nil || !strings.HasPrefix(err.Error(), "prepare TLS for Redis: ") {
		t.Errorf("error %v", err)
	}
}

// The catalogue that comes with the binary is one that this source accepts.
func TestShippedCatalogue(t *testing.T) {
	k, err := Open(t.Context(), Config{}, catalogue.FS, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if st := k.Status(); !st.Ready || st.Tools != 507 || st.Suggested != 0 || len(st.Problems) != 0 {
		t.Errorf("status %+v", st)
	}
}

// Every command ends within the timeout, whatever the server does.
func TestClientIsBounded(t *testing.T) {
	client, err := NewClient(RedisConfig{Addrs: []string{hung(t)}, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, run := range map[string]func(context.Context) error{
		"command": func(ctx context.Context) error { return client.Get(ctx, "k").Err() },
		"pipeline": func(ctx context.Context) error {
			p := client.Pipeline()
			p.Get(ctx, "a")
			p.Get(ctx, "b")
			_, err := p.Exec(ctx)
			return err
		},
	} {
		start := time.Now()
		if err := run(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("%s took %s", name, took)
		}
	}
}

func TestClientChecksTheServer(t *testing.T) {
	dir := t.TempDir()
	cert := writeCertificate(t, dir)
	redis, err := miniredis.RunTLS(&tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	for name, c := range map[string]struct {
		tls TLSConfig
		ok  bool
	}{
		"own root":     {TLSConfig{CAFile: filepath.Join(dir, "cert.pem"), ServerName: "redis.test"}, true},
		"another name": {TLSConfig{CAFile: filepath.Join(dir, "cert.pem"), ServerName: "other.test"}, false},
		"system roots": {TLSConfig{ServerName: "redis.test"}, false},
		"insecure":     {TLSConfig{InsecureSkipVerify: true}, true},
	} {
		client, err := NewClient(RedisConfig{URL: strictyaml.Secret("rediss://" + redis.Addr()), TLS: &c.tls, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Ping(t.Context()).Err(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		client.Close()
	}
}

func writeCertificate(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "by_certificate"}, DNSNames: []string{"redis.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
