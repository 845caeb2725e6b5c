# METADATA
# title: Facets
# description: |-
#   The words that say what a thing is, and how they are ordered. The registry
#   labels each tool with one value of every facet but attributes, which takes
#   one or more, and env, which a tool may go without. It labels each server in the
#   same way but for effect; a server's resources and prompts are what it is, and
#   using them reads.
#
#   attributes: the domains that the thing works in.
#
#   effect: what a call can do. read changes nothing; write adds or changes what
#   could be changed back; destructive removes, makes final or moves money;
#   admin changes who may do what; execute runs code or commands of the caller.
#
#   data: the most sensitive class that the thing shows, changes or is handed.
#
#   reach: closed stays within our own accounts and systems; external lets
#   something out to others or in from them.
#
#   env: where a call takes effect, a word of your own such as production.
#
#   The vocabularies are closed but for env: a value that is not listed here is
#   unknown, and an unknown value denies.
package mcp.lib.facets

import data.mcp.lib.asked

# METADATA
# title: Domains
# description: The domains that a thing's attributes and a grant can name.
domains := {
	"ai",
	"analytics",
	"commerce",
	"crm",
	"database",
	"developer",
	"hr",
	"identity",
	"infrastructure",
	"marketing",
	"messaging",
	"payments",
	"productivity",
	"storage",
	"web",
}

# METADATA
# title: Within
# description: |-
#   For every ordered facet and every ceiling, the values within that ceiling.
#   The effect execute is within none: it has to be granted by name.
within := {
	"effect": {
		"read": {"read"},
		"write": {"read", "write"},
		"destructive": {"read", "write", "destructive"},
		"admin": {"read", "write", "destructive", "admin"},
	},
	"data": {
		"public": {"public"},
		"internal": {"public", "internal"},
		"personal": {"public", "internal", "personal"},
		"financial": {"public", "internal", "personal", "financial"},
		"secret": {"public", "internal", "personal", "financial", "secret"},
	},
	"reach": {
		"closed": {"closed"},
		"external": {"closed", "external"},
	},
}

# METADATA
# title: Hinted
# description: |-
#   Effects that the backend's hints claim of a tool on top of its label. A
#   destructiveHint other than false claims destructive, a readOnlyHint other than
#   true claims write; a hint that is absent or null claims nothing. So a hint can
#   tighten and never loosen. Where a person has weighed the hints of a pinned
#   definition and set the tool's label `hints` to `reviewed`, they claim nothing
#   either.
# scope: document
hinted contains "destructive" if {
	hint := input.tool.definition.annotations.destructiveHint
	hint != false
	hint != null
	not _reviewed
}

hinted contains "write" if {
	hint := input.tool.definition.annotations.readOnlyHint
	hint != true
	hint != null
	not _reviewed
}

# METADATA
# title: Unlabelled
# description: Facets that the thing lacks and must have.
# scope: document
unlabelled contains facet if {
	some facet in ["attributes", "data", "reach"]
	not asked.thing[facet]
}

unlabelled contains "attributes" if asked.thing.attributes == []

unlabelled contains "effect" if not asked.effect

# METADATA
# title: Unknown
# description: Facets of the thing whose value is not in the vocabulary or of the wrong type.
# scope: document
unknown contains facet if {
	some facet in ["data", "reach"]
	value := asked.thing[facet]
	not value in _values[facet]
}

unknown contains "effect" if {
	effect := asked.effect
	not effect in _values.effect
}

unknown contains "attributes" if {
	attributes := asked.thing.attributes
	not is_array(attributes)
}

unknown contains "attributes" if {
	some domain in asked.thing.attributes
	not domain in domains
}

unknown contains "env" if {
	env := asked.thing.env
	not is_string(env)
}

_values := {
	"effect": (within.effect.admin | {"execute"}),
	"data": within.data.secret,
	"reach": within.reach.external,
}

_reviewed if {
	input.tool.labels.hints == "reviewed"
	input.tool.definition.pinned == true
}
