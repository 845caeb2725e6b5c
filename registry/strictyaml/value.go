package strictyaml

import (
	"encoding"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// value decodes one node. into can be set and has an address.
func (d *decoder) value(n *yaml.Node, path string, depth int, into reflect.Value) {
	if _, ok := d.pos.lines[path]; !ok {
		d.pos.lines[path] = n.Line
	}
	if !d.plain(n, path, depth) {
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.null(n, path, into)
		return
	}
	if into.Kind() == reflect.Pointer {
		if into.IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
		}
		d.value(n, path, depth, into.Elem())
		return
	}
	if into.Type() == reflect.TypeFor[time.Duration]() {
		d.duration(n, path, into)
		return
	}
	if text, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(n, path, text)
		return
	}
	d.kind(n, path, depth, into)
}

func (d *decoder) kind(n *yaml.Node, path string, depth int, into reflect.Value) {
	switch into.Kind() {
	case reflect.Struct:
		d.structure(n, path, depth, into)
	case reflect.Map:
		d.mapping(n, path, depth, into)
	case reflect.Slice:
		d.list(n, path, depth, into)
	case reflect.String:
		if s, ok := d.str(n, path); ok {
			into.SetString(s)
		}
	case reflect.Bool:
		d.boolean(n, path, into)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.integer(n, path, into)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.unsigned(n, path, into)
	case reflect.Float32, reflect.Float64:
		d.float(n, path, into)
	case reflect.Interface:
		d.anything(n, path, depth, into)
	default:
		d.problem(n.Line, path, "cannot be set from a file (%s)", into.Type())
	}
}

// plain refuses the parts of YAML that make a document say more than it shows.
func (d *decoder) plain(n *yaml.Node, path string, depth int) bool {
	switch {
	case depth > d.opts.MaxDepth:
		d.problem(n.Line, "", "nested deeper than %d levels", d.opts.MaxDepth)
	case n.Kind == yaml.AliasNode:
		d.problem(n.Line, path, "aliases are not allowed; write the value out")
	case n.Anchor != "":
		d.problem(n.Line, path, "anchors are not allowed; write the value out where it is needed")
	case n.Style&yaml.TaggedStyle != 0:
		d.problem(n.Line, path, "tags are not allowed; remove what begins with !")
	default:
		return true
	}
	return false
}

func (d *decoder) null(n *yaml.Node, path string, into reflect.Value) {
	if into.Kind() == reflect.Interface {
		into.SetZero()
		return
	}
	// Of an optional section, too: whose lines are all comments was meant to be there.
	d.problem(n.Line, path, "has no value; give it one or remove the line")
}

// entry is one key of a mapping with its value.
type entry struct {
	key  *yaml.Node
	node *yaml.Node
	path string
}

// entries returns the keys of a mapping without those that are refused.
func (d *decoder) entries(n *yaml.Node, path string) []entry {
	if n.Kind != yaml.MappingNode {
		d.problem(n.Line, path, "want a mapping of keys to values, this is %s", describe(n))
		return nil
	}
	first := make(map[string]int, len(n.Content)/2)
	out := make([]entry, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !d.key(key, path) {
			continue
		}
		e := entry{key: key, node: n.Content[i+1], path: Field(path, key.Value)}
		if line, ok := first[key.Value]; ok {
			d.problem(key.Line, e.path, "duplicate key, first given on line %d", line)
			continue
		}
		first[key.Value] = key.Line
		d.pos.lines[e.path] = key.Line
		out = append(out, e)
	}
	return out
}

func (d *decoder) key(n *yaml.Node, path string) bool {
	if !d.plain(n, path, 0) {
		return false
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		d.problem(n.Line, path, "a key must be a string, this is %s", describe(n))
	case n.ShortTag() == "!!merge":
		d.problem(n.Line, path, "merge keys are not allowed; write the values out")
	case ambiguous(n):
		d.problem(n.Line, path, "this key is %s; put it in quotes", describe(n))
	default:
		return true
	}
	return false
}

type field struct {
	name  string
	index []int
}

// fieldsOf lists the fields of a struct type that a file can set.
func (d *decoder) fieldsOf(t reflect.Type) []field {
	if known, ok := d.fields[t]; ok {
		return known
	}
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case option == "inline" && f.Type.Kind() == reflect.Struct:
			for _, inner := range d.fieldsOf(f.Type) {
				out = append(out, field{inner.name, append([]int{i}, inner.index...)})
			}
		case name != "" && name != "-" && f.IsExported():
			out = append(out, field{name, []int{i}})
		}
	}
	d.fields[t] = out
	return out
}

func (d *decoder) structure(n *yaml.Node, path string, depth int, into reflect.Value) {
	fields := d.fieldsOf(into.Type())
next:
	for _, e := range d.entries(n, path) {
		for _, f := range fields {
			if f.name == e.key.Value {
				d.value(e.node, e.path, depth+1, into.FieldByIndex(f.index))
				continue next
			}
		}
		d.unknown(e, fields)
	}
}

func (d *decoder) unknown(e entry, fields []field) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if near := Nearest(e.key.Value, names); near != "" {
		d.problem(e.key.Line, e.path, "unknown key; did you mean %s?", near)
		return
	}
	d.problem(e.key.Line, e.path, "unknown key; known here: %s", strings.Join(names, ", "))
}

func (d *decoder) mapping(n *yaml.Node, path string, depth int, into reflect.Value) {
	t := into.Type()
	if t.Key().Kind() != reflect.String {
		d.problem(n.Line, path, "cannot be set from a file (%s)", t)
		return
	}
	entries := d.entries(n, path)
	out := reflect.MakeMapWithSize(t, len(entries))
	for _, e := range entries {
		value := reflect.New(t.Elem()).Elem()
		d.value(e.node, e.path, depth+1, value)
		out.SetMapIndex(reflect.ValueOf(e.key.Value).Convert(t.Key()), value)
	}
	into.Set(out)
}

func (d *decoder) list(n *yaml.Node, path string, depth int, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n.Line, path, "want a list, this is %s", describe(n))
		return
	}
	out := reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, Index(path, i), depth+1, out.Index(i))
	}
	into.Set(out)
}

// anything decodes what has no declared type: part of somebody else's format.
func (d *decoder) anything(n *yaml.Node, path string, depth int, into reflect.Value) {
	if into.NumMethod() != 0 {
		d.problem(n.Line, path, "cannot be set from a file (%s)", into.Type())
		return
	}
	var target reflect.Value
	switch n.Kind {
	case yaml.MappingNode:
		target = reflect.New(reflect.TypeFor[map[string]any]()).Elem()
	case yaml.SequenceNode:
		target = reflect.New(reflect.TypeFor[[]any]()).Elem()
	default:
		target = reflect.New(scalarType(n)).Elem()
	}
	d.kind(n, path, depth, target)
	into.Set(target)
}

func scalarType(n *yaml.Node) reflect.Type {
	switch n.ShortTag() {
	case "!!bool":
		return reflect.TypeFor[bool]()
	case "!!int":
		return reflect.TypeFor[int64]()
	case "!!float":
		return reflect.TypeFor[float64]()
	}
	return reflect.TypeFor[string]()
}
