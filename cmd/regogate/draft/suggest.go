package draft

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// suggestion is a guess at what a tool is, from words alone. It errs upwards:
// a label that is too high costs a question, one that is too low is a hole.
// What there is no sign of stays empty and is for a person to say.
type suggestion struct {
	registry.Tool
	Why []string // the signs, for the person who judges the guess
}

// missing lists what the entry still needs to be one.
func (s *suggestion) missing() (fields []string) {
	if len(s.Attributes) == 0 {
		fields = append(fields, "attributes")
	}
	for _, f := range []struct{ name, value string }{{"effect", s.Effect}, {"data", s.Data}, {"reach", s.Reach}} {
		if f.value == "" {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// suggest guesses the attributes of one tool. Where shipped, the catalogue in
// the binary by server and tool, knows a tool of these names, what it says is
// the suggestion. Else it is guessed from the server's name, the tool's own name
// and its hints. A server's hints are its own claims, so they only ever raise a
// guess.
//
//   - effect is that of the verb, raised by words for rights and for money. A
//     name without a verb has none, unless a hint says that it changes things.
//   - attributes is the one domain that the server's name stands for, or else
//     the one that the words of the tool's name agree on.
//   - data is the most sensitive class that a word or the domain stands for.
//   - reach is always external: nothing in a name shows that a tool stays in.
func suggest(server string, d upstream.Definition, shipped map[string]registry.Tool) suggestion {
	if t, ok := shipped[shippedKey(server, d.Name)]; ok {
		t.Server, t.SHA256, t.Suggested = server, d.SHA256, true
		return suggestion{t, []string{"the shipped catalogue has a tool of these names"}}
	}
	s := suggestion{Tool: registry.Tool{Server: server, Name: d.Name, SHA256: d.SHA256, Suggested: true}}
	of := words(server)
	own := ownWords(of, words(d.Name))
	s.domain(of, own)
	s.effect(own, d.Annotations)
	s.data(own)
	s.Reach = "external"
	return s
}

// shippedKey is what the tools of the catalogue in the binary are found by.
// People write a product's name in their own way.
func shippedKey(server, tool string) string { return strings.ToLower(server) + "\x00" + tool }

func (s *suggestion) because(format string, args ...any) {
	s.Why = append(s.Why, fmt.Sprintf(format, args...))
}

// effect sets the effect of the verb and raises it.
func (s *suggestion) effect(own []string, annotations jsontext.Value) {
	if verb, class := verb(own); class != "" {
		s.Effect = class
		s.because("verb %s", verb)
	}
	if s.Effect != "" && s.Effect != "read" {
		for _, w := range own {
			if class := objects()[w]; graver(class, s.Effect) {
				s.Effect = class
				s.because("changes %s", w)
			}
		}
		if slices.Contains(s.Attributes, "identity") && graver("admin", s.Effect) {
			s.Effect = "admin"
			s.because("changes identity")
		}
	}
	readOnly, destructive := hint(annotations, "readOnlyHint"), hint(annotations, "destructiveHint")
	switch {
	case destructive != "" && destructive != "false" && graver("destructive", s.Effect):
		s.Effect = "destructive"
		s.because("destructiveHint")
	case readOnly == "" || readOnly == "true":
	case s.Effect == "": // a change of unknown kind can be any
		s.Effect = "destructive"
		s.because("readOnlyHint is not true and no verb says what changes")
	case s.Effect == "read":
		s.Effect = "write"
		s.because("readOnlyHint is not true")
	}
}

// hint returns one of a server's hints as it is written; "" where it is absent
// or null.
func hint(annotations jsontext.Value, name string) string {
	members, err := mcp.Members(annotations)
	if err != nil {
		return ""
	}
	value := string(mcp.Get(members, name))
	if value == "null" {
		return ""
	}
	return value
}

// graver reports whether an effect is worse than another. execute and admin
// both need a grant of their own; whoever changes rights can give themselves
// the rest.
func graver(a, b string) bool {
	order := []string{"", "read", "write", "destructive", "execute", "admin"}
	return slices.Index(order, a) > slices.Index(order, b)
}

// verb finds the word that says what the tool does, and its effect. It is the
// first word, or the last one (projects_write), or else the first verb there
// is. After "and" and "or" there is one more, and the graver counts.
func verb(own []string) (word, class string) {
	if len(own) == 0 {
		return "", ""
	}
	known := verbs()
	candidates := append([]string{own[0], own[len(own)-1]}, own...)
	for _, w := range candidates {
		if class = known[w]; class != "" {
			word = w
			break
		}
	}
	for i, w := range own[1:] {
		if (own[i] == "or" || own[i] == "and") && graver(known[w], class) {
			word, class = w, known[w]
		}
	}
	for _, w := range own {
		if runs(w) && graver("execute", class) {
			word, class = w, "execute"
		}
	}
	return word, class
}

// domain sets the domain, but only one that there is no doubt of.
func (s *suggestion) domain(server, own []string) {
	for _, from := range []struct {
		whose  string
		words  []string
		tables []map[string]string
	}{
		{"server's name", server, []map[string]string{products(), domains()}},
		{"tool's name", own, []map[string]string{domains()}},
	} {
		var found []string
		var sign string
		for _, known := range from.tables {
			for _, w := range from.words {
				if d := singular(known, w); d != "" && !slices.Contains(found, d) {
					found, sign = append(found, d), w
				}
			}
		}
		if len(found) == 1 {
			s.Attributes = found
			s.because("%s %s", from.whose, sign)
		}
		if len(found) > 0 {
			return // further words do not make it any surer
		}
	}
}

// singular looks a word up as it is, and without a plural's ending.
func singular(known map[string]string, word string) string {
	return cmp.Or(known[word], known[strings.TrimSuffix(word, "s")])
}

// data sets the most sensitive class that anything stands for.
func (s *suggestion) data(own []string) {
	raise := func(class, sign string) {
		if order := registry.DataClasses(); slices.Index(order, class) > slices.Index(order, s.Data) {
			s.Data = class
			s.because("data: %s", sign)
		}
	}
	if len(s.Attributes) == 1 {
		raise(usualData(s.Attributes[0]), s.Attributes[0])
	}
	known := dataWords()
	for _, w := range own {
		raise(singular(known, w), w)
	}
	if s.Effect == "execute" {
		raise("secret", "code that runs reaches everything")
	}
}

// words splits a name at separators and where a capital follows a small
// letter, and makes the parts lower-case.
func words(name string) []string {
	var out []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			out = append(out, word.String())
			word.Reset()
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) ||
			unicode.IsUpper(runes[i-1]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			flush()
		}
		word.WriteRune(unicode.ToLower(r))
	}
	flush()
	return out
}

// ownWords drops what a tool's name repeats of its server's, and words that
// say nothing, from its beginning.
func ownWords(server, own []string) []string {
	for len(own) > 1 && (slices.Contains(server, own[0]) || own[0] == "api" || own[0] == "mcp") && verbs()[own[0]] == "" {
		own = own[1:]
	}
	return own
}
