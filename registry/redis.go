package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/regogate/regogate/registry/strictyaml"
)

// RedisConfig says how to reach a Redis: one server by url or addrs, a cluster
// by several addrs, or the master that sentinels know.
type RedisConfig struct {
	// URL is redis://[user:password@]host[:port][/db], or rediss:// for TLS.
	URL strictyaml.Secret `yaml:"url"`
	// Addrs are host:port, instead of URL.
	Addrs []string `yaml:"addrs"`
	// Sentinel makes Addrs those of sentinels.
	Sentinel *SentinelConfig   `yaml:"sentinel"`
	Username string            `yaml:"username"`
	Password strictyaml.Secret `yaml:"password"`
	DB       int               `yaml:"db"`
	TLS      *TLSConfig        `yaml:"tls"`
	// Prefix begins every key; empty means regogate.
	Prefix string `yaml:"prefix"`
	// Timeout bounds every command, connecting included; 0 means 250 ms.
	Timeout time.Duration `yaml:"timeout"`
}

// SentinelConfig names the master and says who asks the sentinels for it.
type SentinelConfig struct {
	Master   string            `yaml:"master"`
	Username string            `yaml:"username"`
	Password strictyaml.Secret `yaml:"password"`
}

// TLSConfig is the TLS of a client. The zero value checks the server against
// the system's roots.
type TLSConfig struct {
	CAFile             string `yaml:"ca_file"`
	CertFile           string `yaml:"cert_file"`
	KeyFile            string `yaml:"key_file"`
	ServerName         string `yaml:"server_name"`
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify"`
}

const (
	defaultPrefix  = "regogate"
	defaultTimeout = 250 * time.Millisecond
	maxTimeout     = 5 * time.Second
	maxPrefix      = 64
	dialSteps      = 6
)

// Validate returns every problem, with paths that begin with the given one.
func (c *RedisConfig) Validate(path string) []strictyaml.Problem {
	v := checker{path: path}
	switch {
	case c.URL == "" && len(c.Addrs) == 0:
		v.problem("url", "is missing; want url or addrs")
	case c.URL != "" && len(c.Addrs) > 0:
		v.problem("addrs", "want url or addrs, not both")
	case c.URL != "":
		if _, err := parseRedisURL(string(c.URL)); err != nil {
			v.problem("url", "%v", err)
		}
		c.checkBesideURL(&v)
	}
	for i, addr := range c.Addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || !validPort(port) {
			v.problem(strictyaml.Index("addrs", i), "want host:port")
		}
	}
	if c.Sentinel != nil && c.Sentinel.Master == "" {
		v.problem("sentinel.master", "is missing")
	}
	if c.DB < 0 || c.DB != 0 && len(c.Addrs) > 1 && c.Sentinel == nil {
		v.problem("db", "want 0 or more, and 0 for a cluster")
	}
	if c.Prefix != "" && (len(c.Prefix) > maxPrefix || !wordsOnly(strings.ReplaceAll(c.Prefix, ":", "."))) {
		v.problem("prefix", "want at most %d of A-Z a-z 0-9 . - _ :", maxPrefix)
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		v.problem("timeout", "want more than 0 and at most %s", maxTimeout)
	}
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		v.problem("tls.cert_file", "want cert_file and key_file, or neither")
	}
	return v.problems
}

func (c *RedisConfig) checkBesideURL(v *checker) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"sentinel", c.Sentinel != nil}, {"username", c.Username != ""},
		{"password", c.Password != ""}, {"db", c.DB != 0},
	} {
		if f.set {
			v.problem(f.name, "has no effect beside url; put it into the url, or use addrs")
		}
	}
	if c.TLS != nil && !strings.HasPrefix(string(c.URL), "rediss://") {
		v.problem("tls", "has no effect beside a redis:// url; use rediss://")
	}
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// parseRedisURL reads what RedisConfig.URL describes. Unlike the library it
// accepts no query, which could weaken the connection unnoticed, and its
// errors never repeat the URL, which may hold a password.
func parseRedisURL(text string) (*redis.UniversalOptions, error) {
	form := errors.New("want redis://[user:password@]host[:port][/db], or rediss:// for TLS")
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || (u.Scheme != "redis" && u.Scheme != "rediss") ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, form
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	db := 0
	if name := strings.TrimPrefix(u.Path, "/"); name != "" {
		if db, err = strconv.Atoi(name); err != nil || db < 0 {
			return nil, form
		}
	}
	if !validPort(port) {
		return nil, form
	}
	o := &redis.UniversalOptions{Addrs: []string{net.JoinHostPort(u.Hostname(), port)}, DB: db}
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	if u.Scheme == "rediss" {
		o.TLSConfig = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return o, nil
}

func (c *RedisConfig) prefix() string {
	if c.Prefix == "" {
		return defaultPrefix
	}
	return c.Prefix
}

func (c *RedisConfig) timeout() time.Duration {
	if c.Timeout == 0 {
		return defaultTimeout
	}
	return c.Timeout
}

// NewClient returns a client for a configuration that passed Validate. It
// connects only when used, and every command ends within the timeout or the
// context's deadline, whichever is sooner. The error is about TLS files.
func NewClient(c RedisConfig) (redis.UniversalClient, error) {
	o := &redis.UniversalOptions{
		Addrs: c.Addrs, DB: c.DB, Username: c.Username, Password: string(c.Password),
	}
	if c.URL != "" {
		var err error
		if o, err = parseRedisURL(string(c.URL)); err != nil {
			return nil, fmt.Errorf("read the Redis url: %w", err)
		}
	}
	if c.Sentinel != nil {
		o.MasterName = c.Sentinel.Master
		o.SentinelUsername, o.SentinelPassword = c.Sentinel.Username, string(c.Sentinel.Password)
	}
	if c.TLS != nil {
		if o.TLSConfig == nil {
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if err := c.TLS.apply(o.TLSConfig); err != nil {
			return nil, fmt.Errorf("prepare TLS for Redis: %w", err)
		}
	}
	c.bound(o)
	// The library would write a line to stderr for every failed dial; who uses
	// the client logs what matters of that, once.
	logging.Disable()
	client := redis.NewUniversalClient(o)
	client.AddHook(deadline(c.timeout()))
	return client, nil
}

// bound undoes the library's patience: by default it ignores the context's
// deadline, dials five times and retries three.
func (c *RedisConfig) bound(o *redis.UniversalOptions) {
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.timeout(), c.timeout(), c.timeout(), c.timeout()
	if c.Sentinel != nil {
		// To dial is to ask a sentinel first, twice, and the others where it does not
		// answer. Within the time of one question the library would never get past a
		// sentinel that hangs. The deadline of commands is not moved by that: a dial
		// that takes longer goes on without them, for the next.
		o.DialTimeout = dialSteps * c.timeout()
	}
	o.DialerRetries = 1
	o.MaxRetries = 1
	o.MaxRedirects = 2
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// deadline bounds a whole command: waiting for a connection, dialling and the
// retry, each of which the options bound only by itself.
type deadline time.Duration

func (d deadline) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d deadline) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(d))
		defer cancel()
		return next(ctx, cmd)
	}
}

func (d deadline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(d))
		defer cancel()
		return next(ctx, cmds)
	}
}

func (c *TLSConfig) apply(to *tls.Config) error {
	if c.ServerName != "" {
		to.ServerName = c.ServerName
	}
	to.InsecureSkipVerify = c.InsecureSkipVerify
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return err
		}
		to.RootCAs = x509.NewCertPool()
		if !to.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("no certificate in %s", c.CAFile)
		}
	}
	if c.CertFile == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return err
	}
	to.Certificates = []tls.Certificate{cert}
	return nil
}
