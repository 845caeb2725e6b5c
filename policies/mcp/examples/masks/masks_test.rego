# METADATA
# title: Masks
# description: |-
#   What of a decision goes to the log: of the arguments the amount and no more. It
#   is written here, in a test, so that nobody loads it by accident: as a policy it
#   begins with package system.log, and its input is the event, which has what the
#   policy was asked under input.
# scope: package
# schemas:
#   - input: {type: object, additionalProperties: true, properties: {input: {}}}
package mcp.examples.masks_test

mask contains "/input/arguments" if not _kept

mask contains {"op": "upsert", "path": "/input/arguments", "value": _kept}

_kept := {"amount": input.input.arguments.amount} if is_number(input.input.arguments.amount)

test_amounts if {
	event := {"input": {"method": "tools/call", "arguments": {"amount": 12, "note": "for Ann"}}}
	mask == {{"op": "upsert", "path": "/input/arguments", "value": {"amount": 12}}} with input as event
}

test_other_arguments if {
	odd := [{"note": "for Ann"}, {"amount": "12"}, {"amount": {"note": "for Ann"}}, {}]
	every arguments in odd {
		mask == {"/input/arguments"} with input as {"input": {"method": "tools/call", "arguments": arguments}}
	}
	mask == {"/input/arguments"} with input as {"input": {"method": "tools/call"}}
}
