package mcp.examples.refunds_test

import data.mcp.examples.refunds

_refund := {"server": "stripe", "name": "create_refund"}

_yes := {"call": true, "reasons": set(), "scopes": set()}

_no := {"call": false, "reasons": {"refund_too_large"}, "scopes": {"refunds:large"}}

test_refunds if {
	cases := {
		"small": {"claims": {}, "tool": _refund, "arguments": {"amount": 10000}, "want": _yes},
		"large": {"claims": {}, "tool": _refund, "arguments": {"amount": 10001}, "want": _no},
		"large, with the scope": {
			"claims": {"scope": "refunds:large"},
			"tool": _refund,
			"arguments": {"amount": 10001},
			"want": _yes,
		},
		"a longer scope": {
			"claims": {"scope": "refunds:larger"},
			"tool": _refund,
			"arguments": {"amount": 10001},
			"want": _no,
		},
		"everything": {"claims": {}, "tool": _refund, "arguments": {}, "want": _no},
		"null": {"claims": {}, "tool": _refund, "arguments": {"amount": null}, "want": _no},
		"false": {"claims": {}, "tool": _refund, "arguments": {"amount": false}, "want": _no},
		"digits": {"claims": {}, "tool": _refund, "arguments": {"amount": "1"}, "want": _no},
		"negative": {"claims": {}, "tool": _refund, "arguments": {"amount": -1}, "want": _no},
		"nothing to refund": {
			"claims": {},
			"tool": {"server": "stripe", "name": "list_refunds"},
			"arguments": {},
			"want": _yes,
		},
		"another server": {
			"claims": {},
			"tool": {"server": "shop", "name": "create_refund"},
			"arguments": {"amount": 10001},
			"want": _yes,
		},
	}
	got := {name: answer |
		some name, c in cases
		answer := _answer({
			"method": "tools/call",
			"claims": c.claims,
			"tool": c.tool,
			"arguments": c.arguments,
		})
	}
	got == {name: c.want | some name, c in cases}
}

# What goes with a refund has other arguments, and other things have no refunds.
test_other_methods if {
	every method in ["elicitation/create", "sampling/createMessage", "tasks/update"] {
		_answer({"method": method, "claims": {}, "tool": _refund, "arguments": {"message": "Sure?"}}) == _yes
	}
	every kind in ["prompt", "resource"] {
		question := {"method": "completion/complete", "claims": {}, kind: _refund, "arguments": {"amount": 10001}}
		_answer(question) == _yes
	}
}

_answer(question) := {"call": call, "reasons": reasons, "scopes": scopes} if {
	call := refunds.call with input as question
	reasons := refunds.reasons with input as question
	scopes := refunds.scopes with input as question
}
