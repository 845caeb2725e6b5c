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
		"a task that it started": {"change": {"method": "tasks/result"}, "want": true},
		"what its server asks": {"change": {"method": "elicitation/create"}, "want": true},
		"the method of another kind": {"change": {"method": "prompts/get"}, "want": false},
		"an unknown method": {"change": {"method": "tools/list"}, "want": false},
		"a prompt beside it": {"change": {"prompt": {"owner": "payments-team"}}, "want": false},
		"several teams": {"change": {"claims": {"team": ["payments-team"]}}, "want": false},
	}
	got := {name: allow |
		some name, c in cases
		allow := owners.allow with input as object.union(_question, c.change)
	}
	got == {name: c.want | some name, c in cases}
}

# The rule is about tools, whatever else the team owns.
test_only_tools if {
	every kind in ["resource", "prompt", "server"] {
		owners.allow == false with input as object.union(
			object.remove(_question, {"method", "tool"}),
			{"method": "roots/list", kind: _question.tool},
		)
	}
}

# Two things that are not there are not equal.
test_neither_owner_nor_team if {
	question := object.union(
		object.remove(_question, {"claims", "tool"}),
		{"claims": {}, "tool": object.remove(_question.tool, {"owner"})},
	)
	owners.allow == false with input as question
}
