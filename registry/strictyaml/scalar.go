package strictyaml

import (
	"encoding"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// describe names what a node is, never what it says.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a truth value"
	case "!!null":
		return "null"
	case "!!timestamp":
		return "a date"
	}
	if ambiguous(n) {
		return "a truth value in older YAML"
	}
	return "a string"
}

// ambiguous reports whether a scalar without quotes is anything but a string
// to some reader of YAML.
func ambiguous(n *yaml.Node) bool {
	return unquoted(n) && (n.ShortTag() != "!!str" || oldTruth(n.Value))
}

func unquoted(n *yaml.Node) bool {
	const quotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Kind == yaml.ScalarNode && n.Style&quotes == 0
}

func oldTruth(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return false
}

// scalar returns the node's text with its variables expanded, and whether any
// was: such text must not appear in a problem.
func (d *decoder) scalar(n *yaml.Node, path, want string) (text string, expanded, ok bool) {
	if n.Kind != yaml.ScalarNode {
		d.problem(n.Line, path, "want %s, this is %s", want, describe(n))
		return "", false, false
	}
	if d.opts.LookupEnv == nil || !strings.Contains(n.Value, "${") {
		return n.Value, false, true
	}
	text, ok = d.expand(n, path)
	return text, true, ok
}

// number is scalar for what is written without quotes.
func (d *decoder) number(n *yaml.Node, path, want string) (string, bool) {
	text, expanded, ok := d.scalar(n, path, want)
	if ok && !expanded && !unquoted(n) {
		d.problem(n.Line, path, "want %s, this is a string; remove the quotes", want)
		return "", false
	}
	return text, ok
}

func (d *decoder) str(n *yaml.Node, path string) (string, bool) {
	if ambiguous(n) {
		d.problem(n.Line, path, "want a string, this is %s; put it in quotes", describe(n))
		return "", false
	}
	text, _, ok := d.scalar(n, path, "a string")
	return text, ok
}

func (d *decoder) boolean(n *yaml.Node, path string, into reflect.Value) {
	const want = "true or false"
	text, ok := d.number(n, path, want)
	switch {
	case !ok:
	case text == "true" || text == "false":
		into.SetBool(text == "true")
	default:
		d.problem(n.Line, path, "want %s, this is something else", want)
	}
}

// plainInt accepts decimal digits without a leading zero, a plus sign or
// underscores, which other readers take for octal or for strings.
func plainInt(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || s == "0")
}

func (d *decoder) integer(n *yaml.Node, path string, into reflect.Value) {
	const want = "an integer in plain decimal digits"
	text, ok := d.number(n, path, want)
	if !ok {
		return
	}
	i, err := strconv.ParseInt(text, 10, into.Type().Bits())
	switch {
	case !plainInt(text):
		d.problem(n.Line, path, "want %s, this is something else", want)
	case err != nil:
		d.problem(n.Line, path, "is out of range for an integer of %d bits", into.Type().Bits())
	default:
		into.SetInt(i)
	}
}

func (d *decoder) unsigned(n *yaml.Node, path string, into reflect.Value) {
	const want = "an integer in plain decimal digits, not negative"
	text, ok := d.number(n, path, want)
	if !ok {
		return
	}
	i, err := strconv.ParseUint(text, 10, into.Type().Bits())
	switch {
	case !plainInt(text) || text[0] == '-':
		d.problem(n.Line, path, "want %s, this is something else", want)
	case err != nil:
		d.problem(n.Line, path, "is out of range for an integer of %d bits", into.Type().Bits())
	default:
		into.SetUint(i)
	}
}

func (d *decoder) float(n *yaml.Node, path string, into reflect.Value) {
	const want = "a decimal number such as 0.5"
	text, ok := d.number(n, path, want)
	if !ok {
		return
	}
	f, err := strconv.ParseFloat(text, into.Type().Bits())
	switch {
	case !plainFloat.MatchString(text):
		d.problem(n.Line, path, "want %s, this is something else", want)
	case err != nil || math.IsInf(f, 0):
		d.problem(n.Line, path, "is out of range for a number of %d bits", into.Type().Bits())
	default:
		into.SetFloat(f)
	}
}

var plainFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func (d *decoder) duration(n *yaml.Node, path string, into reflect.Value) {
	const want = "a duration with a unit such as 5s or 250ms"
	text, _, ok := d.scalar(n, path, want)
	if !ok {
		return
	}
	v, err := time.ParseDuration(text)
	if err != nil || plainInt(text) {
		d.problem(n.Line, path, "want %s, this is something else", want)
		return
	}
	into.SetInt(int64(v))
}

func (d *decoder) text(n *yaml.Node, path string, into encoding.TextUnmarshaler) {
	text, expanded, ok := d.scalar(n, path, "a string")
	if !ok {
		return
	}
	err := into.UnmarshalText([]byte(text))
	switch {
	case err != nil && expanded:
		d.problem(n.Line, path, "is not valid after its variables are filled in")
	case err != nil:
		d.problem(n.Line, path, "is not valid: %v", err)
	}
}
