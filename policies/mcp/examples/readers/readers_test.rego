package mcp.examples.readers_test

import data.mcp.examples.readers

_prompt := {
	"method": "prompts/get",
	"claims": {"roles": ["reader"]},
	"prompt": {
		"server": "notes",
		"name": "summary",
		"exposed_name": "notes__summary",
		"registered": true,
		"definition": {"pinned": false, "drifted": false},
	},
}

_resource := {
	"method": "resources/read",
	"claims": {"roles": ["reader"]},
	"resource": {
		"server": "notes",
		"uri": "notes://handbook",
		"registered": true,
		"definition": {"pinned": false, "drifted": false},
	},
}

test_prompt if {
	readers.allow with input as _prompt
	readers.allow with input as object.union(_prompt, {"method": "completion/complete"})
	not readers.allow with input as object.union(_prompt, {"method": "tools/call"})
	not readers.allow with input as object.union(_prompt, {"claims": {"roles": ["writer"]}})
	not readers.allow with input as object.union(_prompt, {"claims": {"roles": "reader"}})
	not readers.allow with input as object.union(_prompt, {"prompt": {"exposed_name": "notes__other"}})
	not readers.allow with input as object.remove(_prompt, ["prompt"])
}

test_resource if {
	readers.allow with input as _resource
	readers.allow with input as object.union(_resource, {"method": "resources/subscribe"})
	not readers.allow with input as object.union(_resource, {"method": "prompts/get"})
	not readers.allow with input as object.union(_resource, {"claims": {"roles": []}})
	not readers.allow with input as object.union(_resource, {"resource": {"uri": "notes://other"}})
	not readers.allow with input as object.union(_resource, {"resource": {"server": "other"}})
	not readers.allow with input as object.remove(_resource, ["resource"])
}

# A resource that nobody lists has no definition.
test_unlisted if {
	unlisted := json.remove(_resource, ["/resource/definition"])
	not readers.allow with input as unlisted
}
