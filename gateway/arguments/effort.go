package arguments

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of what holding arguments against a schema may take. An effort of one is
// some microseconds at most.
const (
	maxEffort = 100_000
	maxChain  = 64 // schemas that lead to each other on the same value
)

// Schemas may branch in themselves, so that a few bytes of arguments can take for
// ever, and what they take cannot be stopped once it is under way. So it is
// counted before: as the validator would go, but each part of a schema on each
// value once.
type effort struct {
	schema *Schema
	known  map[step]int
}

type step struct {
	schema *jsonschema.Schema
	value  *value
}

// value is a JSON value with what is in it. size is how many there are, more for
// long numbers and texts.
type value struct {
	text    string // of a string
	digits  int    // of a number, what it takes to compare it; 0 otherwise
	size    int
	members map[string]*value
	items   []*value
}

// newValue takes its size from left and returns nil when there is none left, or
// v is nested too deep.
func newValue(v any, depth int, left *int) *value {
	n := &value{size: 1}
	switch x := v.(type) {
	case string:
		n.text = x
		n.size += len(x) / 4096
	case json.Number:
		n.digits = digits(x)
		n.size = n.digits
	}
	if *left -= n.size; *left < 0 || depth > maxDepth {
		return nil
	}
	add := func(v any) *value {
		child := newValue(v, depth+1, left)
		if child != nil {
			n.size += child.size
		}
		return child
	}
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			child := add(e)
			if child == nil {
				return nil
			}
			n.items = append(n.items, child)
		}
	case map[string]any:
		n.members = make(map[string]*value, len(x))
		for name, e := range x {
			if n.members[name] = add(e); n.members[name] == nil {
				return nil
			}
		}
	}
	return n
}

// digits is what it takes to compare a number, as a multiple of a short one.
func digits(x json.Number) int {
	n := 1 + len(x)/32
	if strings.ContainsAny(string(x), "eE") {
		n += 8
	}
	return n
}

// of counts what a value takes against a schema, up to a little over maxEffort.
func (e effort) of(s *jsonschema.Schema, v *value) int {
	at := step{s, v}
	if n, ok := e.known[at]; ok {
		return n
	}
	if len(e.known) > maxEffort {
		return maxEffort
	}
	n := e.alone(s, v)
	add := func(s *jsonschema.Schema, v *value) {
		if n <= maxEffort {
			n += e.of(s, v)
		}
	}
	for _, same := range inPlace(s) {
		add(same, v)
	}
	for name, member := range v.members {
		for _, inner := range forMember(s, name) {
			add(inner, member)
		}
		if s.PropertyNames != nil {
			add(s.PropertyNames, &value{text: name, size: 1})
		}
	}
	for i, item := range v.items {
		for _, inner := range forItem(s, i) {
			add(inner, item)
		}
	}
	n = min(n, maxEffort+1)
	e.known[at] = n
	return n
}

// alone is what the keywords take that hold no schemas.
func (e effort) alone(s *jsonschema.Schema, v *value) int {
	n := 1 + len(v.text)/4096
	switch weight := e.schema.weights[s]; {
	case v.digits > 0:
		n += (weight + 1) * v.digits
	case v.members == nil && v.items == nil:
		n += weight / 16
	default:
		n += weight
	}
	if p, ok := s.Pattern.(pattern); ok {
		n += p.effort(v.text)
	}
	for p := range s.PatternProperties {
		for name := range v.members {
			n += 1 + p.(pattern).effort(name)
		}
	}
	if s.UniqueItems {
		n += v.size * min(len(v.items), 20) // the validator compares few with each other, and hashes more
	}
	return n
}

// effort is what it takes to match a text.
func (p pattern) effort(text string) int { return len(text) * p.instructions / 100 }

// inPlace are the schemas that the same value is held against.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}
	list = slices.Concat(list, s.AllOf, s.AnyOf, s.OneOf, slices.Collect(maps.Values(s.DependentSchemas)))
	for _, dependency := range s.Dependencies {
		list = appendSchema(list, dependency)
	}
	return slices.DeleteFunc(list, func(s *jsonschema.Schema) bool { return s == nil })
}

// forMember are those for a member of that name, whether it matches a pattern or
// not.
func forMember(s *jsonschema.Schema, name string) (list []*jsonschema.Schema) {
	list = appendSchema(list, s.Properties[name])
	for _, p := range s.PatternProperties {
		list = append(list, p)
	}
	if s.Properties[name] == nil {
		list = appendSchema(list, s.AdditionalProperties)
	}
	return appendSchema(list, s.UnevaluatedProperties)
}

func forItem(s *jsonschema.Schema, i int) (list []*jsonschema.Schema) {
	items, _ := s.Items.([]*jsonschema.Schema) // up to 2019-09
	for _, prefix := range [][]*jsonschema.Schema{items, s.PrefixItems} {
		if i < len(prefix) {
			list = append(list, prefix[i])
		}
	}
	for _, rest := range []any{s.Items, s.AdditionalItems, s.Items2020, s.Contains, s.UnevaluatedItems} {
		list = appendSchema(list, rest)
	}
	return list
}

// appendSchema appends v where it is a schema.
func appendSchema(list []*jsonschema.Schema, v any) []*jsonschema.Schema {
	if s, ok := v.(*jsonschema.Schema); ok && s != nil {
		return append(list, s)
	}
	return list
}

// weigh goes through all of a compiled schema: it weighs its lists, and takes out
// formats, which are annotations in every draft for us.
func (s *Schema) weigh(c *jsonschema.Schema, chains map[*jsonschema.Schema]int) error {
	if _, done := s.weights[c]; done {
		return nil
	}
	if c.DynamicRef != nil || c.RecursiveRef != nil {
		return errors.New("has a $dynamicRef or $recursiveRef: only $ref is followed")
	}
	if _, err := chain(c, chains); err != nil {
		return err
	}
	c.Format = nil
	weight := len(c.Required)
	for _, list := range c.DependentRequired {
		weight += len(list)
	}
	for _, dependency := range c.Dependencies {
		list, _ := dependency.([]string)
		weight += len(list)
	}
	left := maxSchema
	if c.Enum != nil {
		weight += newValue(c.Enum.Values, 0, &left).size
	}
	if c.Const != nil {
		weight += newValue(*c.Const, 0, &left).size
	}
	s.weights[c] = weight
	inner := slices.Concat(inPlace(c), c.PrefixItems, slices.Collect(maps.Values(c.Properties)), slices.Collect(maps.Values(c.PatternProperties)))
	for _, v := range []any{c.PropertyNames, c.AdditionalProperties, c.UnevaluatedProperties, c.Items, c.AdditionalItems, c.Items2020, c.Contains, c.UnevaluatedItems} {
		inner = appendSchema(inner, v)
	}
	if items, ok := c.Items.([]*jsonschema.Schema); ok {
		inner = append(inner, items...)
	}
	for _, i := range inner {
		if err := s.weigh(i, chains); err != nil {
			return err
		}
	}
	return nil
}

// chain returns how many schemas lead to each other on the same value, beginning
// with c. One that leads back to itself fits nothing, in more ways than could be
// counted.
func chain(c *jsonschema.Schema, known map[*jsonschema.Schema]int) (int, error) {
	const under = -1
	switch n, ok := known[c]; {
	case n == under:
		return 0, errors.New("refers to itself for the same value")
	case ok:
		return n, nil
	}
	known[c] = under
	longest := 0
	for _, same := range inPlace(c) {
		n, err := chain(same, known)
		if err != nil {
			return 0, err
		}
		longest = max(longest, n)
	}
	known[c] = longest + 1
	if longest >= maxChain {
		return 0, fmt.Errorf("leads through more than %d schemas for the same value", maxChain)
	}
	return longest + 1, nil
}

// bounded fails for a schema that would take long to compile, or that has a
// number which would take long to compare.
func bounded(v any, depth int, schemas *int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	switch x := v.(type) {
	case bool:
		*schemas++
	case []any:
		for _, e := range x {
			if err := bounded(e, depth+1, schemas); err != nil {
				return err
			}
		}
	case map[string]any:
		*schemas++
		for _, e := range x {
			if err := bounded(e, depth+1, schemas); err != nil {
				return err
			}
		}
	}
	if *schemas > maxSchemas {
		return fmt.Errorf("has more than %d objects and booleans", maxSchemas)
	}
	return nil
}
