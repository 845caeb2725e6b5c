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
	thing := asked.thing
	some role in claims.roles
	some grant in data.mcp.grants[role]
	inside := [domain | some domain in thing.attributes; domain in grant.domains]
	inside != []
	_matches(grant, inside)
	_effect(grant)
	facets.within.data[grant.data][thing.data]
	facets.within.reach[grant.reach][thing.reach]
	_env(grant)
	_hints(grant)
	_proper_rest(grant)
}

# METADATA
# title: Held
# description: The caller's grants, without those that are wrong.
held contains grant if {
	some role in claims.roles
	some grant in data.mcp.grants[role]
	_sound(grant)
}

# METADATA
# title: Malformed
# description: The caller's roles that hold a grant that is wrong.
malformed contains role if {
	some role in claims.roles
	some grant in data.mcp.grants[role]
	not _sound(grant)
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

# The thing's domains lie inside the grant: all of them, or any where it says so.
_matches(_, inside) if inside == asked.thing.attributes

_matches(grant, _) if {
	grant.match == "any"
	is_array(asked.thing.attributes)
	every domain in asked.thing.attributes { domain in facets.domains }
}

_effect(grant) if facets.within.effect[grant.effect][asked.effect]

_effect(grant) if {
	grant.execute == true
	asked.effect == "execute"
}

# What hints claim fits too. An execute tool may do anything as it is.
_hints(grant) if facets.hinted - facets.within.effect[grant.effect] == set()

_hints(_) if asked.effect == "execute"

# What has no env may act on any of them.
_env(grant) if {
	grant.env == "any"
	not _strange_env
}

_env(grant) if {
	asked.thing.env in grant.env
	_proper_env(grant.env)
}

_strange_env if {
	env := asked.thing.env
	not is_string(env)
}

# The grants with the thing's domains, and what each lacks of the rest.
_lacks[grant] := {reason | some reason in _reasons; _lacking(reason, grant)} if {
	some grant in held
	inside := [domain | some domain in asked.thing.attributes; domain in grant.domains]
	inside != []
	_matches(grant, inside)
}

_reasons := {
	"effect_not_granted",
	"hint_not_granted",
	"data_not_granted",
	"reach_not_granted",
	"env_not_granted",
}

_lacking("effect_not_granted", grant) if not _effect(grant)

_lacking("hint_not_granted", grant) if {
	_effect(grant)
	not _hints(grant)
}

_lacking("data_not_granted", grant) if not facets.within.data[grant.data][asked.thing.data]

_lacking("reach_not_granted", grant) if not facets.within.reach[grant.reach][asked.thing.reach]

_lacking("env_not_granted", grant) if not _env(grant)

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

# Without faults; this is quicker than to list them.
_sound(grant) if {
	is_object(grant)
	grant.domains != []
	facets.within.data[grant.data]
	facets.within.reach[grant.reach]
	_proper("env", grant)
	_proper_rest(grant)
}

# What covered has not yet found proper by looking it up.
_proper_rest(grant) if {
	object.remove(grant, _keys) == {}
	object.get(grant, "match", "all") in {"all", "any"}
	is_boolean(object.get(grant, "execute", false))
	facets.within.effect[grant.effect]
	_proper_domains(grant.domains)
}
