package mcp.lib.facets_test

import data.mcp.lib.facets

test_within_follows_the_order if {
	orders := {
		"effect": ["read", "write", "destructive", "admin"],
		"data": ["public", "internal", "personal", "financial", "secret"],
		"reach": ["closed", "external"],
	}
	facets.within == {facet: {ceiling: {value | some j, value in order; j <= i} | some i, ceiling in order} |
		some facet, order in orders
	}
}

test_domains if {
	facets.domains == {
		"payments", "developer", "messaging", "crm", "analytics", "storage", "identity", "infrastructure",
		"database", "productivity", "hr", "commerce", "marketing", "web", "ai",
	}
}

test_hinted if {
	cases := {
		"none": {"hints": {}, "want": set()},
		"null": {"hints": {"readOnlyHint": null, "destructiveHint": null}, "want": set()},
		"reads": {"hints": {"readOnlyHint": true}, "want": set()},
		"adds": {"hints": {"readOnlyHint": false, "destructiveHint": false}, "want": {"write"}},
		"writes": {"hints": {"readOnlyHint": false}, "want": {"write"}},
		"destroys": {"hints": {"destructiveHint": true}, "want": {"destructive"}},
		"writes and destroys": {
			"hints": {"readOnlyHint": false, "destructiveHint": true},
			"want": {"write", "destructive"},
		},
		"contradicts itself": {"hints": {"readOnlyHint": true, "destructiveHint": true}, "want": {"destructive"}},
		"strings": {
			"hints": {"readOnlyHint": "true", "destructiveHint": "false"},
			"want": {"write", "destructive"},
		},
		"numbers": {"hints": {"readOnlyHint": 1, "destructiveHint": 0}, "want": {"write", "destructive"}},
		"hints that say other things": {
			"hints": {"title": "x", "idempotentHint": false, "openWorldHint": true},
			"want": set(),
		},
	}
	got := {name: hinted |
		some name, c in cases
		hinted := facets.hinted with input.tool as {"definition": {"pinned": false, "annotations": c.hints}}
	}
	got == {name: c.want | some name, c in cases}
}

test_nothing_hinted_without_annotations if {
	every tool in [{}, {"definition": {}}, {"definition": {"annotations": null}}, {"definition": {"annotations": []}}] {
		facets.hinted == set() with input.tool as tool
	}
}

# A review holds for the definition that was reviewed, so it needs the pin.
test_reviewed_hints if {
	cases := {
		"reviewed": {"labels": {"hints": "reviewed"}, "pinned": true, "want": set()},
		"not pinned": {"labels": {"hints": "reviewed"}, "pinned": false, "want": {"write", "destructive"}},
		"another word": {"labels": {"hints": "Reviewed"}, "pinned": true, "want": {"write", "destructive"}},
		"no label": {"labels": {}, "pinned": true, "want": {"write", "destructive"}},
	}
	got := {name: hinted |
		some name, c in cases
		hinted := facets.hinted with input.tool as {
			"labels": c.labels,
			"definition": {
				"pinned": c.pinned,
				"annotations": {"readOnlyHint": false, "destructiveHint": true},
			},
		}
	}
	got == {name: c.want | some name, c in cases}
}

test_labels if {
	good := {"attributes": ["payments"], "effect": "write", "data": "financial", "reach": "closed"}
	cases := {
		"good": {"tool": {}, "unlabelled": set(), "unknown": set()},
		"execute": {"tool": {"effect": "execute"}, "unlabelled": set(), "unknown": set()},
		"env": {"tool": {"env": "production"}, "unlabelled": set(), "unknown": set()},
		"no domain": {"tool": {"attributes": []}, "unlabelled": {"attributes"}, "unknown": set()},
		"domain as a string": {"tool": {"attributes": "payments"}, "unlabelled": set(), "unknown": {"attributes"}},
		"domains as an object": {
			"tool": {"attributes": {"a": "payments"}},
			"unlabelled": set(),
			"unknown": {"attributes"},
		},
		"one domain unknown": {
			"tool": {"attributes": ["payments", "paiments"]},
			"unlabelled": set(),
			"unknown": {"attributes"},
		},
		"capitals": {
			"tool": {"attributes": ["Payments"], "effect": "WRITE", "data": "HIGH", "reach": "Closed"},
			"unlabelled": set(),
			"unknown": {"attributes", "effect", "data", "reach"},
		},
		"empty strings": {
			"tool": {"effect": "", "data": "", "reach": ""},
			"unlabelled": set(),
			"unknown": {"effect", "data", "reach"},
		},
		"null": {
			"tool": {"attributes": null, "effect": null, "data": null, "reach": null, "env": null},
			"unlabelled": set(),
			"unknown": {"attributes", "effect", "data", "reach", "env"},
		},
		"arrays": {
			"tool": {"effect": ["write"], "data": ["financial"], "reach": ["closed"], "env": ["production"]},
			"unlabelled": set(),
			"unknown": {"effect", "data", "reach", "env"},
		},
	}
	got := {name: {"tool": c.tool, "unlabelled": unlabelled, "unknown": unknown} |
		some name, c in cases
		unlabelled := facets.unlabelled with input.tool as object.union(good, c.tool)
		unknown := facets.unknown with input.tool as object.union(good, c.tool)
	}
	got == cases
}

# What the server's entry says is judged by the same words, and has no effect.
test_labels_of_other_kinds if {
	good := {"attributes": ["payments"], "data": "financial", "reach": "closed"}
	cases := {
		"good": {"thing": {}, "unlabelled": set(), "unknown": set()},
		"an effect": {"thing": {"effect": "WRITE"}, "unlabelled": set(), "unknown": set()},
		"no domain": {"thing": {"attributes": []}, "unlabelled": {"attributes"}, "unknown": set()},
		"capitals": {
			"thing": {"attributes": ["Payments"], "data": "HIGH", "reach": "Closed"},
			"unlabelled": set(),
			"unknown": {"attributes", "data", "reach"},
		},
		"null": {
			"thing": {"attributes": null, "data": null, "reach": null, "env": null},
			"unlabelled": set(),
			"unknown": {"attributes", "data", "reach", "env"},
		},
	}
	kinds := {"resource", "prompt", "server"}
	got := {kind: {name: {"thing": c.thing, "unlabelled": unlabelled, "unknown": unknown} |
		some name, c in cases
		unlabelled := facets.unlabelled with input as {kind: object.union(good, c.thing)}
		unknown := facets.unknown with input as {kind: object.union(good, c.thing)}
	} |
		some kind in kinds
	}
	got == {kind: cases | some kind in kinds}
	every kind in kinds {
		facets.unlabelled == {"attributes", "data", "reach"} with input as {kind: {}}
		facets.hinted == set() with input as {kind: {"definition": {"annotations": {"destructiveHint": true}}}}
	}
}

test_a_tool_without_labels if {
	every tool in [{}, {"env": "production"}] {
		facets.unlabelled == {"attributes", "effect", "data", "reach"} with input.tool as tool
		facets.unknown == set() with input.tool as tool
	}
}
