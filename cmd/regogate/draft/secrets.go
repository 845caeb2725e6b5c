package draft

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// variable is an environment variable that the written configuration refers to.
type variable struct {
	name, value string
	known       bool     // whether the value is known now
	places      []string // paths in the configuration
}

// variables keeps values out of the files that are written. A client's file
// does not say what is secret, so every value of an environment variable, a
// header and a query counts as one, and so does what looks like one in
// arguments and paths.
type variables struct {
	lookup func(string) (string, bool) // the environment of this process
	list   []*variable
}

// value is a text of the client's file in both of its forms.
type value struct {
	yaml string // for the configuration, with references and escapes
	real string // to connect now
	// missing names a variable that is needed to connect now and not set.
	missing string
}

func (v value) plus(other value) value {
	missing := v.missing
	if missing == "" {
		missing = other.missing
	}
	return value{v.yaml + other.yaml, v.real + other.real, missing}
}

func literal(s string) value { return value{yaml: plainDollar(s), real: s} }

// reference is how clients write a variable: ${NAME}, ${NAME:-default},
// ${env:NAME}, and ${input:name} or the like for what only they know.
var reference = regexp.MustCompile(`\$\{(?:env:)?([^}]*)\}`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// text reads a value that may hold references. bare is what it holds besides
// them.
func (vs *variables) text(server, place, raw string) (v value, bare string) {
	at := 0
	for _, m := range reference.FindAllStringSubmatchIndex(raw, -1) {
		if m[0] > 0 && raw[m[0]-1] == '$' {
			continue // $${ is a plain ${ to whoever expands it
		}
		v = v.plus(literal(raw[at:m[0]]))
		bare += raw[at:m[0]]
		v = v.plus(vs.reference(server, place, raw[m[2]:m[3]]))
		at = m[1]
	}
	return v.plus(literal(raw[at:])), bare + raw[at:]
}

func (vs *variables) reference(server, place, inner string) value {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if !variableName.MatchString(name) {
		name, hasFallback = prefixed(server, inner), false // only the client knows
	}
	real, set := vs.lookup(name)
	if !set && hasFallback {
		real, set = fallback, true
	}
	vs.note(name, real, place, set)
	v := value{yaml: "${" + name + "}", real: real}
	if !set {
		v.missing = name
	}
	return v
}

// hidden reads a value that must not be written: it becomes a reference, unless
// it is nothing but references already, or empty. base is what the variable
// would best be called.
func (vs *variables) hidden(server, base, place, raw string) value {
	if raw == "" {
		return value{}
	}
	probe := &variables{lookup: vs.lookup}
	v, bare := probe.text(server, place, raw)
	if bare == "" {
		v, _ = vs.text(server, place, raw)
		return v
	}
	v.yaml = "${" + vs.add(server, base, place, v.real, v.missing == "") + "}"
	return v
}

// credential is hidden for a header's value: the word that says what kind of
// credential it is may stay.
func (vs *variables) credential(server, header, place, raw string) value {
	scheme := authScheme.FindString(raw)
	base := prefixed(server, header)
	if scheme != "" {
		base = prefixed(server, "token")
	}
	return literal(scheme).plus(vs.hidden(server, base, place, raw[len(scheme):]))
}

var authScheme = regexp.MustCompile(`^(?i:bearer|basic|token) +`)

// add takes a variable for the value and returns its name: base, or where that
// is no name or taken by another value, one with the server's name in front.
func (vs *variables) add(server, base, place, value string, known bool) string {
	names := []string{base, prefixed(server, base)}
	if !variableName.MatchString(base) || ownByProcess(base) {
		names = names[1:]
	}
	for n := 1; ; {
		name := names[0]
		other := vs.find(name)
		if other == nil || known && other.known && other.value == value {
			vs.note(name, value, place, known)
			return name
		}
		if names = names[1:]; len(names) == 0 {
			n++
			names = []string{prefixed(server, base) + "_" + strconv.Itoa(n)}
		}
	}
}

func (vs *variables) find(name string) *variable {
	i := slices.IndexFunc(vs.list, func(v *variable) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return vs.list[i]
}

// note writes down that a place refers to a variable.
func (vs *variables) note(name, value, place string, known bool) {
	v := vs.find(name)
	if v == nil {
		v = &variable{name: name, value: value, known: known}
		vs.list = append(vs.list, v)
	}
	if place != "" && !slices.Contains(v.places, place) {
		v.places = append(v.places, place)
	}
}

// reserve takes the names that values refer to, so that no other value gets
// one of them.
func (vs *variables) reserve(values ...string) {
	for _, raw := range values {
		for _, m := range reference.FindAllStringSubmatch(raw, -1) {
			if name, _, _ := strings.Cut(m[1], ":-"); variableName.MatchString(name) {
				v, set := vs.lookup(name)
				vs.note(name, v, "", set)
			}
		}
	}
}

// redact replaces every value that the text repeats, the longest first: one may
// be part of another.
func (vs *variables) redact(text string) string {
	list := slices.SortedFunc(slices.Values(vs.list), func(a, b *variable) int { return len(b.value) - len(a.value) })
	for _, v := range list {
		if len(v.value) >= 4 && !ownByProcess(v.name) {
			text = strings.ReplaceAll(text, v.value, "${"+v.name+"}")
		}
	}
	return text
}

var notInNames = regexp.MustCompile(`[^A-Z0-9]+`)

// prefixed makes the name of a variable of a server's.
func prefixed(server, base string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToUpper(server+"_"+base), "_"), "_")
	if name == "" || name[0] <= '9' {
		name = "MCP_" + name
	}
	return name
}

// ownByProcess tells the variables that a process has anyway: another value
// for a server must have another name.
func ownByProcess(name string) bool {
	switch name {
	case "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER", "PWD", "TERM",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GODEBUG", "GOMEMLIMIT", "GOMAXPROCS":
		return true
	}
	return strings.HasPrefix(name, "REGOGATE_")
}

// secretWord tells the words of a flag's name whose value is to be hidden.
func secretWord(word string) bool {
	switch word {
	case "key", "apikey", "token", "secret", "password", "passwd", "pwd", "pass", "auth", "authorization", "bearer", "header",
		"headers", "credential", "credentials", "cookie", "session", "dsn", "connection", "pat", "jwt", "cert":
		return true
	}
	return false
}

func secretFlag(flag string) bool {
	return flag == "-H" || slices.ContainsFunc(words(flag), secretWord)
}

var (
	secretStart = regexp.MustCompile(`^(sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[a-z]|AKIA|AIza|eyJ|whsec|hf|npm|pypi|dop)[-_A-Z0-9]`)
	uuid        = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	solidRun    = regexp.MustCompile(`[A-Za-z0-9]{20,}`)
	digitAnd    = regexp.MustCompile(`[0-9].*[A-Za-z]|[A-Za-z].*[0-9]`)
	passwordIn  = regexp.MustCompile(`(?i)(password|passwd|pwd|secret|token|api_?key)=`)
)

// secretShape tells a text that looks like a credential or holds one.
func secretShape(s string) bool {
	if strings.HasPrefix(s, "sha256:") {
		return false
	}
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.User != nil || u.RawQuery != "" {
			return true
		}
	}
	for _, run := range solidRun.FindAllString(s, -1) {
		if digitAnd.MatchString(run) {
			return true
		}
	}
	return len(s) >= 12 && secretStart.MatchString(s) || uuid.MatchString(s) || passwordIn.MatchString(s)
}
