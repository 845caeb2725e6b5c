package mcp.lib.grants_test

import data.mcp.lib.grants

# A grant and a tool that just fits it.
_grant := {
	"domains": ["payments", "commerce"],
	"effect": "write",
	"data": "financial",
	"reach": "closed",
	"env": ["staging", "production"],
}

_tool := {
	"attributes": ["commerce", "payments"],
	"effect": "write",
	"data": "financial",
	"reach": "closed",
	"env": "production",
	"definition": {"drifted": false},
}

_asked(tool) := {"claims": {"roles": ["r"]}, "tool": tool}

_covered(list, tool) := covered if {
	covered := grants.covered with data.mcp.grants as {"r": list} with input as _asked(tool)
}

_shortfalls(list, tool) := shortfalls if {
	shortfalls := grants.shortfalls with data.mcp.grants as {"r": list} with input as _asked(tool)
}

_problems(list) := problems if {
	problems := grants.problems with data.mcp.grants as {"r": list}
}

test_a_tool_that_just_fits if {
	_covered([_grant], _tool) == true
	_shortfalls([_grant], _tool) == set()
}

# What must be said of the grant and of the tool, each change by itself.
test_fit if {
	cases := {
		"nothing changed": {"grant": {}, "tool": {}, "lacks": set()},
		"one of the domains": {"grant": {}, "tool": {"attributes": ["payments"]}, "lacks": set()},
		"one domain twice": {"grant": {}, "tool": {"attributes": ["payments", "payments"]}, "lacks": set()},
		"a domain outside": {"grant": {}, "tool": {"attributes": ["crm", "payments"]}, "lacks": {"domain"}},
		"no domain inside": {"grant": {}, "tool": {"attributes": ["crm"]}, "lacks": {"domain"}},
		"match all, spelt out": {
			"grant": {"match": "all"},
			"tool": {"attributes": ["crm", "payments"]},
			"lacks": {"domain"},
		},
		"match any": {"grant": {"match": "any"}, "tool": {"attributes": ["crm", "payments"]}, "lacks": set()},
		"match any of none": {"grant": {"match": "any"}, "tool": {"attributes": ["crm"]}, "lacks": {"domain"}},
		"match any, one unknown": {
			"grant": {"match": "any"},
			"tool": {"attributes": ["paiments", "payments"]},
			"lacks": {"domain"},
		},
		"match any, an object": {
			"grant": {"match": "any"},
			"tool": {"attributes": {"a": "payments"}},
			"lacks": {"domain"},
		},
		"no domains at all": {"grant": {}, "tool": {"attributes": []}, "lacks": {"domain"}},
		"match any of no domains": {"grant": {"match": "any"}, "tool": {"attributes": []}, "lacks": {"domain"}},
		"a domain as a string": {"grant": {}, "tool": {"attributes": "payments"}, "lacks": {"domain"}},
		"a part of a domain": {"grant": {}, "tool": {"attributes": ["pay"]}, "lacks": {"domain"}},
		"a stronger effect": {"grant": {}, "tool": {"effect": "destructive"}, "lacks": {"effect"}},
		"execute with write": {"grant": {}, "tool": {"effect": "execute"}, "lacks": {"effect"}},
		"execute with admin": {"grant": {"effect": "admin"}, "tool": {"effect": "execute"}, "lacks": {"effect"}},
		"execute by name": {"grant": {"execute": true}, "tool": {"effect": "execute"}, "lacks": set()},
		"execute refused by name": {"grant": {"execute": false}, "tool": {"effect": "execute"}, "lacks": {"effect"}},
		"execute gives no admin": {"grant": {"execute": true}, "tool": {"effect": "admin"}, "lacks": {"effect"}},
		"an unknown effect": {"grant": {"effect": "admin"}, "tool": {"effect": "Read"}, "lacks": {"effect"}},
		"graver data": {"grant": {}, "tool": {"data": "secret"}, "lacks": {"data"}},
		"unknown data": {"grant": {"data": "secret"}, "tool": {"data": "HIGH"}, "lacks": {"data"}},
		"further reach": {"grant": {}, "tool": {"reach": "external"}, "lacks": {"reach"}},
		"less reach": {"grant": {"reach": "external"}, "tool": {}, "lacks": set()},
		"another env": {"grant": {}, "tool": {"env": "development"}, "lacks": {"env"}},
		"any env": {"grant": {"env": "any"}, "tool": {"env": "development"}, "lacks": set()},
		"a strange env": {"grant": {"env": "any"}, "tool": {"env": ["production"]}, "lacks": {"env"}},
		"env null": {"grant": {"env": "any"}, "tool": {"env": null}, "lacks": {"env"}},
		"two things": {"grant": {}, "tool": {"data": "secret", "reach": "external"}, "lacks": {"data", "reach"}},
	}
	got := {name: {"covered": covered, "shortfalls": shortfalls} |
		some name, c in cases
		grant := object.union(_grant, c.grant)
		tool := object.union(_tool, c.tool)
		covered := _covered([grant], tool)
		shortfalls := _shortfalls([grant], tool)
	}
	got == {name: {"covered": c.lacks == set(), "shortfalls": codes} |
		some name, c in cases
		codes := {sprintf("%s_not_granted", [part]) | some part in c.lacks}
	}
}

# A grant that just fits covers the other kinds of things too, whatever its effect,
# and each of its other parts holds for them.
test_fit_of_other_kinds if {
	grant := object.union(_grant, {"effect": "read"})
	thing := object.remove(_tool, {"effect"})
	cases := {
		"nothing changed": {"thing": {}, "lacks": set()},
		"an effect of its own": {"thing": {"effect": "admin"}, "lacks": set()},
		"hints of its own": {"thing": {"definition": {"annotations": {"destructiveHint": true}}}, "lacks": set()},
		"a domain outside": {"thing": {"attributes": ["crm", "payments"]}, "lacks": {"domain"}},
		"graver data": {"thing": {"data": "secret"}, "lacks": {"data"}},
		"further reach": {"thing": {"reach": "external"}, "lacks": {"reach"}},
		"another env": {"thing": {"env": "development"}, "lacks": {"env"}},
		"two things": {"thing": {"data": "secret", "env": ""}, "lacks": {"data", "env"}},
	}
	kinds := {"resource", "prompt", "server"}
	got := {kind: {name: {"covered": covered, "shortfalls": shortfalls} |
		some name, c in cases
		question := {"claims": {"roles": ["r"]}, kind: object.union(thing, c.thing)}
		covered := grants.covered with data.mcp.grants as {"r": [grant]} with input as question
		shortfalls := grants.shortfalls with data.mcp.grants as {"r": [grant]} with input as question
	} |
		some kind in kinds
	}
	got == {kind: {name: {"covered": c.lacks == set(), "shortfalls": codes} |
		some name, c in cases
		codes := {sprintf("%s_not_granted", [part]) | some part in c.lacks}
	} |
		some kind in kinds
	}
}

test_no_thing_and_several_are_not_covered if {
	every things in [{}, {"task": _tool}, {"tool": _tool, "resource": _tool}, {"tool": _tool, "server": null}] {
		grants.covered == false with data.mcp.grants as {"r": [_grant]}
			with input as object.union({"claims": {"roles": ["r"]}}, things)
	}
}

# A tool that does not say where it acts may act anywhere.
test_a_tool_without_env if {
	tool := object.remove(_tool, {"env"})
	_covered([_grant], tool) == false
	_shortfalls([_grant], tool) == {"env_not_granted"}
	_covered([object.union(_grant, {"env": "any"})], tool) == true
}

test_hints if {
	cases := {
		"reads": {"hints": {"readOnlyHint": true}, "effects": {"read", "write", "destructive", "admin"}},
		"writes": {"hints": {"readOnlyHint": false}, "effects": {"write", "destructive", "admin"}},
		"destroys": {"hints": {"destructiveHint": true}, "effects": {"destructive", "admin"}},
	}
	got := {name: effects |
		some name, c in cases
		effects := {effect |
			some effect in ["read", "write", "destructive", "admin"]
			tool := object.union(_tool, {"effect": "read", "definition": {"annotations": c.hints}})
			_covered([object.union(_grant, {"effect": effect})], tool)
		}
	}
	got == {name: c.effects | some name, c in cases}
}

test_hints_never_loosen if {
	tool := object.union(_tool, {"effect": "admin", "definition": {"annotations": {"readOnlyHint": true}}})
	_covered([_grant], tool) == false
	_shortfalls([_grant], tool) == {"effect_not_granted"}
}

test_hints_are_told_from_labels if {
	tool := object.union(_tool, {"definition": {"annotations": {"destructiveHint": true}}})
	_covered([_grant], tool) == false
	_shortfalls([_grant], tool) == {"hint_not_granted"}
}

test_hints_of_an_execute_tool_add_nothing if {
	tool := object.union(_tool, {"effect": "execute", "definition": {"annotations": {"destructiveHint": true}}})
	_covered([object.union(_grant, {"execute": true})], tool) == true
	_shortfalls([_grant], tool) == {"effect_not_granted"}
}

# Each grant has what the other lacks, and together they still cover nothing.
test_grants_do_not_add_up if {
	payments := object.union(_grant, {"domains": ["payments"], "effect": "write", "data": "internal"})
	reader := object.union(_grant, {"domains": ["payments"], "effect": "read", "data": "financial"})
	commerce := object.union(_grant, {"domains": ["commerce"]})
	tool := object.union(_tool, {"attributes": ["payments"]})
	_covered([payments, reader, commerce], tool) == false
	_shortfalls([payments, reader, commerce], tool) == {"data_not_granted", "effect_not_granted"}
	_covered([payments, reader, commerce], _tool) == false
	_shortfalls([payments, reader, commerce], _tool) == {"domain_not_granted"}
}

test_the_nearest_grants_say_what_is_lacking if {
	near := object.union(_grant, {"effect": "read"})
	far := object.union(_grant, {"effect": "read", "reach": "closed", "data": "public"})
	elsewhere := object.union(_grant, {"domains": ["crm"]})
	_shortfalls([far, near, elsewhere], _tool) == {"effect_not_granted"}
}

test_roles_add_grants if {
	roles := {
		"reader": [object.union(_grant, {"effect": "read"})],
		"writer": {"payments": _grant},
	}
	cases := {
		"none": {"roles": [], "held": 0},
		"one": {"roles": ["reader"], "held": 1},
		"named grants": {"roles": ["writer"], "held": 1},
		"both": {"roles": ["reader", "writer"], "held": 2},
		"an unknown one too": {"roles": ["reader", "nobody"], "held": 1},
		"only unknown ones": {"roles": ["nobody", "READER", "read", "readers", ""], "held": 0},
	}
	got := {name: count(held) |
		some name, c in cases
		held := grants.held with data.mcp.grants as roles with input.claims as {"roles": c.roles}
	}
	got == {name: c.held | some name, c in cases}
	grants.covered with data.mcp.grants as roles
		with input as {"claims": {"roles": ["reader", "writer"]}, "tool": _tool}
}

# Changes that leave no grant, and what problems says of each.
_spoilt := {
	"no domains": {"domains": []},
	"domains as a string": {"domains": "payments"},
	"domains as an object": {"domains": {"a": "payments", "b": "commerce"}},
	"an unknown domain": {"domains": ["payments", "commerce", "paiments"]},
	"a domain of another type": {"domains": ["payments", "commerce", null]},
	"match": {"match": "ANY"},
	"match null": {"match": null},
	"effect": {"effect": "Write"},
	"effect execute": {"effect": "execute"},
	"effect list": {"effect": ["read", "write"]},
	"execute": {"execute": "true"},
	"execute null": {"execute": null},
	"data": {"data": "HIGH"},
	"data null": {"data": null},
	"reach": {"reach": "any"},
	"env": {"env": "production"},
	"no env": {"env": []},
	"env null": {"env": null},
	"env as an object": {"env": {"a": "production"}},
	"any in a list": {"env": ["any", "production"]},
	"an empty env": {"env": ["", "production"]},
	"an env of another type": {"env": [1, "production"]},
}

_advice := {
	"domains": "domains: want a list of one or more domains, those of mcp.lib.facets",
	"match": "match: want all or any",
	"effect": "effect: want read, write, destructive or admin; execute is a key of its own",
	"execute": "execute: want true or false",
	"data": "data: want public, internal, personal, financial or secret",
	"reach": "reach: want closed or external",
	"env": "env: want a list of one or more environments, or any by itself",
}

test_a_spoilt_grant_covers_nothing if {
	cases := {name: object.union(object.remove(_grant, object.keys(change)), change) | some name, change in _spoilt}
	got := {name: {"covered": covered, "held": held, "problems": problems} |
		some name, grant in cases
		covered := _covered([grant], _tool)
		held := grants.held with data.mcp.grants as {"r": [grant]} with input.claims as {"roles": ["r"]}
		problems := _problems([grant])
	}
	got == {name: {"covered": false, "held": set(), "problems": problems} |
		some name, change in _spoilt
		some part, _ in change
		problems := {{"role": "r", "grant": 0, "problem": _advice[part]}}
	}
}

test_a_grant_without_a_part_covers_nothing if {
	parts := ["domains", "effect", "data", "reach", "env"]
	got := {part: {"covered": covered, "problems": problems} |
		some part in parts
		grant := object.remove(_grant, {part})
		covered := _covered([grant], _tool)
		problems := _problems([grant])
	}
	got == {part: {"covered": false, "problems": {{"role": "r", "grant": 0, "problem": _advice[part]}}} |
		some part in parts
	}
}

# A key that nobody reads was meant to say something, perhaps to narrow.
test_an_unknown_key_covers_nothing if {
	grant := object.union(_grant, {"servers": ["stripe"]})
	_covered([grant], _tool) == false
	_problems([grant]) == {{"role": "r", "grant": 0, "problem": "has the unknown key servers: take it out"}}
}

test_what_is_no_grant_covers_nothing if {
	every odd in [null, true, 1, "payments", [_grant], set(), {}] {
		_covered([odd], _tool) == false
	}
	every odd in [null, true, 1, "payments", [], {}, _grant] {
		_covered(odd, _tool) == false
	}
	_covered([], {}) == false
}

_no_grant := "is not an object: want one with domains, effect, data, reach and env"

test_problems_name_the_place if {
	got := grants.problems with data.mcp.grants as {
		"good": [_grant],
		"": [_grant],
		"string": "payments",
		"element": [_grant, "payments"],
		"named": {"first": _grant, "second": null},
	}
	got == {
		{"role": "", "problem": "has no name, so no claim can name it: give it one, or take it out"},
		{"role": "string", "problem": "holds neither a list of grants nor grants by name: put them in a list"},
		{"role": "element", "grant": 1, "problem": _no_grant},
		{"role": "named", "grant": "second", "problem": _no_grant},
	}
}

test_problems_of_the_whole if {
	cases := {"a list": [[_grant]], "a string": "payments", "false": false, "null": null, "no role": {}}
	got := {name: problems |
		some name, c in cases
		problems := grants.problems with data.mcp.grants as c
	}
	not_an_object := {{"problem": "is not an object: want one with a list of grants for each role"}}
	got == {"a list": not_an_object, "a string": not_an_object, "false": not_an_object, "null": set(), "no role": set()}
}

test_the_shipped_grants_are_sound if {
	grants.problems == set()
	object.keys(data.mcp.grants) == {"payments", "developer", "support", "analyst", "admin"}
}

test_without_grants if {
	every none in [{}, null, []] {
		got := {"covered": grants.covered, "held": grants.held, "shortfalls": grants.shortfalls} with data.mcp.grants as none
			with input as {"claims": {"roles": ["admin"]}, "tool": _tool}
		got == {"covered": false, "held": set(), "shortfalls": set()}
	}
}
