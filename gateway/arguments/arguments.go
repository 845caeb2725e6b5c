// Package arguments holds the arguments of a call against the schema that a server
// gives for its tool, before a policy compares them: what is missing or of another
// type then never reaches a comparison.
//
// Schemas are JSON Schema 2020-12, or the draft that $schema names. They come from
// servers and arguments from agents, so both are bounded, and so is what holding one
// against the other may take. Nothing that schemas refer to is fetched; $dynamicRef
// is not followed, and a pattern that Go's regular expressions, which take linear
// time, cannot express makes a schema unusable. Formats are annotations, as 2020-12
// has it.
package arguments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Bounds of a schema, of numbers in arguments, and of what is told of them.
const (
	maxSchema   = 256 << 10 // bytes
	maxSchemas  = 5000      // objects and booleans, of which each can be a schema
	maxDepth    = 128       // of a schema, and of arguments
	maxPattern  = 4 << 10   // bytes
	maxPatterns = 50_000    // instructions of all patterns of a schema
	maxDigits   = 1024
	maxExponent = 1000
	maxFaults   = 8
	maxPlace    = 120 // bytes of one place
	maxWhy      = 300 // bytes of why a schema cannot be used
)

// Schema is a schema that can be used. It is immutable and safe for concurrent
// use.
type Schema struct {
	compiled *jsonschema.Schema
	weights  map[*jsonschema.Schema]int // of the lists in each part
}

// Fault is one thing that is wrong with arguments. It holds names of the schema and
// of members, and no values.
type Fault struct {
	Place string // JSON Pointer (RFC 6901); "" is the arguments themselves
	Rule  string // what they ought to be, such as "must be an integer"
}

func (f Fault) String() string {
	if f.Place == "" {
		return "the arguments " + f.Rule
	}
	return f.Place + " " + f.Rule
}

const location = "urn:tool"

// Compile reads an inputSchema. The error says why it cannot be used, in one line
// of printable characters.
func Compile(schema []byte) (s *Schema, err error) {
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("larger than %d bytes", maxSchema)
	}
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, errors.New("cannot be compiled")
		}
	}()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, errors.New("not valid JSON")
	}
	if _, ok := document.(map[string]any); !ok {
		return nil, errors.New("must be an object")
	}
	schemas := 0
	if err := bounded(document, 0, &schemas); err != nil {
		return nil, err
	}
	if f := unbounded(document, nil); f != nil {
		return nil, fmt.Errorf("%s %s", strconv.Quote(f.Place), f.Rule)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	c.UseRegexpEngine(linear())
	if err := c.AddResource(location, document); err != nil {
		return nil, oneLine(err)
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, oneLine(err)
	}
	s = &Schema{compiled, map[*jsonschema.Schema]int{}}
	if err := s.weigh(compiled, map[*jsonschema.Schema]int{}); err != nil {
		return nil, err
	}
	return s, nil
}

// closed fetches nothing.
type closed struct{}

func (closed) Load(url string) (any, error) {
	return nil, fmt.Errorf("refers to %s: only what is in the schema itself is used", cut(url))
}

var errLarge = errors.New("the patterns are too large, with repetitions written out")

type pattern struct {
	*regexp.Regexp
	instructions int
}

// linear returns an engine for the patterns of one schema.
func linear() jsonschema.RegexpEngine {
	compiled := map[string]pattern{} // each is asked for twice, to be verified and to be used
	total := 0
	return func(text string) (jsonschema.Regexp, error) {
		if p, ok := compiled[text]; ok {
			return p, nil
		}
		if len(text) > maxPattern {
			return nil, fmt.Errorf("a pattern is longer than %d bytes", maxPattern)
		}
		if total > maxPatterns {
			return nil, errLarge
		}
		n, err := instructions(text)
		if err != nil {
			return nil, fmt.Errorf("the pattern %s cannot be used: %w", strconv.Quote(cut(text)), err)
		}
		if total += n; total > maxPatterns {
			return nil, errLarge
		}
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("the pattern %s cannot be used: %w", strconv.Quote(cut(text)), err)
		}
		compiled[text] = pattern{re, n}
		return compiled[text], nil
	}
}

// instructions is how many there are in the program of a pattern.
func instructions(text string) (int, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}

// Check returns what is wrong with the arguments, a JSON object or nil for none;
// nothing where they fit. What would take long to find out is a fault itself.
func (s *Schema) Check(arguments []byte) (faults []Fault) {
	defer func() {
		if r := recover(); r != nil {
			faults = []Fault{{Rule: "cannot be held against the schema"}}
		}
	}()
	if arguments == nil {
		arguments = []byte("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(arguments))
	if err != nil {
		return []Fault{{Rule: "must be valid JSON"}}
	}
	if f := unbounded(value, nil); f != nil {
		return []Fault{*f}
	}
	left := maxEffort
	held := newValue(value, 0, &left)
	if held == nil || (effort{s, map[step]int{}}).of(s.compiled, held) > maxEffort {
		return []Fault{{Rule: "are too large, or nested too deep, to be held against the schema"}}
	}
	var invalid *jsonschema.ValidationError
	switch err := s.compiled.Validate(value); {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []Fault{{Rule: "cannot be held against the schema"}}
	}
	collect(invalid, &faults)
	return faults
}

// unbounded finds a number that would be expensive to compare.
func unbounded(v any, place []string) *Fault {
	switch x := v.(type) {
	case json.Number:
		_, exponent, _ := strings.Cut(strings.ToLower(string(x)), "e")
		n, err := strconv.Atoi(exponent)
		if len(x) > maxDigits || exponent != "" && (err != nil || n > maxExponent || n < -maxExponent) {
			return &Fault{pointer(place), "must be a number of fewer digits"}
		}
	case []any:
		for i, e := range x {
			if f := unbounded(e, append(place, strconv.Itoa(i))); f != nil {
				return f
			}
		}
	case map[string]any:
		for name, e := range x {
			if f := unbounded(e, append(place, name)); f != nil {
				return f
			}
		}
	}
	return nil
}

// collect takes the faults at the leaves: what is above them says that there are
// some.
func collect(e *jsonschema.ValidationError, faults *[]Fault) {
	if len(*faults) >= maxFaults {
		return
	}
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			collect(cause, faults)
		}
		return
	}
	if f := (Fault{pointer(e.InstanceLocation), rule(e.ErrorKind)}); !slices.Contains(*faults, f) {
		*faults = append(*faults, f)
	}
}

// rule says what is asked for, in words of the schema alone.
func rule(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.Required:
		return "must have " + names(k.Missing)
	case *kind.AdditionalProperties:
		return "must not have " + names(k.Properties)
	case *kind.Enum, *kind.Const:
		return "must be one of the values that the schema lists"
	case *kind.Pattern:
		return "must match the pattern of the schema"
	case *kind.FalseSchema:
		return "must not be there"
	case *kind.Minimum, *kind.Maximum, *kind.ExclusiveMinimum, *kind.ExclusiveMaximum, *kind.MultipleOf,
		*kind.MinLength, *kind.MaxLength, *kind.MinItems, *kind.MaxItems, *kind.MinProperties, *kind.MaxProperties:
		// Their texts hold numbers only: lengths, and the bounds of the schema.
		return "must keep to its " + keyword(k)
	}
	return "must keep to " + keyword(k) + " of the schema"
}

func keyword(k jsonschema.ErrorKind) string {
	path := k.KeywordPath()
	if len(path) == 0 {
		return "a rule"
	}
	return cut(path[len(path)-1])
}

func names(list []string) string {
	quoted := make([]string, 0, maxFaults)
	for _, name := range list[:min(len(list), maxFaults)] {
		quoted = append(quoted, strconv.Quote(cut(name)))
	}
	return strings.Join(quoted, ", ")
}

func pointer(place []string) string {
	var b strings.Builder
	for _, part := range place {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return cut(b.String())
}

func cut(s string) string { return shorten(s, maxPlace) }

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func oneLine(err error) error {
	var schema *jsonschema.SchemaValidationError
	if errors.As(err, &schema) {
		var invalid *jsonschema.ValidationError
		if errors.As(schema.Err, &invalid) {
			for len(invalid.Causes) > 0 {
				invalid = invalid.Causes[0]
			}
			text := invalid.ErrorKind.LocalizedString(message.NewPrinter(language.English))
			if f, ok := invalid.ErrorKind.(*kind.Format); ok { // of a pattern, and the text has all of it first
				text = f.Err.Error()
			}
			return fmt.Errorf("no JSON Schema: at %q: %s", pointer(invalid.InstanceLocation), printable(text))
		}
	}
	return errors.New(printable(err.Error()))
}

// printable is one line of a text in which a server may have put anything.
func printable(s string) string {
	words := strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) })
	return shorten(strings.Join(words, " "), maxWhy)
}
