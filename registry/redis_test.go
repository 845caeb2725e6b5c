package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/registry/strictyaml"
)

// allowed is what registry/README.md gives the user of the registry.
const allowed = "on >secret ~gw:v3:* &gw:v3:* +getrange +set +expire +exists +publish +subscribe +ping"

// inCluster is what it gives one of a cluster besides.
const inCluster = allowed + " +cluster|slots +command"

// ofSentinels is what it gives the user that asks sentinels.
const ofSentinels = "on >secret &* +sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe +ping"

// userArgs are the arguments of a server that has the user.
func userArgs(user string) []string { return append([]string{"--user"}, strings.Fields(user)...) }

// denied counts what a server refused to the users it has.
func denied(t *testing.T, addr string) map[string]int64 {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	entries, err := client.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int64{}
	for _, e := range entries {
		count[e.Reason+" "+e.Object] += e.Count
	}
	return count
}

// pinged counts the registry's subscriptions whose last command was a ping.
func pinged(t *testing.T, servers []*redisserver.Server) (n int) {
	t.Helper()
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		list, err := client.ClientList(t.Context()).Result()
		client.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(list) {
			if strings.Contains(line, " sub=1 ") && strings.Contains(line, " user=gateway ") && strings.Contains(line, " cmd=ping ") {
				n++
			}
		}
	}
	return n
}

// TestUserOfRedis gives the registry just the commands, keys and channels that the
// documentation names: nothing that it tries is refused. Less is a problem.
func TestUserOfRedis(t *testing.T) {
	const gateway = "gateway "
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{allowed, ofSentinels, "`" + strings.TrimPrefix(inCluster, allowed+" ") + "`"} {
		if rule = strings.NewReplacer("secret", "PASSWORD", "gw:", "regogate:").Replace(rule); !strings.Contains(string(text), rule) {
			t.Errorf("the documentation does not say %s", rule)
		}
	}
	for name, start := range map[string]func(t *testing.T, c *RedisConfig) (servers []*redisserver.Server){
		"one": func(t *testing.T, c *RedisConfig) []*redisserver.Server {
			s := redisserver.Start(t, userArgs(gateway+allowed)...)
			c.Addrs = []string{s.Addr}
			return []*redisserver.Server{s}
		},
		"cluster": func(t *testing.T, c *RedisConfig) []*redisserver.Server {
			servers := redisserver.StartCluster(t, 2, userArgs(gateway+inCluster)...)
			c.Addrs = []string{servers[0].Addr, servers[1].Addr}
			return servers
		},
		"sentinels": func(t *testing.T, c *RedisConfig) []*redisserver.Server {
			master := redisserver.Start(t, userArgs(gateway+allowed)...)
			replica := redisserver.StartReplica(t, master)
			sentinels := redisserver.StartSentinels(t, 2, master, "user asker "+ofSentinels)
			c.Addrs = []string{sentinels[0].Addr, sentinels[1].Addr}
			c.Sentinel = &SentinelConfig{Master: redisserver.Master, Username: "asker", Password: "secret"}
			return append(sentinels, master, replica)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := RedisConfig{Username: "gateway", Password: "secret", Timeout: maxTimeout}
			servers := start(t, &config)
			source := scriptedOf(t, validTool("a", "t"), validTool("b", "t"))
			replica := func() *Cached {
				client, err := NewClient(config)
				if err != nil {
					t.Fatal(err)
				}
				c := NewCached(source, client, "gw", cacheTTL, quiet())
				t.Cleanup(func() { c.Close() })
				return c
			}
			one, two := replica(), replica()
			for _, c := range []*Cached{one, two} {
				receive(t, c.Changed(), "the subscription's own hint")
			}
			eventually(t, 20*time.Second, "it is cached", func() bool { load(t, one); return one.Stats().Hits > 0 })
			receive(t, two.Changed(), "the other replica's hint")
			newer := *mustCatalogue(t, validTool("a", "t"), validTool("b", "u"))
			newer.Signature = "a.b.c"
			signed, err := NewCatalogue("", newer)
			if err != nil {
				t.Fatal(err)
			}
			source.set(func(s *scripted) { s.catalogue = signed })
			load(t, one)
			eventually(t, 20*time.Second, "it is remembered", func() bool {
				c, _, err := two.Remembered(t.Context())
				return err == nil && reflect.DeepEqual(c, signed)
			})
			eventually(t, 20*time.Second, "both subscriptions were tried", func() bool { return pinged(t, servers) == 2 })
			for _, s := range servers {
				if got := denied(t, s.Addr); len(got) > 0 {
					t.Errorf("refused: %v", got)
				}
			}
			if p := append(one.Problems(), two.Problems()...); len(p) > 0 {
				t.Errorf("problems %q", p)
			}
		})
	}
	for _, command := range strings.Split("getrange set expire exists subscribe ping", " ") {
		t.Run("without "+command, func(t *testing.T) {
			t.Parallel()
			s := redisserver.Start(t, userArgs(gateway+allowed+" -"+command)...)
			client, err := NewClient(RedisConfig{Addrs: []string{s.Addr}, Username: "gateway", Password: "secret", Timeout: maxTimeout})
			if err != nil {
				t.Fatal(err)
			}
			source := scriptedOf(t, validTool("a", "t"))
			var log logged
			c := NewCached(source, client, "gw", cacheTTL, log.logger())
			t.Cleanup(func() { c.Close() })
			load(t, c)
			source.set(func(s *scripted) { s.catalogue = mustCatalogue(t, validTool("a", "t"), validTool("b", "t")) })
			load(t, c)
			eventually(t, 20*time.Second, "the status says so", func() bool {
				p := c.Problems()
				return len(p) == 1 && strings.Contains(p[0], "NOPERM") && strings.Contains(p[0], command)
			})
			eventually(t, 60*time.Second, "it was tried again", func() bool { return denied(t, s.Addr)["command "+command] >= 2 })
			if n := log.count("\n"); n != 1 {
				t.Errorf("%d lines in the log:\n%s", n, &log.text)
			}
		})
	}
}

// issued is a certificate and its key, in files.
type issued struct {
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	crt, pair string
}

// issue makes a certificate for redis.test, signed by its issuer or by itself.
func issue(t *testing.T, dir, name string, by *issued) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"redis.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: by == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	i := &issued{cert: template, key: key, crt: filepath.Join(dir, name+".crt"), pair: filepath.Join(dir, name+".key")}
	if by == nil {
		by = i
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{i.crt: {Type: "CERTIFICATE", Bytes: der}, i.pair: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if i.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return i
}

// TestRedisOverTLS has a server that asks for a certificate of its clients.
func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, stranger := issue(t, dir, "root", nil), issue(t, dir, "stranger", nil)
	server, client, other := issue(t, dir, "server", root), issue(t, dir, "client", root), issue(t, dir, "other", stranger)
	s := redisserver.StartTLS(t, server.crt, server.pair, root.crt)
	_, port, _ := net.SplitHostPort(s.Addr)
	for _, c := range []struct {
		name string
		tls  TLSConfig
		want string // in the error
	}{
		{"all of it", TLSConfig{CAFile: root.crt, CertFile: client.crt, KeyFile: client.pair, ServerName: "redis.test"}, ""},
		{"unverified server", TLSConfig{CertFile: client.crt, KeyFile: client.pair, InsecureSkipVerify: true}, ""},
		{"no certificate", TLSConfig{CAFile: root.crt, ServerName: "redis.test"}, "certificate required"},
		{"certificate of a stranger", TLSConfig{CAFile: root.crt, CertFile: other.crt, KeyFile: other.pair, ServerName: "redis.test"}, "unknown certificate authority"},
		{"another root", TLSConfig{CAFile: stranger.crt, CertFile: client.crt, KeyFile: client.pair, ServerName: "redis.test"}, "unknown authority"},
		{"another name", TLSConfig{CAFile: root.crt, CertFile: client.crt, KeyFile: client.pair, ServerName: "other.test"}, "not other.test"},
		{"name of the address", TLSConfig{CAFile: root.crt, CertFile: client.crt, KeyFile: client.pair}, "127.0.0.1"},
	} {
		for way, config := range map[string]RedisConfig{
			"url":   {URL: strictyaml.Secret(fmt.Sprintf("rediss://127.0.0.1:%s", port)), TLS: &c.tls, Timeout: 2 * time.Second},
			"addrs": {Addrs: []string{s.Addr}, TLS: &c.tls, Timeout: 2 * time.Second},
		} {
			client, err := NewClient(config)
			if err != nil {
				t.Fatal(err)
			}
			err = client.Ping(t.Context()).Err()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s by %s: %v, want %q", c.name, way, err, c.want)
			}
			client.Close()
		}
	}
}
