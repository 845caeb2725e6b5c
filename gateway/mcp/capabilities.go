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

// Supports reports whether a client that declared capabilities, on the terms
// of Declares, can be sent a server's request with the given method and params.
// It is false for a method that is none of the three, and for params that do
// not say plainly what they need.
func Supports(capabilities jsontext.Value, method string, params jsontext.Value) bool {
	const elicitation, sampling, roots = "elicitation", "sampling", "roots"
	switch method {
	case MethodRootsList:
		return Declares(capabilities, roots)
	case MethodCreateMessage:
		fields, e := Fields(params, "params", "tools", "toolChoice")
		if e != nil {
			return false
		}
		if fields[0] != nil || fields[1] != nil {
			return Declares(capabilities, sampling, "tools")
		}
		return Declares(capabilities, sampling)
	case MethodElicit:
		fields, e := Fields(params, "params", "mode")
		if e != nil {
			return false
		}
		form, url := Declares(capabilities, elicitation, "form"), Declares(capabilities, elicitation, "url")
		switch mode, _ := Text(fields[0]); {
		case fields[0] == nil || mode == "form":
			// Revisions that know no modes declare {}.
			return form || Declares(capabilities, elicitation) && !url
		case mode == "url":
			return url
		}
	}
	return false
}
