# METADATA
# title: Authorization
# description: |-
#   Decides about one thing at a time, a tool, a resource, a prompt or a server,
#   whether the caller may see and use it. A thing is allowed when the method goes
#   with it, it is registered and not in quarantine, its server offers it, its
#   definition has not drifted from the pinned one, and one of the grants of the caller's roles covers it. A
#   resource and a prompt are registered, and labelled, as their server is.
#   Everything else is denied: unknown methods, and questions about no thing or
#   several.
package mcp.authz

import data.mcp.lib.asked
import data.mcp.lib.claims
import data.mcp.lib.facets
import data.mcp.lib.grants

# METADATA
# title: Allow
# description: Whether the caller may see the thing and use it.
# entrypoint: true
# scope: document
default allow := false

# A list asks this about everything there is, so what most things fail at is first.
allow if {
	grants.covered
	_usable
	asked.fits
}

# METADATA
# title: Reasons
# description: |-
#   Codes that say why allow is not true; empty when it is. The first of these
#   questions that has a cause for an answer gives the reasons: is there one thing
#   and a method that goes with it, is the thing one that may be allowed at all, has
#   the caller any grants, and what do these lack?
# scope: document
reasons contains reason if {
	not allow
	some reason in [causes | some causes in _causes; causes != set()][0]
}

reasons contains "malformed_grant" if {
	not allow
	_method | _thing == set()
	grants.malformed != set()
}

# METADATA
# title: Problems
# description: |-
#   What is wrong in data.mcp.grants, each with its place and how to mend it in
#   one line. Does not look at the input. With any of them the gateway refuses the
#   policy and keeps to the last good one.
# scope: document
problems contains sprintf("data.mcp.grants%s: %s", [concat("", place), p.problem]) if {
	some p in grants.problems
	place := [sprintf("[%s]", [json.marshal(p[key])]) | some key in ["role", "grant"]; p[key] != null]
}

_usable if {
	input.tool.registered == true
	not input.tool.quarantined
	input.tool.definition.drifted == false
}

_usable if {
	input.resource.registered == true
	not input.resource.quarantined
	input.resource.definition.drifted == false
}

_usable if {
	input.prompt.registered == true
	not input.prompt.quarantined
	input.prompt.definition.drifted == false
}

# Nobody offers a server, so it has no definition.
_usable if {
	input.server.registered == true
	not input.server.quarantined
}

_causes := [_method, _thing, _caller, grants.shortfalls]

_method contains "method_not_granted" if not asked.fits

_thing contains "quarantined" if asked.thing.quarantined

_thing contains "unregistered" if {
	not asked.thing.registered == true
	not asked.thing.quarantined
}

_thing contains "not_offered" if {
	asked.thing.registered == true
	asked.kinds != {"server"}
	not asked.thing.definition
}

_thing contains "drifted" if {
	asked.thing.definition
	not asked.thing.definition.drifted == false
}

_thing contains "unlabelled" if {
	asked.thing.registered == true
	facets.unlabelled != set()
}

_thing contains "unknown_facet" if facets.unknown != set()

_caller contains "no_role" if claims.roles == set()

_caller contains "no_grant" if {
	claims.roles != set()
	grants.held == set()
}
