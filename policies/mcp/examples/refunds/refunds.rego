# METADATA
# title: Refunds
# description: |-
#   A second gate, which judges the arguments of a call: refunds up to a limit go
#   through, larger ones and those without an amount, which refund everything,
#   need a scope that the caller can step up to. To use it, put it beside
#   mcp/authz/authz.rego as package mcp.authz.
package mcp.examples.refunds

import data.mcp.lib.claims

# METADATA
# title: Call
# description: Whether this call may go through, asked after allow has said yes.
# scope: document
default call := false

call if not _refund

call if _small

call if "refunds:large" in claims.scopes

# METADATA
# title: Reasons
# description: Codes for the caller and the record.
# scope: document
reasons contains "refund_too_large" if not call

# METADATA
# title: Scopes
# description: What a caller who is refused can ask for.
# scope: document
scopes contains "refunds:large" if not call

# Without the method, this would be about what the server asks meanwhile, too.
# Method, server and name are always there, so negating this is safe.
_refund if {
	input.method == "tools/call"
	input.tool.server == "stripe"
	input.tool.name == "create_refund"
}

# Without is_number, null and false would be below any limit.
_small if {
	is_number(input.arguments.amount)
	input.arguments.amount > 0
	input.arguments.amount <= 10000
}
