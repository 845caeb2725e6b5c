package reads

// pure are the built-in functions that give the same answer to the
// same arguments, always, each of them looked at. What is not here, because it
// reads a clock, keys or the world, or because nobody has looked at it yet,
// only costs speed.
func pure() []string {
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
