package cases

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// at returns the value that a JSON Pointer leads to, byte for byte, or nil where
// there is none.
func at(doc jsontext.Value, pointer string) jsontext.Value {
	if pointer == "" {
		return doc
	}
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch doc.Kind() {
		case '{':
			members, err := mcp.Split(doc)
			if err != nil {
				return nil
			}
			doc = mcp.Get(members, token)
		case '[':
			items, err := mcp.Elements(doc)
			i, bad := strconv.Atoi(token)
			if err != nil || bad != nil || i < 0 || i >= len(items) {
				return nil
			}
			doc = items[i]
		default:
			return nil
		}
	}
	return doc
}

// canonical is the one form of all JSON texts that mean the same; numbers keep
// their literals.
func canonical(v jsontext.Value) (string, error) {
	c := v.Clone()
	err := c.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return string(c), err
}

// check returns what the document is not as the probe says.
func (p *Probe) check(doc jsontext.Value) (problems []string) {
	for _, pointer := range slices.Sorted(maps.Keys(p.JSON)) {
		want, err := json.Marshal(p.JSON[pointer])
		if err != nil {
			return []string{fmt.Sprintf("json %s: %v", pointer, err)}
		}
		wanted, _ := canonical(want)
		found := at(doc, pointer)
		if got, err := canonical(found); found == nil || err != nil || got != wanted {
			problems = append(problems, fmt.Sprintf("%s is %s, want %s", pointer, show(found), wanted))
		}
	}
	for _, pointer := range slices.Sorted(maps.Keys(p.Raw)) {
		if got := at(doc, pointer); !bytes.Equal(got, []byte(p.Raw[pointer])) {
			problems = append(problems, fmt.Sprintf("%s is written %s, want %s", pointer, show(got), clip(p.Raw[pointer])))
		}
	}
	for _, pointer := range slices.Sorted(maps.Keys(p.Like)) {
		got := at(doc, pointer)
		text, ok := mcp.Text(got)
		if !ok {
			text = string(got)
		}
		if problem := like(text, p.Like[pointer]); got == nil || problem != "" {
			problems = append(problems, pointer+" "+show(got)+" does not match "+p.Like[pointer])
		}
	}
	for _, pointer := range p.Lacks {
		if got := at(doc, pointer); got != nil {
			problems = append(problems, fmt.Sprintf("%s is there: %s", pointer, show(got)))
		}
	}
	return problems
}

// like says how a text does not match an expression, "" where it does.
func like(text, expression string) string {
	re, err := regexp.Compile(expression)
	switch {
	case err != nil:
		return err.Error()
	case !re.MatchString(text):
		return fmt.Sprintf("%q does not match %s", clip(text), expression)
	}
	return ""
}

func show(v jsontext.Value) string {
	if v == nil {
		return "not there"
	}
	return clip(string(v))
}
