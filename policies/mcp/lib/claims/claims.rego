# METADATA
# title: Claims
# description: |-
#   What the caller's token says of roles and scopes, as sets of whole names.
#   Issuers write such a claim as a string or as an array, leave it out, or send
#   null. A claim that is neither a string nor an array names nothing, and
#   neither does an empty string or an element of another type. Compare names
#   for equality only: never by prefix, never by substring.
package mcp.lib.claims

# METADATA
# title: Roles
# description: Names of roles, from the claims roles and groups. A string is one name, whatever is in it.
# scope: document
roles contains name if {
	is_array(input.claims.roles)
	some name in input.claims.roles
	is_string(name)
	name != ""
}

roles contains name if {
	is_array(input.claims.groups)
	some name in input.claims.groups
	is_string(name)
	name != ""
}

roles contains name if {
	name := input.claims.roles
	is_string(name)
	name != ""
}

roles contains name if {
	name := input.claims.groups
	is_string(name)
	name != ""
}

# METADATA
# title: Scopes
# description: |-
#   OAuth scopes, from the claims scope and scp. A string lists them, separated
#   by spaces and by nothing else; an array holds one in each element.
# scope: document
scopes contains scope if {
	some scope in _listed(input.claims.scope)
	is_string(scope)
	scope != ""
}

scopes contains scope if {
	some scope in _listed(input.claims.scp)
	is_string(scope)
	scope != ""
}

_listed(claim) := split(claim, " ") if is_string(claim)

_listed(claim) := claim if is_array(claim)
