package registry

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/regogate/regogate/registry/strictyaml"
)

// Attributes returns the domains that a tool can belong to.
func Attributes() []string {
	return []string{
		"ai", "analytics", "commerce", "crm", "database", "developer", "hr", "identity",
		"infrastructure", "marketing", "messaging", "payments", "productivity", "storage", "web",
	}
}

// Effects returns what a call can do. The first four are ordered from harmless
// to grave; execute, which runs what its arguments say, stands apart.
func Effects() []string { return []string{"read", "write", "destructive", "admin", "execute"} }

// DataClasses returns the kinds of data that a tool handles, from harmless to
// grave.
func DataClasses() []string {
	return []string{"public", "internal", "personal", "financial", "secret"}
}

// Reaches returns how far a call goes: closed stays with the server's own
// data, external meets the outside world.
func Reaches() []string { return []string{"closed", "external"} }

// Bounds of the free texts, in bytes.
const (
	maxDescription = 500
	maxOwner       = 128
	maxEnv         = 32
	maxLabel       = 256
	maxLabels      = 64
	maxReason      = 500
	maxSignature   = 16 << 10
)

// validSignature reports whether s can be a JWS in compact form, or is empty.
func validSignature(s string) bool {
	return len(s) <= maxSignature && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// check returns what is wrong with what the tool says, paths beginning with the
// given one.
func (t *Tool) check(path string) []strictyaml.Problem {
	common := Server{
		Description: t.Description, Attributes: t.Attributes, Data: t.Data, Reach: t.Reach,
		Env: t.Env, Owner: t.Owner, Labels: t.Labels,
	}
	c := checker{path: path, problems: common.check(path)}
	c.word("effect", t.Effect, Effects())
	if t.SHA256 != "" && !validSHA256(t.SHA256) {
		c.problem("sha256", sha256Rule)
	}
	return c.problems
}

const sha256Rule = "want 64 lower-case hexadecimal digits"

func validSHA256(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// check returns what is wrong with what the server's entry says, paths
// beginning with the given one. It may leave out anything.
func (s *Server) check(path string) []strictyaml.Problem {
	c := checker{path: path}
	for i, a := range s.Attributes {
		c.word(strictyaml.Index("attributes", i), a, Attributes())
		if slices.Contains(s.Attributes[:i], a) {
			c.problem(strictyaml.Index("attributes", i), "is listed twice")
		}
	}
	c.word("data", s.Data, DataClasses())
	c.word("reach", s.Reach, Reaches())
	if s.Env != "" && (len(s.Env) > maxEnv || strings.Trim(s.Env, "abcdefghijklmnopqrstuvwxyz0123456789-") != "") {
		c.problem("env", "want a short word of a-z 0-9 -, such as production")
	}
	c.text("description", s.Description, maxDescription)
	c.text("owner", s.Owner, maxOwner)
	if len(s.Labels) > maxLabels {
		c.problem("labels", "has more than %d labels", maxLabels)
	}
	for key, value := range s.Labels {
		c.text(strictyaml.Field("labels", key), key, maxLabel)
		c.text(strictyaml.Field("labels", key), value, maxLabel)
	}
	return c.problems
}

// check returns what is wrong with the entry, paths beginning with the given one.
func (q *Quarantined) check(path string) []strictyaml.Problem {
	c := checker{path: path}
	if !ValidServer(q.Server) {
		c.problem("server", "%s", ServerRule)
	}
	if q.Tool != "" && !ValidTool(q.Tool) {
		c.problem("tool", "%s", ToolRule)
	}
	if q.Reason == "" {
		c.problem("reason", "is missing; say why, in a line")
	}
	c.text("reason", q.Reason, maxReason)
	c.text("by", q.By, maxOwner)
	return c.problems
}

// missing returns what the tool must say and does not. A suggested one may
// leave out what nobody has decided yet.
func (t *Tool) missing(path string) []strictyaml.Problem {
	if t.Suggested {
		return nil
	}
	c := checker{path: path}
	if len(t.Attributes) == 0 {
		c.problem("attributes", "is missing; want one or more of: %s", strings.Join(Attributes(), ", "))
	}
	for _, f := range []struct {
		name, value string
		known       []string
	}{{"effect", t.Effect, Effects()}, {"data", t.Data, DataClasses()}, {"reach", t.Reach, Reaches()}} {
		if f.value == "" {
			c.problem(f.name, "is missing; want one of: %s", strings.Join(f.known, ", "))
		}
	}
	return c.problems
}

type checker struct {
	path     string
	problems []strictyaml.Problem
}

func (c *checker) problem(field, format string, args ...any) {
	if c.path != "" {
		field = c.path + "." + field
	}
	c.problems = append(c.problems, strictyaml.Problem{Path: field, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) word(field, word string, known []string) {
	if word == "" && !strings.HasSuffix(field, "]") || slices.Contains(known, word) {
		return
	}
	if near := strictyaml.Nearest(word, known); near != "" {
		c.problem(field, "unknown value %.40q; did you mean %s?", word, near)
		return
	}
	c.problem(field, "unknown value %.40q; want one of: %s", word, strings.Join(known, ", "))
}

func (c *checker) text(field, text string, limit int) {
	switch {
	case len(text) > limit:
		c.problem(field, "is longer than %d bytes", limit)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, notShown):
		c.problem(field, "contains a character that does not show")
	}
}

// notShown finds line breaks, control, bidirectional and tag characters, which
// make a text read otherwise than it is.
func notShown(r rune) bool { return !unicode.IsPrint(r) }
