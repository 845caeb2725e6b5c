package policy

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// plainBuiltins are the built-in functions that give the same answer to the
// same arguments, always, each of them looked at. What is not here, because it
// reads a clock, keys or the world, or because nobody has looked at it yet,
// only costs speed.
func plainBuiltins() []string {
	return []string{
		"abs", "all", "and", "any", "array.concat", "array.flatten", "array.reverse", "array.slice", "assign",
		"base64.decode", "base64.encode", "base64.is_valid", "bits.and", "bits.lsh", "bits.negate", "bits.or",
		"bits.rsh", "bits.xor", "ceil", "concat", "contains", "count", "div", "endswith", "eq", "equal", "floor",
		"format_int", "glob.match", "glob.quote_meta", "gt", "gte", "hex.decode", "hex.encode", "indexof",
		"indexof_n", "internal.member_2", "internal.member_3", "internal.template_string", "intersection",
		"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "json.filter",
		"json.is_valid", "json.marshal", "json.patch", "json.remove", "json.unmarshal", "lower", "lt", "lte", "max",
		"min", "minus", "mul", "neq", "net.cidr_contains", "net.cidr_intersects", "net.cidr_is_valid",
		"numbers.range", "numbers.range_step", "object.filter", "object.get", "object.keys", "object.remove",
		"object.subset", "object.union", "object.union_n", "or", "plus", "product",
		"regex.find_all_string_submatch_n", "regex.find_n", "regex.is_valid", "regex.match", "regex.replace",
		"regex.split", "rem", "replace", "round", "semver.compare", "semver.is_valid", "sort", "split", "sprintf",
		"startswith", "strings.any_prefix_match", "strings.any_suffix_match", "strings.count", "strings.replace_n",
		"strings.reverse", "substring", "sum", "to_number", "trim", "trim_left", "trim_prefix", "trim_right",
		"trim_space", "trim_suffix", "type_name", "union", "units.parse", "units.parse_bytes", "upper", "walk",
	}
}

// repeatable reports whether what ref's rules answer follows from the policy,
// its data and the method, claims and thing of the input alone, so that the same
// question has the same answer as long as the snapshot lives. It is false where
// that cannot be told: for a rule that reads input.request or the input as a
// whole, uses `with`, or calls anything but a plain built-in function.
func repeatable(c *ast.Compiler, ref ast.Ref) bool {
	r := reach{compiler: c, seen: map[*ast.Rule]bool{}, plain: true}
	r.data(ref)
	for len(r.todo) > 0 && r.plain {
		rule := r.todo[len(r.todo)-1]
		r.todo = r.todo[:len(r.todo)-1]
		r.walk(rule)
	}
	return r.plain
}

// reach is a walk over all rules that can take part in an answer.
type reach struct {
	compiler *ast.Compiler
	seen     map[*ast.Rule]bool
	todo     []*ast.Rule
	plain    bool // nothing that was met speaks against repeating
}

// data adds the rules that could give ref a value. Data that no rule gives is
// the snapshot's own and does not change.
func (r *reach) data(ref ast.Ref) {
	for _, rule := range r.compiler.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true}) {
		if !r.seen[rule] {
			r.seen[rule] = true
			r.todo = append(r.todo, rule)
		}
	}
}

func (r *reach) walk(x any) {
	ast.NewGenericVisitor(r.visit).Walk(x)
}

// visit reports whether x needs no closer look.
func (r *reach) visit(x any) bool {
	switch x := x.(type) {
	case *ast.With:
		r.plain = false
	case *ast.Head:
		// Its name is no reference; what it gives is.
		for _, t := range x.Reference[min(1, len(x.Reference)):] {
			r.walk(t)
		}
		r.walk(x.Args)
		for _, t := range []*ast.Term{x.Key, x.Value} {
			if t != nil {
				r.walk(t)
			}
		}
		return true
	case ast.Ref:
		r.ref(x)
		for _, t := range x[1:] {
			r.walk(t)
		}
		return true
	case ast.Var:
		// Documents are met as the heads of references, above.
		if x.Equal(ast.InputRootDocument.Value) || x.Equal(ast.DefaultRootDocument.Value) {
			r.plain = false
		}
	}
	return !r.plain
}

func (r *reach) ref(ref ast.Ref) {
	head, ok := ref[0].Value.(ast.Var)
	switch {
	case !ok:
		r.plain = false
	case head.Equal(ast.InputRootDocument.Value):
		r.plain = r.plain && readsKey(ref)
	case head.Equal(ast.DefaultRootDocument.Value):
		r.data(ref)
	case head.IsGenerated(), head.IsWildcard():
		// A variable of the rule, whose value was met where it comes from.
	default:
		r.plain = r.plain && slices.Contains(plainBuiltins(), ref.String())
	}
}

// readsKey reports whether ref reads what is part of the memory's keys.
func readsKey(ref ast.Ref) bool {
	if len(ref) < 2 {
		return false
	}
	name, ok := ref[1].Value.(ast.String)
	if !ok {
		return false
	}
	switch string(name) {
	case "method", "claims", string(KindTool), string(KindResource), string(KindPrompt), string(KindServer):
		return true
	}
	return false
}
