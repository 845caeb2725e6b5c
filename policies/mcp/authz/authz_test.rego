package mcp.authz_test

import data.mcp.authz

_grants := {"writer": [{
	"domains": ["payments", "crm"],
	"effect": "write",
	"data": "personal",
	"reach": "closed",
	"env": ["production"],
}]}

_tool := {
	"server": "stripe",
	"name": "create_customer",
	"exposed_name": "stripe__create_customer",
	"attributes": ["crm", "payments"],
	"effect": "write",
	"data": "personal",
	"reach": "closed",
	"env": "production",
	"owner": "payments-team",
	"registered": true,
	"definition": {"sha256": "00", "pinned": true, "drifted": false},
}

_claims := {"iss": "https://idp.example.test", "sub": "agent-1", "roles": ["writer"]}

_question := {"method": "tools/call", "claims": _claims, "tool": _tool, "request": {}}

_answer(question) := _answer_with(_grants, question)

_answer_with(grants, question) := {"allow": allow, "reasons": reasons} if {
	allow := authz.allow with input as question with data.mcp.grants as grants
	reasons := authz.reasons with input as question with data.mcp.grants as grants
}

_yes := {"allow": true, "reasons": set()}

_no(reasons) := {"allow": false, "reasons": reasons}

# What we say of the server, and so of its resources and prompts.
_facts := {
	"attributes": ["crm", "payments"],
	"data": "personal",
	"reach": "closed",
	"env": "production",
	"owner": "payments-team",
	"registered": true,
}

_listed := {"sha256": "00", "pinned": false, "drifted": false}

# One thing of each kind, each of them the writer's to use.
_things := {
	"tool": _tool,
	"resource": object.union(_facts, {"server": "stripe", "uri": "stripe://customers", "definition": _listed}),
	"prompt": object.union(_facts, {
		"server": "stripe",
		"name": "summary",
		"exposed_name": "stripe__summary",
		"definition": _listed,
	}),
	"server": object.union(_facts, {"name": "stripe"}),
}

# The methods of each kind, by what they do: in a use, after it, and from the server.
_methods := {
	"tool": (_sent | {
		"tools/call",
		"tasks/get",
		"tasks/result",
		"tasks/list",
		"tasks/cancel",
		"tasks/update",
		"notifications/tasks/status",
	}),
	"resource": (_sent | {
		"resources/read",
		"resources/subscribe",
		"notifications/resources/updated",
		"completion/complete",
	}),
	"prompt": (_sent | {"prompts/get", "completion/complete"}),
	"server": (_sent | {"server/discover", "logging/setLevel"}),
}

_sent := {
	"sampling/createMessage",
	"elicitation/create",
	"roots/list",
	"notifications/message",
	"notifications/progress",
	"notifications/elicitation/complete",
}

_known := {method | some methods in _methods; some method in methods}

# What has no questions, what is not in the protocol, and what is not a method.
_others := [
	"tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/unsubscribe",
	"subscriptions/listen", "initialize", "ping", "notifications/cancelled", "notifications/tools/list_changed",
	"tools/delete", "tasks/get ", "Tools/Call", "tools", "tool", "resource", "", null, 1, true, ["tools/call"], {},
]

_about(method, things) := object.union({"method": method, "claims": _claims, "request": {}}, things)

# The question with parts of its tool changed, or left out.
_ask(changes) := object.union(_question, {"tool": changes})

_omit(keys) := object.union(object.remove(_question, {"tool"}), {"tool": object.remove(_tool, keys)})

test_yes if _answer(_question) == _yes

test_tools if {
	cases := {
		"unregistered": {"ask": _ask({"registered": false}), "want": {"unregistered"}},
		"registered as a string": {"ask": _ask({"registered": "true"}), "want": {"unregistered"}},
		"registered unsaid": {"ask": _omit({"registered"}), "want": {"unregistered"}},
		"quarantined": {"ask": _ask({"registered": false, "quarantined": true}), "want": {"quarantined"}},
		"quarantined but registered": {"ask": _ask({"quarantined": true}), "want": {"quarantined"}},
		"quarantined as a string": {"ask": _ask({"quarantined": "false"}), "want": {"quarantined"}},
		"drifted": {"ask": _ask({"definition": {"drifted": true}}), "want": {"drifted"}},
		"drifted as a string": {"ask": _ask({"definition": {"drifted": "false"}}), "want": {"drifted"}},
		"no backend offers it": {"ask": _omit({"definition"}), "want": {"not_offered"}},
		"no attributes": {"ask": _omit({"attributes"}), "want": {"unlabelled"}},
		"empty attributes": {"ask": _ask({"attributes": []}), "want": {"unlabelled"}},
		"no effect": {"ask": _omit({"effect"}), "want": {"unlabelled"}},
		"no data": {"ask": _omit({"data"}), "want": {"unlabelled"}},
		"no reach": {"ask": _omit({"reach"}), "want": {"unlabelled"}},
		"no env": {"ask": _omit({"env"}), "want": {"env_not_granted"}},
		"attributes as a string": {"ask": _ask({"attributes": "payments"}), "want": {"unknown_facet"}},
		"attributes null": {"ask": _ask({"attributes": null}), "want": {"unknown_facet"}},
		"attributes as an object": {"ask": _ask({"attributes": {"a": "payments"}}), "want": {"unknown_facet"}},
		"effect as an array": {"ask": _ask({"effect": ["read"]}), "want": {"unknown_facet"}},
		"effect as a number": {"ask": _ask({"effect": 1}), "want": {"unknown_facet"}},
		"effect in capitals": {"ask": _ask({"effect": "READ"}), "want": {"unknown_facet"}},
		"data in capitals": {"ask": _ask({"data": "HIGH"}), "want": {"unknown_facet"}},
		"data null": {"ask": _ask({"data": null}), "want": {"unknown_facet"}},
		"reach with a blank": {"ask": _ask({"reach": "closed "}), "want": {"unknown_facet"}},
		"env as an array": {"ask": _ask({"env": ["production"]}), "want": {"unknown_facet"}},
		"several causes": {
			"ask": _ask({"definition": {"drifted": true}, "attributes": [], "effect": "?"}),
			"want": {"drifted", "unlabelled", "unknown_facet"},
		},
		"a domain too many": {"ask": _ask({"attributes": ["crm", "hr"]}), "want": {"domain_not_granted"}},
		"too strong": {"ask": _ask({"effect": "admin"}), "want": {"effect_not_granted"}},
		"execute": {"ask": _ask({"effect": "execute"}), "want": {"effect_not_granted"}},
		"hinted": {
			"ask": _ask({"definition": {"annotations": {"destructiveHint": true}}}),
			"want": {"hint_not_granted"},
		},
		"too grave and too far": {
			"ask": _ask({"data": "secret", "reach": "external"}),
			"want": {"data_not_granted", "reach_not_granted"},
		},
	}
	got := {name: answer |
		some name, c in cases
		answer := _answer(c.ask)
	}
	got == {name: _no(c.want) | some name, c in cases}
}

test_what_nobody_offers_is_unregistered if {
	tool := {"server": "stripe", "name": "x", "exposed_name": "stripe__x", "registered": false}
	question := object.union(object.remove(_question, {"tool"}), {"tool": tool})
	_answer(question) == _no({"unregistered"})
}

test_callers if {
	cases := {
		"no roles": {"claims": {"sub": "a"}, "want": _no({"no_role"})},
		"roles null": {"claims": {"roles": null, "groups": null}, "want": _no({"no_role"})},
		"roles empty": {"claims": {"roles": [], "groups": ""}, "want": _no({"no_role"})},
		"a number": {"claims": {"roles": 7}, "want": _no({"no_role"})},
		"an object": {"claims": {"roles": {"a": "writer"}}, "want": _no({"no_role"})},
		"another role": {"claims": {"roles": ["reader"]}, "want": _no({"no_grant"})},
		"a longer name": {"claims": {"roles": ["writers"]}, "want": _no({"no_grant"})},
		"a shorter name": {"claims": {"roles": ["write"]}, "want": _no({"no_grant"})},
		"two names in one": {"claims": {"roles": "writer admin"}, "want": _no({"no_grant"})},
		"the role": {"claims": {"roles": "writer"}, "want": _yes},
		"the role among others": {"claims": {"roles": ["x", null, "writer"]}, "want": _yes},
		"the role as a group": {"claims": {"groups": ["writer"]}, "want": _yes},
		"scopes give no roles": {"claims": {"scope": "writer", "scp": ["writer"]}, "want": _no({"no_role"})},
	}
	got := {name: answer |
		some name, c in cases
		answer := _answer(object.union(object.remove(_question, {"claims"}), {"claims": c.claims}))
	}
	got == {name: c.want | some name, c in cases}
}

test_grants if {
	broken := object.union(_grants.writer[0], {"effect": "all"})
	cases := {
		"none": {"grants": {}, "want": _no({"no_grant"})},
		"an empty list": {"grants": {"writer": []}, "want": _no({"no_grant"})},
		"a broken one": {"grants": {"writer": [broken]}, "want": _no({"no_grant", "malformed_grant"})},
		"a broken one and one too weak": {
			"grants": {"writer": [broken, object.union(_grants.writer[0], {"effect": "read"})]},
			"want": _no({"effect_not_granted", "malformed_grant"}),
		},
		"a broken one and a good one": {"grants": {"writer": [broken, _grants.writer[0]]}, "want": _yes},
		"somebody else's broken one": {
			"grants": {"other": [broken], "writer": [object.union(_grants.writer[0], {"effect": "read"})]},
			"want": _no({"effect_not_granted"}),
		},
	}
	got := {name: answer |
		some name, c in cases
		answer := _answer_with(c.grants, _question)
	}
	got == {name: c.want | some name, c in cases}
}

# Each method goes with its own kinds of things, and with no other.
test_methods if {
	got := {kind: {method: answer |
		some method in _known
		answer := _answer(_about(method, {kind: thing}))
	} |
		some kind, thing in _things
	}
	got == {kind: {method: answer |
		some method in _known
		answer := {true: _yes, false: _no({"method_not_granted"})}[method in methods]
	} |
		some kind, methods in _methods
	}
}

test_no_other_method_is_decided if {
	answers := [answer |
		some method in _others
		some kind, thing in _things
		answer := _answer(_about(method, {kind: thing}))
	]
	count(answers) == count(_others) * 4
	{answer | some answer in answers} == {_no({"method_not_granted"})}
}

# Something beside the thing that is asked about, whatever its value, makes the
# question one of which nobody can tell what it is about.
test_no_thing_and_several_things if {
	pairs := [{one: _things[one], other: value} |
		some one, _ in _things
		some other, thing in _things
		one != other
		some value in [thing, {}, null, false, ""]
	]
	questions := array.concat(pairs, [{}, {"task": _tool}, {"tools": _tool}, _things])
	answers := [answer |
		some method in _known
		some things in questions
		answer := _answer(_about(method, things))
	]
	count(answers) == count(_known) * ((12 * 5) + 4)
	{answer | some answer in answers} == {_no({"method_not_granted"})}
}

test_empty_questions if {
	_answer({}) == _no({"method_not_granted"})
	_answer({"method": "tools/call"}) == _no({"method_not_granted"})
	_answer({"method": "tools/call", "tool": _tool}) == _no({"no_role"})
	_answer({"method": "tools/call", "tool": {}}) == _no({"unregistered"})
	_answer({"method": "tools/call", "tool": null}) == _no({"unregistered"})
	_answer({"method": "tools/call", "claims": _claims}) == _no({"method_not_granted"})
	_answer({"claims": _claims, "tool": _tool}) == _no({"method_not_granted"})
}

# Resources, prompts and servers, each with the method that uses it and with each
# change by itself.
_uses := {"resource": "resources/read", "prompt": "prompts/get", "server": "server/discover"}

test_what_the_server_is if {
	cases := {
		"nothing changed": {"drop": set(), "put": {}, "want": set()},
		"unregistered": {"drop": set(), "put": {"registered": false}, "want": {"unregistered"}},
		"registered as a string": {"drop": set(), "put": {"registered": "true"}, "want": {"unregistered"}},
		"registered unsaid": {"drop": {"registered"}, "put": {}, "want": {"unregistered"}},
		"quarantined": {"drop": set(), "put": {"registered": false, "quarantined": true}, "want": {"quarantined"}},
		"quarantined but registered": {"drop": set(), "put": {"quarantined": true}, "want": {"quarantined"}},
		"no attributes": {"drop": {"attributes"}, "put": {}, "want": {"unlabelled"}},
		"empty attributes": {"drop": set(), "put": {"attributes": []}, "want": {"unlabelled"}},
		"no data": {"drop": {"data"}, "put": {}, "want": {"unlabelled"}},
		"no reach": {"drop": {"reach"}, "put": {}, "want": {"unlabelled"}},
		"an entry with nothing": {
			"drop": {"attributes", "data", "reach", "env", "owner"},
			"put": {},
			"want": {"unlabelled"},
		},
		"attributes as a string": {"drop": set(), "put": {"attributes": "crm"}, "want": {"unknown_facet"}},
		"an unknown domain": {"drop": set(), "put": {"attributes": ["crm", "CRM"]}, "want": {"unknown_facet"}},
		"data in capitals": {"drop": set(), "put": {"data": "PUBLIC"}, "want": {"unknown_facet"}},
		"reach null": {"drop": set(), "put": {"reach": null}, "want": {"unknown_facet"}},
		"env as an array": {"drop": set(), "put": {"env": ["production"]}, "want": {"unknown_facet"}},
		"a domain too many": {"drop": set(), "put": {"attributes": ["crm", "hr"]}, "want": {"domain_not_granted"}},
		"too grave": {"drop": set(), "put": {"data": "secret"}, "want": {"data_not_granted"}},
		"too far": {"drop": set(), "put": {"reach": "external"}, "want": {"reach_not_granted"}},
		"another env": {"drop": set(), "put": {"env": "test"}, "want": {"env_not_granted"}},
		"no env": {"drop": {"env"}, "put": {}, "want": {"env_not_granted"}},
		"an effect is no part of it": {"drop": set(), "put": {"effect": "admin"}, "want": set()},
		"nor are hints": {"drop": set(), "put": {"annotations": {"destructiveHint": true}}, "want": set()},
	}
	got := {kind: {name: answer |
		some name, c in cases
		thing := object.union(object.remove(_things[kind], c.drop), c.put)
		answer := _answer(_about(method, {kind: thing}))
	} |
		some kind, method in _uses
	}
	got == {kind: {name: {"allow": c.want == set(), "reasons": c.want} | some name, c in cases} |
		some kind, _ in _uses
	}
}

# A resource is there when its server lists it or a template that it fits.
test_what_the_server_lists if {
	cases := {
		"a listed resource": {"put": {"uri": "a:b"}, "want": set()},
		"a template in a list": {"put": {"uri_template": "a:{x}"}, "want": set()},
		"a resource that fits a template": {"put": {"uri": "a:b", "uri_template": "a:{x}"}, "want": set()},
		"hints mean nothing": {"put": {"definition": {"annotations": {"destructiveHint": true}}}, "want": set()},
		"nobody's": {"put": {"uri": "a:b", "definition": null}, "want": {"not_offered"}},
		"nobody's, of no server": {
			"put": {"uri": "a:b", "registered": false, "definition": null},
			"want": {"unregistered"},
		},
		"drifted": {"put": {"definition": {"drifted": true}}, "want": {"drifted"}},
		"drifted as a string": {"put": {"definition": {"drifted": "false"}}, "want": {"drifted"}},
	}
	kinds := {"resource", "prompt"}
	got := {kind: {name: answer |
		some name, c in cases
		changed := object.union(_things[kind], c.put)
		absent := {key | some key, value in changed; value == null}
		answer := _answer(_about(_uses[kind], {kind: object.remove(changed, absent)}))
	} |
		some kind in kinds
	}
	got == {kind: {name: {"allow": c.want == set(), "reasons": c.want} | some name, c in cases} | some kind in kinds}
}

# A server has no definition; one that is there is not looked at.
test_a_server_is_listed_by_nobody if {
	every definition in [{}, {"drifted": false}] {
		server := object.union(_things.server, {"definition": definition})
		_answer(_about("server/discover", {"server": server})).allow == true
	}
}

# What comes with a use or after it is allowed where the use is, and denied for the
# same reasons.
test_all_methods_of_a_thing_are_decided_alike if {
	changes := {
		"tool": {"effect": "admin"},
		"resource": {"data": "secret"},
		"prompt": {"registered": false},
		"server": {"reach": "external", "attributes": ["hr"]},
	}
	got := {kind: answers |
		some kind, change in changes
		answers := {answer |
			some method in _methods[kind]
			answer := _answer(_about(method, {kind: object.union(_things[kind], change)}))
		}
	}
	got == {
		"tool": {_no({"effect_not_granted"})},
		"resource": {_no({"data_not_granted"})},
		"prompt": {_no({"unregistered"})},
		"server": {_no({"domain_not_granted"})},
	}
}

# Reading is within every effect, and only that of a resource, a prompt and a server.
test_effects_of_kinds if {
	cases := {
		"read": {"resource", "prompt", "server"},
		"write": {"tool", "resource", "prompt", "server"},
		"destructive": {"tool", "resource", "prompt", "server"},
		"admin": {"tool", "resource", "prompt", "server"},
	}
	got := {effect: kinds |
		some effect, _ in cases
		grants := {"writer": [object.union(_grants.writer[0], {"effect": effect})]}
		kinds := {kind |
			some kind, thing in _things
			method := object.union(_uses, {"tool": "tools/call"})[kind]
			_answer_with(grants, _about(method, {kind: thing})) == _yes
		}
	}
	got == cases
}

test_callers_of_things if {
	cases := {
		"nobody": {"claims": {}, "grants": _grants, "want": _no({"no_role"})},
		"another": {"claims": {"roles": ["writers"]}, "grants": _grants, "want": _no({"no_grant"})},
		"the role": {"claims": {"roles": ["writer"]}, "grants": _grants, "want": _yes},
		"a broken grant": {
			"claims": {"roles": ["writer"]},
			"grants": {"writer": [object.union(_grants.writer[0], {"reach": "far"})]},
			"want": _no({"no_grant", "malformed_grant"}),
		},
	}
	got := {kind: {name: answer |
		some name, c in cases
		question := object.union(
			object.remove(_about(method, {kind: _things[kind]}), {"claims"}),
			{"claims": c.claims},
		)
		answer := _answer_with(c.grants, question)
	} |
		some kind, method in _uses
	}
	got == {kind: {name: c.want | some name, c in cases} | some kind, _ in _uses}
}

# Neither the names of a tool nor what the client says of itself decides.
test_names_do_not_decide if {
	_answer(_ask({"server": "other", "name": "wipe", "exposed_name": "other__wipe", "owner": "nobody"})) == _yes
	_answer(object.union(_question, {"request": {"client": {"name": "admin"}, "route": "/mcp/admin"}})) == _yes
	_answer(object.union(_question, {"arguments": {"role": "admin"}})) == _yes
}

# allow against the rule in other words: positions in ordered lists. And reasons
# are there exactly where allow is not.
test_the_rule if {
	effects := ["read", "write", "destructive", "admin"]
	classes := ["public", "internal", "personal", "financial", "secret"]
	reaches := ["closed", "external"]
	tools := [tool |
		some attributes in [["crm"], ["crm", "payments"], ["payments", "web"]]
		some effect in ["write", "admin", "execute"]
		some class in ["personal", "secret"]
		some reach in reaches
		some env in ["production", "test"]
		tool := {"attributes": attributes, "effect": effect, "data": class, "reach": reach, "env": env}
	]
	grants := [grant |
		some effect, class in {"write": "secret", "admin": "personal"}
		some reach in reaches
		some env in ["any", ["test"]]
		grant := {"domains": ["crm", "payments"], "effect": effect, "data": class, "reach": reach, "env": env}
	]
	want := {[i, j] |
		some i, grant in grants
		some j, tool in tools
		every domain in tool.attributes { domain in grant.domains }
		_position(effects, tool.effect) <= _position(effects, grant.effect)
		_position(classes, tool.data) <= _position(classes, grant.data)
		_position(reaches, tool.reach) <= _position(reaches, grant.reach)
		true in {grant.env == "any", grant.env == [tool.env]}
	}
	answers := {[i, j]: answer |
		some i, grant in grants
		some j, tool in tools
		answer := _answer_with({"writer": [grant]}, _ask(tool))
	}
	want == {at | some at, answer in answers; answer.allow == true}
	want == {at | some at, answer in answers; answer.reasons == set()}
	[count(want), count(answers)] == [72, 576]
}

_position(list, value) := [i | some i, v in list; v == value][0]

# The five roles that are shipped, each with one tool that it may use and one
# that it may not.
test_shipped_roles if {
	tools := {
		"refund": {"attributes": ["payments"], "effect": "destructive", "data": "financial", "reach": "external"},
		"customers": {"attributes": ["crm", "payments"], "effect": "read", "data": "personal", "reach": "closed"},
		"mail": {"attributes": ["messaging"], "effect": "write", "data": "personal", "reach": "external"},
		"issue": {"attributes": ["developer"], "effect": "write", "data": "internal", "reach": "external"},
		"pods": {"attributes": ["infrastructure"], "effect": "read", "data": "internal", "reach": "closed"},
		"restart": {"attributes": ["infrastructure"], "effect": "destructive", "data": "internal", "reach": "closed"},
		"dashboard": {"attributes": ["analytics"], "effect": "read", "data": "internal", "reach": "closed"},
		"keys": {"attributes": ["identity"], "effect": "admin", "data": "secret", "reach": "closed"},
		"shell": {"attributes": ["infrastructure"], "effect": "execute", "data": "secret", "reach": "external"},
	}
	got := {role: names |
		some role, _ in data.mcp.grants
		names := {name |
			some name, tool in tools
			question := object.union(_ask(tool), {"claims": {"roles": [role]}})
			authz.allow with input as question
		}
	}
	got == {
		"payments": {"refund", "customers"},
		"developer": {"issue", "pods", "dashboard"},
		"support": {"customers", "mail"},
		"analyst": {"dashboard"},
		"admin": object.keys(tools),
	}
}

# The same for servers: whose resources, prompts and words each role gets to see.
test_shipped_roles_and_servers if {
	servers := {
		"stripe": {"attributes": ["payments"], "data": "financial", "reach": "closed", "env": "production"},
		"shop": {"attributes": ["commerce", "crm"], "data": "financial", "reach": "closed", "env": "production"},
		"chat": {"attributes": ["messaging"], "data": "personal", "reach": "closed", "env": "production"},
		"code": {"attributes": ["developer"], "data": "personal", "reach": "external", "env": "development"},
		"edge": {"attributes": ["infrastructure"], "data": "internal", "reach": "closed", "env": "production"},
		"visits": {"attributes": ["analytics"], "data": "internal", "reach": "closed", "env": "production"},
		"cluster": {"attributes": ["infrastructure"], "data": "secret", "reach": "closed", "env": "production"},
		"unlabelled": {"env": "production"},
	}
	got := {role: names |
		some role, _ in data.mcp.grants
		names := {name |
			some name, server in servers
			question := object.union(
				_about("server/discover", {"server": object.union(server, {"registered": true})}),
				{"claims": {"roles": [role]}},
			)
			authz.allow with input as question
		}
	}
	got == {
		"payments": {"stripe", "shop"},
		"developer": {"code", "edge", "visits"},
		"support": {"shop", "chat"},
		"analyst": {"visits"},
		"admin": object.keys(servers) - {"unlabelled"},
	}
}

test_developers_may_do_more_outside_production if {
	restart := {"attributes": ["infrastructure"], "effect": "destructive", "data": "internal", "reach": "closed"}
	got := {env |
		some env in ["production", "staging", "development", "test", "Production", "prod"]
		question := object.union(_ask(object.union(restart, {"env": env})), {"claims": {"roles": ["developer"]}})
		authz.allow with input as question
	}
	got == {"staging", "development", "test"}
}

test_problems if {
	good := _grants.writer[0]
	cases := {
		"good": {"grants": _grants, "want": set()},
		"grants by name": {"grants": {"writer": {"crm": good}}, "want": set()},
		"no role": {"grants": {}, "want": set()},
		"a list of roles": {
			"grants": [good],
			"want": {"data.mcp.grants: is not an object: want one with a list of grants for each role"},
		},
		"a word for a role": {
			"grants": {"writer": "crm"},
			"want": {`data.mcp.grants["writer"]: holds neither a list of grants nor grants by name: put them in a list`},
		},
		"by position": {
			"grants": {"writer": [good, object.union(good, {"effect": "Write"})]},
			"want": {`data.mcp.grants["writer"][1]: effect: want read, write, destructive or admin; execute is a key of its own`},
		},
		"by name": {
			"grants": {"writer": {"crm": object.union(good, {"servers": []})}},
			"want": {`data.mcp.grants["writer"]["crm"]: has the unknown key servers: take it out`},
		},
		"several": {
			"grants": {"": [good], "writer": [object.union(good, {"reach": "far", "execute": 1})]},
			"want": {
				`data.mcp.grants[""]: has no name, so no claim can name it: give it one, or take it out`,
				`data.mcp.grants["writer"][0]: execute: want true or false`,
				`data.mcp.grants["writer"][0]: reach: want closed or external`,
			},
		},
	}
	got := {name: problems |
		some name, c in cases
		problems := authz.problems with data.mcp.grants as c.grants
	}
	got == {name: c.want | some name, c in cases}
}

test_problems_of_what_is_shipped if authz.problems == set()
