package upstream

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway/upstream/credentials"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Config says how one server is reached. Zero values of the limits mean the
// defaults. Variables in it are already expanded.
type Config struct {
	// URL of a server that speaks Streamable HTTP, or HTTP+SSE of 2024-11-05;
	// http or https. Either URL or Command is set. The environment's
	// HTTPS_PROXY, HTTP_PROXY and NO_PROXY count; redirects are not followed.
	URL string `yaml:"url"`
	// Headers are sent with every request to URL: the gateway's own
	// credentials. Nothing of a client's headers is ever sent.
	Headers map[string]strictyaml.Secret `yaml:"headers"`
	// OAuth has every request to URL carry a token of an issuer: the gateway's
	// own, or one for the user. Nil sends none.
	OAuth *credentials.Config `yaml:"oauth"`
	TLS   TLS                 `yaml:"tls"`

	// Command is run for a stdio server: a path, or a name that is looked up
	// in the gateway's own PATH.
	Command string   `yaml:"command"`
	Args    []string `yaml:"args"`
	// Env is added to the few variables that the process inherits: PATH,
	// HOME, LANG, LC_ALL, LC_CTYPE, LOGNAME, SHELL, TMPDIR, TZ, USER.
	Env map[string]strictyaml.Secret `yaml:"env"`
	Dir string                       `yaml:"dir"` // empty is the gateway's own
	// Shared: one process serves all clients, instead of one each. It is told
	// of nothing that they can do, and asks them nothing.
	Shared bool `yaml:"shared"`

	// Protocol is auto (the default), legacy or modern: the era in which the
	// server is spoken to. auto finds out.
	Protocol string `yaml:"protocol"`

	// ConnectTimeout bounds starting or reaching a server until it is ready
	// for requests: 5s for a URL, 30s for a command, which may have to
	// download itself first.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// ListTimeout bounds reading all pages of its lists: 10s. Nobody waits
	// for that: lists are served from the last good one.
	ListTimeout time.Duration `yaml:"list_timeout"`
	// CallTimeout bounds a request from its arrival to its answer: 2m. The
	// time that the server waits for what it asks of the client does not
	// count, but all in all a request takes no more than ten times as long.
	CallTimeout time.Duration `yaml:"call_timeout"`
	// IdleTimeout ends a session or process that nobody used for so long: 10m.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// StopTimeout is how long a process that was asked to end has before it
	// is forced: 3s.
	StopTimeout time.Duration `yaml:"stop_timeout"`

	// MaxResponse bounds one message of the server, decompressed: 16MiB.
	MaxResponse strictyaml.ByteSize `yaml:"max_response"`
	// MaxConcurrent bounds the requests under way at the server; more wait
	// for a place until their deadline: 256.
	MaxConcurrent int `yaml:"max_concurrent"`
	// MaxSessions bounds sessions, 1024, or processes, 128: one for each session
	// of a client up to revision 2025-11-25, one for each principal beyond. The
	// one idle for longest makes room for a new one; one with a subscription
	// is not idle. Discovery has another one of its own.
	MaxSessions int `yaml:"max_sessions"`
}

// TLS are the settings for an https URL.
type TLS = credentials.TLS

func (c Config) withDefaults() Config {
	connect, sessions := 5*time.Second, 1024
	if c.Command != "" {
		connect, sessions = 30*time.Second, 128
	}
	fallback(&c.Protocol, "auto")
	fallback(&c.ConnectTimeout, connect)
	fallback(&c.ListTimeout, 10*time.Second)
	fallback(&c.CallTimeout, 2*time.Minute)
	fallback(&c.IdleTimeout, 10*time.Minute)
	fallback(&c.StopTimeout, 3*time.Second)
	fallback(&c.MaxResponse, 16<<20)
	fallback(&c.MaxConcurrent, 256)
	fallback(&c.MaxSessions, sessions)
	return c
}

func fallback[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Validate returns everything that is wrong with the configuration. path is
// where it stands, such as servers.stripe.
func (c Config) Validate(path string) []strictyaml.Problem {
	p := &problems{path: path}
	switch {
	case c.URL == "" && c.Command == "":
		p.add("", "needs either url or command")
	case c.URL != "" && c.Command != "":
		p.add("", "has both url and command; remove one")
	case c.URL != "":
		c.validateHTTP(p)
	default:
		c.validateStdio(p)
	}
	switch c.Protocol {
	case "", "auto", "legacy", "modern":
	default:
		p.add("protocol", "want auto, legacy or modern")
	}
	c.validateLimits(p)
	return p.list
}

type problems struct {
	path string
	list []strictyaml.Problem
}

// add adds a problem of the whole, or of one of its keys.
func (p *problems) add(key, format string, args ...any) {
	path := p.path
	if key != "" {
		path = strictyaml.Field(path, key)
	}
	p.at(path, format, args...)
}

func (p *problems) at(path, format string, args ...any) {
	p.list = append(p.list, strictyaml.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c Config) validateHTTP(p *problems) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		p.add("url", "is not a URL") // the error would repeat it, credentials included
	case u.Scheme != "http" && u.Scheme != "https":
		p.add("url", "must begin with http:// or https://")
	case u.Hostname() == "":
		p.add("url", "names no host")
	case u.User != nil:
		p.add("url", "holds credentials; put them into headers instead")
	case u.Fragment != "":
		p.add("url", "has a fragment (#…), which is never sent; remove it")
	}
	c.validateHeaders(p)
	if c.OAuth != nil {
		p.list = append(p.list, c.OAuth.Validate(strictyaml.Field(p.path, "oauth"))...)
	}
	if c.TLS.CAFile != "" {
		at := strictyaml.Field(strictyaml.Field(p.path, "tls"), "ca_file")
		if _, err := c.TLS.Roots(); err != nil {
			p.at(at, "%v", err)
		}
		if err == nil && u.Scheme == "http" {
			p.at(at, "has no effect with an http:// url; use https:// or remove it")
		}
	}
	if len(c.Args) > 0 || len(c.Env) > 0 || c.Dir != "" || c.Shared {
		p.add("", "args, env, dir and shared are for a command; remove them or the url")
	}
}

func (c Config) validateHeaders(p *problems) {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		at := strictyaml.Field(strictyaml.Field(p.path, "headers"), name)
		key := http.CanonicalHeaderKey(name)
		switch {
		case name == "" || strings.Trim(name, tokenChars) != "":
			p.at(at, "is not the name of a header")
		case ours(key):
			p.at(at, "is set by the gateway itself; remove it")
		case key == "Authorization" && c.OAuth != nil:
			p.at(at, "is what oauth sets; remove one of the two")
		case seen[key] != "":
			p.at(at, "is the same header as %s; remove one", seen[key])
		case strings.ContainsFunc(string(c.Headers[name]), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }):
			p.at(at, "holds characters that a header cannot carry, such as a line break")
		}
		seen[key] = name
	}
}

// tokenChars are the characters of a header's name (RFC 9110 section 5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// ours tells the headers that the gateway sets itself, or that belong to the
// connection.
func ours(key string) bool {
	switch key {
	case "Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
		"Host", "Keep-Alive", "Last-Event-Id", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return strings.HasPrefix(key, "Mcp-")
}

func (c Config) validateStdio(p *problems) {
	switch {
	case strings.ContainsRune(c.Command, 0):
		p.add("command", "holds a NUL character")
	case strings.ContainsAny(c.Command, " \t\n") && !c.runs():
		p.add("command", "must be the name or the path of a program alone, and no program is called that; put what follows its name into args")
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			p.at(strictyaml.Index(strictyaml.Field(p.path, "args"), i), "holds a NUL character")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		at := strictyaml.Field(strictyaml.Field(p.path, "env"), name)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			p.at(at, "is not the name of an environment variable")
		case strings.ContainsRune(string(c.Env[name]), 0):
			p.at(at, "holds a NUL character")
		}
	}
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
			p.add("dir", "is not a directory that can be read")
		}
	}
	if len(c.Headers) > 0 || c.TLS != (TLS{}) {
		p.add("", "headers and tls are for a url; remove them or the command")
	}
	if c.OAuth != nil {
		p.add("oauth", "is for a url: a command gets no token of anybody, only what its env holds; remove it")
	}
}

// runs reports whether the command is a program, whose path may hold spaces.
func (c Config) runs() bool {
	path := c.Command
	if c.Dir != "" && filepath.Base(path) != path && !filepath.IsAbs(path) {
		path = c.Dir + string(filepath.Separator) + path // begins where the process does
	}
	_, err := exec.LookPath(path)
	return err == nil
}

func (c Config) validateLimits(p *problems) {
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"connect_timeout", c.ConnectTimeout}, {"list_timeout", c.ListTimeout}, {"call_timeout", c.CallTimeout},
		{"idle_timeout", c.IdleTimeout}, {"stop_timeout", c.StopTimeout},
	} {
		if d.value < 0 {
			p.add(d.key, "must not be negative")
		}
	}
	const least, most = 4 << 10, 1 << 30
	if c.MaxResponse != 0 && (c.MaxResponse < least || c.MaxResponse > most) {
		p.add("max_response", "must be between 4KiB and 1GiB")
	}
	if c.MaxConcurrent < 0 {
		p.add("max_concurrent", "must not be negative")
	}
	if c.MaxSessions < 0 {
		p.add("max_sessions", "must not be negative")
	}
}
