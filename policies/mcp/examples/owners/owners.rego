# METADATA
# title: Owners
# description: |-
#   A second way to be allowed, next to the grants: a team may read with the tools
#   that it owns, and do what goes with that. To use it, put it beside mcp/authz/authz.rego as package
#   mcp.authz, without the default.
package mcp.examples.owners

import data.mcp.lib.asked
import data.mcp.lib.facets

# METADATA
# title: Allow
# description: Whether the caller's team owns the tool and the tool only reads.
# scope: document
default allow := false

allow if {
	asked.fits
	input.tool.registered == true
	not input.tool.quarantined
	input.tool.definition.drifted == false
	input.tool.owner == input.claims.team
	input.tool.effect == "read"
	facets.hinted == set()
}
