# METADATA
# title: Authorization of the tests
# description: |-
#   Shares things of servers out to roles. Which servers a share is about is said
#   by what the registry calls them, and which of their things by name.
package mcp.authz

# METADATA
# title: Allow
# description: Whether a share of the caller's roles covers the thing and the method.
# entrypoint: true
default allow := false

allow if {
	some role in input.claims.roles
	some share in data.mcp.shares[role]
	_covers(share.methods, input.method)
	_thing.registered == true
	_thing.owner in share.owners
	_covers(share.names, _name)
}

_covers(patterns, value) if {
	some pattern in patterns
	glob.match(pattern, null, value)
}

_thing := input[_kind]

_kind := [kind | some kind in ["tool", "prompt", "resource", "server"]; input[kind]][0]

# A resource that comes of a template is shared out by its own URI, a template by
# itself.
_name := [name | some key in ["uri", "uri_template", "name"]; name := _thing[key]][0]
