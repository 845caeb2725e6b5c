package gateway

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/limit"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/session"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Config is everything an operator can set. The zero value of a field means
// its default, which Defaults fills in; nothing that weakens the gateway is
// one, and what does is called insecure_.
type Config struct {
	Listen         string   `yaml:"listen"`          // host:port of the public listener
	PublicURL      string   `yaml:"public_url"`      // what clients use, without a path; no default where listen is on all addresses
	AllowedOrigins []string `yaml:"allowed_origins"` // Origin values of browser clients, exact
	AllowedHosts   []string `yaml:"allowed_hosts"`   // further Host names, without port
	TrustedProxies []string `yaml:"trusted_proxies"` // CIDRs whose X-Forwarded-For is believed

	Auth        auth.Config       `yaml:"auth"`
	Servers     map[string]Server `yaml:"servers"`
	Registry    registry.Config   `yaml:"registry"`
	Policy      policy.Config     `yaml:"policy"`
	Sessions    session.Config    `yaml:"sessions"`
	Limits      Limits            `yaml:"limits"`
	DecisionLog DecisionLog       `yaml:"decision_log"`
	Log         Log               `yaml:"log"`
	Admin       Admin             `yaml:"admin"`

	PageSize int `yaml:"page_size"` // tools on one page of a list
	// ShowCallConditions has listed tools say in their _meta whether a policy looks
	// at the arguments of each call.
	ShowCallConditions bool `yaml:"show_call_conditions"`

	ServerTiming bool `yaml:"server_timing"` // stages of a successful call in its Server-Timing header
}

// Server is one backend and the route that shows it alone.
type Server struct {
	upstream.Config `yaml:",inline"`
	// Audience is whom a token must be meant for on /mcp/NAME; the issuer's
	// list where it is empty.
	Audience []string `yaml:"audience"`
	// ValidateArguments holds the arguments of calls against the schemas of the
	// server's tools; Validate says otherwise for single tools.
	ValidateArguments bool            `yaml:"validate_arguments"`
	Validate          map[string]bool `yaml:"validate"`
}

// Limits bounds what one client can take.
type Limits struct {
	Body         strictyaml.ByteSize `yaml:"body"`          // of one request
	Concurrent   int                 `yaml:"concurrent"`    // requests of one principal at once
	ReadTimeout  time.Duration       `yaml:"read_timeout"`  // to read one request's headers, and then its body
	WriteTimeout time.Duration       `yaml:"write_timeout"` // for one write to a client that does not read
	Drain        time.Duration       `yaml:"drain"`         // for calls under way when the gateway stops
	Rate         limit.Config        `yaml:"rate"`          // how often, of one principal and of one tool
}

// DecisionLog says where decision records go, one JSON object a line. Where they
// go through OPA is policy.opa.decision_logs.
type DecisionLog struct {
	File       string              `yaml:"file"`        // a path, or - for standard output; none where empty
	MaxSize    strictyaml.ByteSize `yaml:"max_size"`    // of the file; it is rotated then
	Keep       int                 `yaml:"keep"`        // rotated files
	FailClosed bool                `yaml:"fail_closed"` // refuse what cannot be put on record
	Mask       string              `yaml:"mask"`        // a Rego file with mask and drop, for policies without
}

// Log is the gateway's own log, on standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error
	Format string `yaml:"format"` // json, text
}

// Defaults fills in what the operator left out.
func (c *Config) Defaults() {
	def(&c.Listen, "127.0.0.1:8080")
	if c.PublicURL == "" && !everywhere(c.Listen) {
		c.PublicURL = "http://" + c.Listen
	}
	def(&c.PageSize, 1000)
	c.Sessions.Defaults()
	def(&c.Limits.Body, 4<<20)
	def(&c.Limits.Concurrent, 128)
	def(&c.Limits.ReadTimeout, 15*time.Second)
	def(&c.Limits.WriteTimeout, 30*time.Second)
	def(&c.Limits.Drain, 20*time.Second)
	def(&c.DecisionLog.MaxSize, 100<<20)
	def(&c.DecisionLog.Keep, 5)
	def(&c.Log.Level, "info")
	def(&c.Log.Format, "json")
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Load reads the configuration file at path, expands the environment in it,
// applies the defaults and checks everything that can be checked without
// reaching anything. All problems come back at once; with any, the Config is
// not to be used. Relative paths in the file are made relative to its
// directory.
func Load(path string, env func(string) (string, bool), override func(*Config)) (*Config, []strictyaml.Problem) {
	c, _, problems := read(path, env, override)
	return c, problems
}

// read is Load with the positions that locate further problems. They are nil,
// and the Config is empty, where the file is no YAML that could be looked into.
func read(path string, env func(string) (string, bool), override func(*Config)) (*Config, *strictyaml.Positions, []strictyaml.Problem) {
	c := &Config{}
	data, err := os.ReadFile(path)
	if err != nil {
		return c, nil, []strictyaml.Problem{{File: path, Message: unreadable(err) +
			": write a first configuration with regogate init, or name another with --config"}}
	}
	positions, problems := strictyaml.Decode(data, c, strictyaml.Options{File: path, Dir: filepath.Dir(path), LookupEnv: env})
	if positions.Line("") == 0 {
		return c, nil, problems
	}
	if override != nil {
		override(c)
	}
	c.Defaults()
	c.rebase(filepath.Dir(path))
	problems = append(problems, without(c.Validate(), problems)...)
	positions.Locate(problems)
	return c, positions, problems
}

// without returns what is not a mere consequence of what could not be decoded:
// no problem at its place, above or below it.
func without(found, undecoded []strictyaml.Problem) []strictyaml.Problem {
	return slices.DeleteFunc(found, func(p strictyaml.Problem) bool {
		return slices.ContainsFunc(undecoded, func(u strictyaml.Problem) bool {
			return u.Path == "" || below(p.Path, u.Path) || below(u.Path, p.Path)
		})
	})
}

// below reports whether a path is another one or lies in it.
func below(path, around string) bool {
	rest, ok := strings.CutPrefix(path, around)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// unreadable says why a file cannot be read, without its path.
func unreadable(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return "cannot be read: " + err.Error()
}

// rebase makes the paths in the configuration relative to where it lies.
func (c *Config) rebase(dir string) {
	paths := []*string{&c.Registry.Path, &c.Policy.Dir, &c.DecisionLog.Mask, &c.Admin.TokenFile}
	if c.DecisionLog.File != "-" {
		paths = append(paths, &c.DecisionLog.File)
	}
	for i := range c.Auth.Issuers {
		iss := &c.Auth.Issuers[i]
		paths = append(paths, &iss.JWKSFile, &iss.PublicKeyFile, &iss.InsecureHMACSecretFile)
	}
	if v := c.Registry.Verify; v != nil {
		paths = append(paths, &v.Keys)
	}
	var clients []*registry.TLSConfig
	for _, r := range []*registry.RedisConfig{c.Registry.Redis, c.Sessions.Redis, c.Limits.Rate.Redis} {
		if r != nil {
			clients = append(clients, r.TLS)
		}
	}
	if c.Registry.Postgres != nil {
		clients = append(clients, c.Registry.Postgres.TLS)
	}
	for _, t := range clients {
		if t != nil {
			paths = append(paths, &t.CAFile, &t.CertFile, &t.KeyFile)
		}
	}
	for name, s := range c.Servers {
		under(dir, &s.Dir, &s.TLS.CAFile)
		if s.OAuth != nil {
			under(dir, &s.OAuth.PrivateKeyFile, &s.OAuth.TLS.CAFile)
		}
		c.Servers[name] = s
	}
	under(dir, paths...)
}

// under makes relative paths lie in dir. An empty one stays empty.
func under(dir string, paths ...*string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// Validate reports everything that is wrong, each with its path.
func (c *Config) Validate() []strictyaml.Problem {
	v := &validation{}
	host, port, err := net.SplitHostPort(c.Listen)
	if v.check("listen", err == nil && isPort(port), "must be host:port, such as 127.0.0.1:8080") {
		v.check("listen", host == "" || host == "localhost" || isIP(host), "the host must be an IP address or localhost")
	}
	v.admin(c)
	u, err := url.Parse(c.PublicURL)
	if v.check("public_url", c.PublicURL != "" || !everywhere(c.Listen),
		"name what clients use, such as https://gateway.example.com; listen is on all addresses") {
		v.check("public_url", err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
			strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.User == nil,
			"must be scheme and host without a path, such as https://gateway.example.com")
	}
	for i, o := range c.AllowedOrigins {
		ou, err := url.Parse(o)
		v.check(fmt.Sprintf("allowed_origins[%d]", i), err == nil && ou.Host != "" && ou.Path == "" && !strings.Contains(o, "*"),
			"must be one exact origin, such as https://inspector.example.com; there are no wildcards")
	}
	for i, p := range c.TrustedProxies {
		_, err := netip.ParsePrefix(p)
		v.check(fmt.Sprintf("trusted_proxies[%d]", i), err == nil, "must be a CIDR, such as 10.0.0.0/8")
	}
	for _, p := range c.Auth.Validate() {
		v.check("auth."+p.Path, false, p.Message)
	}
	v.servers(c)
	v.problems = append(v.problems, c.Registry.Validate("registry")...)
	v.problems = append(v.problems, c.Sessions.Validate("sessions")...)
	v.policy(c)
	v.limits(c)
	v.check("decision_log.max_size", c.DecisionLog.MaxSize >= 1<<20, "must be at least 1MiB")
	v.check("decision_log.keep", c.DecisionLog.Keep > 0, "must be more than 0")
	v.check("decision_log.fail_closed", !c.DecisionLog.FailClosed || c.DecisionLog.File != "",
		"needs decision_log.file: what OPA's decision log loses is not known here")
	return v.problems
}

// isPort also holds for 0, which takes a free one.
func isPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// everywhere reports whether a listener is on all addresses, none of which is
// what clients would use.
func everywhere(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	addr, _ := netip.ParseAddr(host)
	return err == nil && (host == "" || addr.Unmap().IsUnspecified())
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

type validation struct{ problems []strictyaml.Problem }

func (v *validation) check(path string, ok bool, message string) bool {
	if !ok {
		v.problems = append(v.problems, strictyaml.Problem{Path: path, Message: message})
	}
	return ok
}

// policy gives each problem of the policy's configuration the path that it
// begins with. Without a directory the process brings the policy along.
func (v *validation) policy(c *Config) {
	p := c.Policy
	if p.Dir == "" {
		p.FS = embed.FS{}
	}
	if err := p.Validate(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			key, message, _ := strings.Cut(line, ": ")
			v.check("policy."+key, false, message)
		}
	}
}

func (v *validation) servers(c *Config) {
	urls := map[string]string{}
	for _, name := range sortedKeys(c.Servers) {
		s, path := c.Servers[name], strictyaml.Field("servers", name)
		v.check(path, registry.ValidServer(name), registry.ServerRule)
		v.problems = append(v.problems, s.Config.Validate(path)...)
		v.exchange(c, s, path)
		if s.URL == "" {
			continue
		}
		if other, taken := urls[s.URL]; taken {
			v.check(path+".url", false, "server "+other+" has the same URL: one server, one name")
		}
		urls[s.URL] = name
		v.check(path+".url", !c.isSelf(s.URL), "is the gateway itself: name the backend's own URL")
	}
}

// exchange holds where users' tokens go against whose they are.
func (v *validation) exchange(c *Config, s Server, path string) {
	if !s.OAuth.Exchanges() {
		return
	}
	known := slices.ContainsFunc(c.Auth.Issuers, func(i auth.Issuer) bool { return i.Issuer == s.OAuth.SubjectIssuer })
	switch path += ".oauth.subject_issuer"; {
	case len(c.Auth.Issuers) == 0:
		v.check(path, false, "there is no user without auth.issuers: add one, or use grant: client_credentials")
	case s.OAuth.SubjectIssuer != "":
		v.check(path, known, "is not one of auth.issuers: give the issuer whose tokens token_url takes, byte for byte")
	default:
		v.check(path, len(c.Auth.Issuers) == 1, "name the one of auth.issuers whose tokens token_url takes: it must not see those of others")
	}
}

// isSelf reports whether the URL leads back to this gateway.
func (c *Config) isSelf(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	if public, err := url.Parse(c.PublicURL); err == nil && strings.EqualFold(u.Host, public.Host) {
		return strings.HasPrefix(u.Path, "/mcp")
	}
	host, port, err := net.SplitHostPort(c.Listen)
	return err == nil && port != "0" && u.Port() == port && (u.Hostname() == host || isLoopback(u.Hostname()) && isLoopback(host))
}

func (v *validation) limits(c *Config) {
	for _, n := range []struct {
		path  string
		value int64
	}{
		{"page_size", int64(c.PageSize)}, {"limits.body", int64(c.Limits.Body)},
		{"limits.concurrent", int64(c.Limits.Concurrent)}, {"limits.read_timeout", int64(c.Limits.ReadTimeout)},
		{"limits.write_timeout", int64(c.Limits.WriteTimeout)}, {"limits.drain", int64(c.Limits.Drain)},
	} {
		v.check(n.path, n.value > 0, "must be more than 0")
	}
	v.problems = append(v.problems, c.Limits.Rate.Validate("limits.rate")...)
	for _, name := range sortedKeys(c.Limits.Rate.Tools) {
		server, _, ok := registry.SplitExposed(name)
		_, known := c.Servers[server]
		v.check(strictyaml.Field("limits.rate.tools", name), !ok || known, "there is no server "+server)
	}
	v.check("log.level", slices.Contains(levels(), c.Log.Level), "must be debug, info, warn or error")
	v.check("log.format", slices.Contains([]string{"json", "text"}, c.Log.Format), "must be json or text")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Logger makes the logger that the configuration asks for, and what changes its
// level later.
func (l Log) Logger(w *os.File) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(levelOf(l.Level))
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "text" {
		return slog.New(slog.NewTextHandler(w, options)), level
	}
	return slog.New(slog.NewJSONHandler(w, options)), level
}

// levelOf reads one of the levels.
func levelOf(text string) (level slog.Level) {
	_ = level.UnmarshalText([]byte(text)) // Validate has seen it, or whoever asks
	return level
}
