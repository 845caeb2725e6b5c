# METADATA
# title: Readers
# description: |-
#   Shows one prompt and one resource to a role that has no grant, and nothing else
#   of their server. To use it, put it beside mcp/authz/authz.rego as package
#   mcp.authz, without the default.
package mcp.examples.readers

import data.mcp.lib.asked

# METADATA
# title: Allow
# description: Whether the caller is a reader and asks about what readers may see.
# scope: document
default allow := false

allow if {
	asked.fits
	"reader" in input.claims.roles
	input.prompt.definition
	input.prompt.exposed_name == "notes__summary"
}

allow if {
	asked.fits
	"reader" in input.claims.roles
	input.resource.definition
	input.resource.server == "notes"
	input.resource.uri == "notes://handbook"
}
