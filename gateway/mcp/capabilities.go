package mcp

import "github.com/go-json-experiment/json/jsontext"

// Declares reports whether capabilities, an object that is part of a parsed
// message or nil, hold what path names: a capability, and if the path goes on,
// a setting in it and so forth. The last one must be an object or true, those
// before it objects.
func Declares(capabilities jsontext.Value, path ...string) bool {
	for _, name := range path {
		if capabilities = find(capabilities, name); capabilities == nil {
			return false
		}
	}
	return capabilities.Kind() == '{' || capabilities.Kind() == 't' && len(path) > 0
}

// Strip returns capabilities, on the terms of Declares, without the named
// ones, and every other byte as it was; {} where there are none. It fails where
// they are no object. The result does not alias them.
func Strip(capabilities jsontext.Value, names ...string) (jsontext.Value, error) {
	if capabilities == nil {
		return jsontext.Value("{}"), nil
	}
	sets := make([]Set, len(names))
	for i, name := range names {
		sets[i].Name = name
	}
	return edit(capabilities, sets)
}
