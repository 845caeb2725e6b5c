package mcp.lib.asked_test

import data.mcp.lib.asked

_tool := {"name": "t", "effect": "write"}

_resource := {"uri": "a:b"}

# What is made of each input; what is undefined is an empty set. The thing is written
# as text, because the schema knows each thing to have more members than these.
_made(question) := {"kinds": kinds, "thing": thing, "effect": effect, "fits": fits} if {
	kinds := asked.kinds with input as question
	thing := {json.marshal(value) | value := asked.thing with input as question}
	effect := {value | value := asked.effect with input as question}
	fits := asked.fits with input as question
}

test_one_thing if {
	cases := {
		"tool": {"method": "tools/call", "thing": _tool, "effect": "write"},
		"resource": {"method": "resources/read", "thing": _resource, "effect": "read"},
		"prompt": {"method": "prompts/get", "thing": {"name": "p"}, "effect": "read"},
		"server": {"method": "server/discover", "thing": {"name": "s"}, "effect": "read"},
	}
	got := {kind: made |
		some kind, c in cases
		made := _made({"method": c.method, kind: c.thing})
	}
	got == {kind: {"kinds": {kind}, "thing": {json.marshal(c.thing)}, "effect": {c.effect}, "fits": true} | some kind, c in cases}
}

# Only a tool has an effect of its own, and one without has none, rather than read.
test_effect if {
	cases := {
		"a tool without": {"input": {"tool": {}}, "want": set()},
		"a tool with null": {"input": {"tool": {"effect": null}}, "want": {null}},
		"a tool that is none": {"input": {"tool": false}, "want": set()},
		"a resource that claims one": {"input": {"resource": {"effect": "admin"}}, "want": {"read"}},
		"a resource beside a tool": {"input": {"tool": {}, "resource": {}}, "want": set()},
		"nothing": {"input": {}, "want": set()},
	}
	got := {name: effect |
		some name, c in cases
		effect := {value | value := asked.effect with input as c.input}
	}
	got == {name: c.want | some name, c in cases}
}

test_not_one_thing if {
	cases := {
		"none": {"input": {}, "kinds": set()},
		"another": {"input": {"task": {}}, "kinds": set()},
		"two": {"input": {"tool": _tool, "resource": _resource}, "kinds": {"tool", "resource"}},
		"one and null": {"input": {"tool": _tool, "prompt": null}, "kinds": {"tool", "prompt"}},
		"one and false": {"input": {"tool": _tool, "server": false}, "kinds": {"tool", "server"}},
		"all": {
			"input": {"tool": _tool, "resource": _resource, "prompt": {}, "server": {}},
			"kinds": {"tool", "resource", "prompt", "server"},
		},
	}
	got := {name: mades |
		some name, c in cases
		mades := {made |
			some method, _ in asked.methods
			made := _made(object.union(c.input, {"method": method}))
		}
	}
	got == {name: {{"kinds": c.kinds, "thing": set(), "effect": set(), "fits": false}} | some name, c in cases}
}

test_methods_that_do_not_fit if {
	every method in ["resources/read", "tools/list", "", null, ["tools/call"], {"tools/call": true}] {
		asked.fits == false with input as {"method": method, "tool": _tool}
	}
	asked.fits == false with input as {"tool": _tool}
}

# Whatever a server can send can be about anything of it; all else is about one kind,
# but for completion, which is about the templates of two.
test_kinds_of_methods if {
	every kinds in asked.methods {
		kinds - {"tool", "resource", "prompt", "server"} == set()
	}
	several := {method: kinds | some method, kinds in asked.methods; count(kinds) != 1}
	object.remove(several, {"completion/complete"}) == {method: {"tool", "resource", "prompt", "server"} |
		some method in [
			"sampling/createMessage", "elicitation/create", "roots/list", "notifications/message",
			"notifications/progress", "notifications/elicitation/complete",
		]
	}
	several["completion/complete"] == {"prompt", "resource"}
	count(asked.methods) == 20
}
