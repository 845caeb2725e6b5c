package mcp.examples.owners_test

import data.mcp.examples.owners

_question := {
	"method": "tools/call",
	"claims": {"team": "payments-team"},
	"tool": {
		"owner": "payments-team",
		"effect": "read",
		"registered": true,
		"definition": {"pinned": false, "drifted": false},
	},
}

test_owners if {
	cases := {
		"its own": {"change": {}, "want": true},
		"another team's": {"change": {"tool": {"owner": "data-team"}}, "want": false},
		"writes": {"change": {"tool": {"effect": "write"}}, "want": false},
		"said to write": {
			"change": {"tool": {"definition": {"annotations": {"readOnlyHint": false}}}},
			"want": false,
		},
		"drifted": {"change": {"tool": {"definition": {"drifted": true}}}, "want": false},
		"several teams": {"change": {"claims": {"team": ["payments-team"]}}, "want": false},
	}
	got := {name: allow |
		some name, c in cases
		allow := owners.allow with input as object.union(_question, c.change)
	}
	got == {name: c.want | some name, c in cases}
}

# Two things that are not there are not equal.
test_neither_owner_nor_team if {
	question := object.union(
		object.remove(_question, {"claims", "tool"}),
		{"claims": {}, "tool": object.remove(_question.tool, {"owner"})},
	)
	owners.allow == false with input as question
}
