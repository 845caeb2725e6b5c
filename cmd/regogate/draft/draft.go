package draft

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// draft is one server on its way into the configuration.
type draft struct {
	name   string          // by the rules for names
	from   string          // its name in the client's file
	config upstream.Config // with the real values
	yaml   []string        // its lines in the configuration, without values
	out    string          // why it is left out; "" where it is not
	unset  string          // a variable without which it cannot be reached now
}

// drafts makes servers of a client's file ready for the configuration. dir is
// the file's own, where its relative paths begin.
func drafts(clients []client, vs *variables, dir string) []*draft {
	names := serverNames(clients)
	for _, c := range clients {
		vs.reserve(c.command, c.url)
		vs.reserve(c.args...)
		vs.reserve(slices.Collect(maps.Values(c.env))...)
		vs.reserve(slices.Collect(maps.Values(c.headers))...)
	}
	var list []*draft
	for _, c := range clients {
		d := &draft{name: names[c.name], from: c.name, out: c.out}
		if d.out == "" {
			(&drafter{draft: d, vs: vs, at: strictyaml.Field("servers", d.name)}).draw(c, dir)
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *draft) int { return cmp.Compare(a.name, b.name) })
	leaveOut(list)
	return list
}

// leaveOut drops what the gateway would not start with.
func leaveOut(list []*draft) {
	c := gateway.Config{Servers: map[string]gateway.Server{}}
	for _, d := range list {
		if d.out == "" && d.unset == "" {
			c.Servers[d.name] = gateway.Server{Config: d.config}
		}
	}
	c.Defaults()
	problems := c.Validate()
	for _, d := range list {
		at := strictyaml.Field("servers", d.name)
		for _, p := range problems {
			rest, ok := strings.CutPrefix(p.Path, at)
			if field := strings.TrimPrefix(rest, "."); ok && d.out == "" && (rest == "" || field != rest || rest[0] == '[') {
				d.out = strings.TrimPrefix(field+": "+p.Message, ": ")
			}
		}
	}
}

var notInServers = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// serverNames gives every server a valid name: its own where it is one, and
// else what is left of it, with a number behind it where that is taken.
func serverNames(clients []client) map[string]string {
	names := make(map[string]string, len(clients))
	taken := map[string]bool{}
	for _, c := range clients {
		if registry.ValidServer(c.name) {
			names[c.name], taken[c.name] = c.name, true
		}
	}
	for _, c := range clients {
		if names[c.name] != "" {
			continue
		}
		base := strings.Trim(notInServers.ReplaceAllString(c.name, "-"), "-.")
		base = cmp.Or(strings.TrimRight(base[:min(len(base), registry.MaxServer-4)], "-."), "server")
		name := base
		for n := 2; taken[name]; n++ {
			name = base + "-" + strconv.Itoa(n)
		}
		names[c.name], taken[name] = name, true
	}
	return names
}

// drafter writes one server, as configuration and as YAML.
type drafter struct {
	draft *draft
	vs    *variables
	at    string // path of the server
}

func (d *drafter) draw(c client, dir string) {
	config := &d.draft.config
	if c.command != "" {
		config.Command = d.set("command", d.open("command", c.command))
	}
	if len(c.args) > 0 {
		config.Args = d.args(c.args)
	}
	config.Env = d.texts("env", c.env, d.vs.hidden)
	if c.cwd != "" {
		v := d.open("dir", c.cwd)
		if !strings.HasPrefix(v.yaml, "${") && !filepath.IsAbs(v.real) {
			v = literal(filepath.Join(dir, v.real))
		}
		config.Dir = d.set("dir", v)
	}
	if c.url != "" {
		if v, ok := d.url(c.url); ok {
			config.URL = d.set("url", v)
		}
	}
	config.Headers = d.texts("headers", c.headers, d.vs.credential)
}

// use notes what a value needs and returns its real text.
func (d *drafter) use(v value) string {
	d.draft.unset = cmp.Or(d.draft.unset, v.missing)
	return v.real
}

func (d *drafter) set(key string, v value) string {
	d.draft.yaml = append(d.draft.yaml, key+": "+yamlText(v.yaml))
	return d.use(v)
}

// open is a value that is no secret.
func (d *drafter) open(key, raw string) value {
	v, _ := d.vs.text(d.draft.name, strictyaml.Field(d.at, key), raw)
	return v
}

// texts writes a mapping whose values are all hidden.
func (d *drafter) texts(key string, texts map[string]string, hide func(server, base, place, raw string) value) map[string]strictyaml.Secret {
	if len(texts) == 0 {
		return nil
	}
	real := make(map[string]strictyaml.Secret, len(texts))
	d.draft.yaml = append(d.draft.yaml, key+":")
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		place := strictyaml.Field(strictyaml.Field(d.at, key), name)
		v := hide(d.draft.name, name, place, texts[name])
		d.draft.yaml = append(d.draft.yaml, "  "+yamlText(name)+": "+yamlText(v.yaml))
		real[name] = strictyaml.Secret(d.use(v))
	}
	return real
}

// setting is NAME=value, as in the arguments of a container's start.
var setting = regexp.MustCompile(`^[A-Z][A-Z0-9_]*=`)

// headerLine is the beginning of "Name: value".
var headerLine = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*: *`)

// args hides the values of flags whose name says that they are secret, of
// settings, and whatever looks like a secret.
func (d *drafter) args(args []string) (real []string) {
	var yaml []string
	flag := "" // whose value comes next and is to be hidden
	for i, arg := range args {
		v := d.arg(i, arg, flag)
		if flag = ""; strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") && secretFlag(arg) {
			flag = arg
		}
		yaml, real = append(yaml, v.yaml), append(real, d.use(v))
	}
	d.draft.yaml = append(d.draft.yaml, "args: "+yamlList(yaml))
	return real
}

func (d *drafter) arg(i int, arg, flag string) value {
	place := strictyaml.Index(strictyaml.Field(d.at, "args"), i)
	hide := func(base, kept string) value {
		return literal(kept).plus(d.vs.hidden(d.draft.name, base, place, arg[len(kept):]))
	}
	name, val, assigned := strings.Cut(arg, "=")
	switch {
	case flag != "" && !strings.HasPrefix(arg, "-"):
		if head := headerLine.FindString(arg); head != "" {
			return literal(head).plus(d.vs.credential(d.draft.name, strings.TrimRight(head, ": "), place, arg[len(head):]))
		}
		return hide(prefixed(d.draft.name, flag), "")
	case assigned && strings.HasPrefix(arg, "-") && (secretFlag(name) || setting.MatchString(val) || secretShape(val)):
		if kept := setting.FindString(val); kept != "" {
			return hide(strings.TrimSuffix(kept, "="), name+"="+kept)
		}
		return hide(prefixed(d.draft.name, name), name+"=")
	case setting.MatchString(arg):
		return hide(name, name+"=")
	case secretShape(arg):
		return hide(prefixed(d.draft.name, "arg "+strconv.Itoa(i+1)), "")
	}
	v, _ := d.vs.text(d.draft.name, place, arg)
	return v
}

// url hides the values of the query and the parts of the path that look like a
// secret. A URL with a user or a password is left out: the gateway takes none.
func (d *drafter) url(raw string) (value, bool) {
	const key = "url"
	place := strictyaml.Field(d.at, key)
	if u, err := url.Parse(reference.ReplaceAllString(raw, "x")); err != nil || u.User != nil {
		d.draft.out = "url: is not a URL, or holds a user or a password: put what it needs into headers"
		return value{}, false
	}
	address, query, _ := strings.Cut(raw, "?")
	var v value
	for i, part := range strings.Split(address, "/") {
		if i > 0 {
			v = v.plus(literal("/"))
		}
		if i > 2 && secretShape(part) {
			v = v.plus(d.vs.hidden(d.draft.name, prefixed(d.draft.name, "url path"), place, part))
		} else {
			v = v.plus(d.open(key, part))
		}
	}
	if query == "" {
		return v, true
	}
	for i, pair := range strings.Split(query, "&") {
		name, val, _ := strings.Cut(pair, "=")
		v = v.plus(literal(string("?&"[min(i, 1)]) + name + "=")).
			plus(d.vs.hidden(d.draft.name, prefixed(d.draft.name, name), place, val))
	}
	return v, true
}

// told is how a server is called in what the user reads.
func (d *draft) told() string {
	if d.name == d.from {
		return d.name
	}
	return fmt.Sprintf("%s (there %s)", d.name, strconv.Quote(comment(d.from)))
}
