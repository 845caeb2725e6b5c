# METADATA
# title: Grants
# description: |-
#   What the caller's roles grant. data.mcp.grants maps the name of a role to its
#   grants, in a list or by names of their own:
#
#     {"domains": ["payments"], "effect": "write", "data": "financial",
#      "reach": "closed", "env": ["production"]}
#
#   domains, effect, data, reach and env must be there. effect, data and reach
#   are ceilings; env is a list of environments, or "any". Two keys widen a grant
#   and are there only where they are wanted: "match": "any" takes things of which
#   one domain is among domains, where otherwise all have to be; "execute": true
#   takes tools whose effect is execute.
#
#   A grant covers a thing as a whole or not at all: what one grant lacks, another
#   does not make up for. A grant that is wrong in any part covers nothing, and
#   problems says what is wrong with it and how to mend it.
package mcp.lib.grants

import data.mcp.lib.asked
import data.mcp.lib.claims
import data.mcp.lib.facets

# METADATA
# title: Covered
# description: |-
#   Whether one of the caller's grants covers the thing that is asked about. It does
#   not ask whether the thing is registered, its definition has drifted or the method
#   goes with it.
# scope: document
default covered := false

covered if {
	some scope in _spanning(input.tool.attributes)
	scope.effects[input.tool.effect]
	scope.data[input.tool.data]
	scope.reach[input.tool.reach]
	_acts_in(scope, input.tool)
	_hints_fit(scope)
	asked.kinds == {"tool"}
}

# What is no tool reads, and every grant lets read.
covered if {
	some scope in _spanning(input.resource.attributes)
	scope.data[input.resource.data]
	scope.reach[input.resource.reach]
	_acts_in(scope, input.resource)
	asked.kinds == {"resource"}
}

covered if {
	some scope in _spanning(input.prompt.attributes)
	scope.data[input.prompt.data]
	scope.reach[input.prompt.reach]
	_acts_in(scope, input.prompt)
	asked.kinds == {"prompt"}
}

covered if {
	some scope in _spanning(input.server.attributes)
	scope.data[input.server.data]
	scope.reach[input.server.reach]
	_acts_in(scope, input.server)
	asked.kinds == {"server"}
}

# METADATA
# title: Held
# description: The caller's grants, without those that are wrong.
held contains grant if {
	some role in claims.roles
	some grant in _sound[role]
}

# METADATA
# title: Malformed
# description: The caller's roles that hold a grant that is wrong.
malformed contains role if {
	some role in claims.roles
	some grant in data.mcp.grants[role]
	not _proper_whole(grant)
}

# METADATA
# title: Shortfalls
# description: |-
#   Why no grant in held covers the tool. Where none has its domains, that is the
#   reason. Otherwise it is what the nearest lack: of the grants with its
#   domains, those that lack the fewest things.
# scope: document
shortfalls contains "domain_not_granted" if {
	held != set()
	_lacks == {}
}

shortfalls contains reason if {
	fewest := min({count(lacking) | some lacking in _lacks})
	some lacking in _lacks
	count(lacking) == fewest
	some reason in lacking
}

# METADATA
# title: Problems
# description: |-
#   What is wrong in data.mcp.grants, as objects with problem, the role that it
#   is about and, where it is one grant's, the grant's position or name. Empty when
#   all is well.
# scope: document
problems contains {"problem": "is not an object: want one with a list of grants for each role"} if {
	not is_object(data.mcp.grants)
	data.mcp.grants != null
}

problems contains {"role": role, "problem": "holds neither a list of grants nor grants by name: put them in a list"} if {
	is_object(data.mcp.grants)
	some role, grants in data.mcp.grants
	not is_array(grants)
	not is_object(grants)
}

problems contains {"role": role, "problem": "has no name, so no claim can name it: give it one, or take it out"} if {
	some role, _ in data.mcp.grants
	role == ""
}

problems contains {"role": role, "grant": name, "problem": problem} if {
	is_object(data.mcp.grants)
	some role, grants in data.mcp.grants
	some name, grant in grants
	some problem in _faults(grant)
}

# What the caller's grants let in. It depends on the caller alone, so that a list has
# it worked out once.
_scopes := [_scope(grant) | some grant in held]

# What a grant lets in, each part as the set of what it lets in. A thing must have
# one of the domains, and no others than these.
_scope(grant) := {
	"domains": {domain | some domain in grant.domains},
	"others": _others(grant),
	"effects": _effects(grant),
	"data": facets.within.data[grant.data],
	"reach": facets.within.reach[grant.reach],
	"env": _envs(grant),
}

_others(grant) := facets.domains if grant.match == "any"

else := {domain | some domain in grant.domains}

_effects(grant) := facets.within.effect[grant.effect] | {"execute"} if grant.execute == true

else := facets.within.effect[grant.effect]

_envs(grant) := "any" if grant.env == "any"

else := {env | some env in grant.env}

# The scopes that a thing with these attributes lies in. Many things have the same.
_spanning(attributes) := [scope |
	is_array(attributes)
	domains := {domain | some domain in attributes}
	some scope in _scopes
	domains & scope.domains != set()
	domains - scope.others == set()
]

_acts_in(scope, thing) if {
	scope.env == "any"
	is_string(thing.env)
}

_acts_in(scope, thing) if scope.env[thing.env]

# What has no env may act on any of them.
_acts_in(scope, _) if {
	scope.env == "any"
	not _acts_somewhere
}

_acts_somewhere if type_name(asked.thing.env)

# What hints claim fits too. An execute tool may do anything as it is.
_hints_fit(scope) if facets.hinted - scope.effects == set()

_hints_fit(_) if asked.effect == "execute"

# The grants with the thing's domains, and what each lacks of the rest.
_lacks[grant] := {reason | some reason in _reasons; _lacking(reason, scope)} if {
	spanning := _spanning(asked.thing.attributes)
	some grant in held
	scope := _scope(grant)
	scope in spanning
}

_reasons := {
	"effect_not_granted",
	"hint_not_granted",
	"data_not_granted",
	"reach_not_granted",
	"env_not_granted",
}

_lacking("effect_not_granted", scope) if not scope.effects[asked.effect]

_lacking("hint_not_granted", scope) if {
	scope.effects[asked.effect]
	not _hints_fit(scope)
}

_lacking("data_not_granted", scope) if not scope.data[asked.thing.data]

_lacking("reach_not_granted", scope) if not scope.reach[asked.thing.reach]

_lacking("env_not_granted", scope) if not _acts_in(scope, asked.thing)

_faults(grant) := {"is not an object: want one with domains, effect, data, reach and env"} if not is_object(grant)

_faults(grant) := _unused(grant) | {advice |
	some part, advice in _advice
	not _proper(part, grant)
} if {
	is_object(grant)
}

_keys := {"domains", "match", "effect", "execute", "data", "reach", "env"}

_unused(grant) := {sprintf("has the unknown key %s: take it out", [key]) | some key in (object.keys(grant) - _keys)}

_advice := {
	"domains": "domains: want a list of one or more domains, those of mcp.lib.facets",
	"match": "match: want all or any",
	"effect": "effect: want read, write, destructive or admin; execute is a key of its own",
	"execute": "execute: want true or false",
	"data": "data: want public, internal, personal, financial or secret",
	"reach": "reach: want closed or external",
	"env": "env: want a list of one or more environments, or any by itself",
}

_proper("domains", grant) if {
	grant.domains != []
	_proper_domains(grant.domains)
}

_proper("match", grant) if object.get(grant, "match", "all") in {"all", "any"}

_proper("effect", grant) if facets.within.effect[grant.effect]

_proper("execute", grant) if is_boolean(object.get(grant, "execute", false))

_proper("data", grant) if facets.within.data[grant.data]

_proper("reach", grant) if facets.within.reach[grant.reach]

_proper("env", grant) if grant.env == "any"

_proper("env", grant) if {
	grant.env != []
	_proper_env(grant.env)
}

_proper_domains(domains) if {
	is_array(domains)
	{domain | some domain in domains} - facets.domains == set()
}

_proper_env(env) if {
	is_array(env)
	every word in env {
		is_string(word)
		not word in {"", "any"}
	}
}

# The grants of each role that are without faults.
_sound[role] contains grant if {
	some role, grants in data.mcp.grants
	some grant in grants
	_proper_whole(grant)
}

# Without faults; this is quicker than to list them.
_proper_whole(grant) if {
	is_object(grant)
	grant.domains != []
	facets.within.effect[grant.effect]
	facets.within.data[grant.data]
	facets.within.reach[grant.reach]
	_proper("env", grant)
	object.remove(grant, _keys) == {}
	object.get(grant, "match", "all") in {"all", "any"}
	is_boolean(object.get(grant, "execute", false))
	_proper_domains(grant.domains)
}
