# METADATA
# title: Authorization
# description: |-
#   Decides about one tool at a time whether the caller may see and call it. A
#   tool is allowed when it is registered, its definition has not drifted from
#   the pinned one, and one of the grants of the caller's roles covers it.
#   Everything else is denied, other methods than tools/call included.
package mcp.authz

import data.mcp.lib.claims
import data.mcp.lib.facets
import data.mcp.lib.grants

# METADATA
# title: Allow
# description: Whether the caller may see the tool and call it.
# entrypoint: true
# scope: document
default allow := false

allow if {
	input.method == "tools/call"
	input.tool.registered == true
	input.tool.definition.drifted == false
	grants.covered
}

# METADATA
# title: Reasons
# description: |-
#   Codes that say why allow is not true; empty when it is. The first of these
#   questions that has a cause for an answer gives the reasons: is the method
#   one that is decided here, is the tool one that may be allowed at all, has the
#   caller any grants, and what do these lack?
# scope: document
reasons contains reason if {
	not allow
	some reason in [causes | some causes in _causes; causes != set()][0]
}

reasons contains "malformed_grant" if {
	not allow
	_method | _tool == set()
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

_causes := [_method, _tool, _caller, grants.shortfalls]

_method contains "method_not_granted" if not input.method == "tools/call"

_tool contains "unregistered" if not input.tool.registered == true

_tool contains "not_offered" if {
	input.tool.registered == true
	not input.tool.definition
}

_tool contains "drifted" if {
	input.tool.definition
	not input.tool.definition.drifted == false
}

_tool contains "unlabelled" if {
	input.tool.registered == true
	facets.unlabelled != set()
}

_tool contains "unknown_facet" if facets.unknown != set()

_caller contains "no_role" if claims.roles == set()

_caller contains "no_grant" if {
	claims.roles != set()
	grants.held == set()
}
