# Rules that look right and are not, each beside one that is. They are written
# here, in a test, so that nobody loads them by accident.
package mcp.examples.pitfalls_test

import data.mcp.authz
import data.mcp.lib.claims

# Something missing makes a comparison undefined, and not makes that a yes.
_secret if input.tool.data == "secret"

_unless_secret if not _secret

_if_harmless if input.tool.data in {"public", "internal"}

test_missing_attribute if {
	odd := [{}, {"data": null}, {"data": ["secret"]}, {"data": "SECRET"}]
	every tool in odd {
		_unless_secret with input.tool as tool
		not _if_harmless with input.tool as tool
	}
	not _unless_secret with input.tool as {"data": "secret"}
	_if_harmless with input.tool as {"data": "internal"}
}

# The shipped policy denies all of these, and each with the boolean false.
test_missing_attribute_of_the_shipped_policy if {
	odd := [{}, {"data": null}, {"data": ["internal"]}, {"data": "INTERNAL"}, {"data": ""}]
	every tool in odd {
		question := {
			"method": "tools/call",
			"claims": {"roles": ["admin"]},
			"tool": object.union(
				{
					"attributes": ["crm"],
					"effect": "read",
					"reach": "closed",
					"registered": true,
					"definition": {"drifted": false},
				},
				tool,
			),
		}
		authz.allow == false with input as question
	}
}

# every holds for an empty list.
_all_payments if {
	every domain in input.tool.attributes { domain == "payments" }
}

_only_payments if input.tool.attributes == ["payments"]

test_empty_list if {
	_all_payments with input.tool as {"attributes": []}
	not _only_payments with input.tool as {"attributes": []}
	_only_payments with input.tool as {"attributes": ["payments"]}
}

# A built-in that is given the wrong type is undefined, or an error where errors
# are strict, as they are in the gateway.
_finance if startswith(input.claims.department, "fin")

_unless_finance if not _finance

_if_known_department if input.claims.department in {"sales", "support"}

test_wrong_type if {
	every department in [["finance"], 5, null] {
		_unless_finance with input.claims as {"department": department}
		not _if_known_department with input.claims as {"department": department}
	}
	_unless_finance with input.claims as {}
	not _if_known_department with input.claims as {}
	not _unless_finance with input.claims as {"department": "finance"}
	_if_known_department with input.claims as {"department": "sales"}
}

# Each of these fails on some value, and is undefined or an error then.
_denied if to_number(input.claims.level) < 3

_denied if json.unmarshal(input.claims.profile).blocked == true

_denied if time.parse_rfc3339_ns(input.claims.until) < 1700000000000000000

_denied if 10 / input.claims.seats > 5

_unless_denied if not _denied

_if_level if input.claims.level in {"3", "4", "5"}

test_failing_builtins if {
	odd := [{"level": "abc"}, {"profile": "{blocked"}, {"until": "tomorrow"}, {"seats": 0}]
	every claims in odd {
		_unless_denied with input.claims as claims
		not _if_level with input.claims as claims
	}
	low := [
		{"level": "2"}, {"profile": "{\"blocked\": true}"}, {"until": "2020-01-01T00:00:00Z"},
		{"seats": 1},
	]
	every claims in low {
		not _unless_denied with input.claims as claims
	}
	_if_level with input.claims as {"level": "3"}
}

# What a negated call is given has to be there, or the whole rule is undefined: not
# is about the call alone. A rule of its own is negated as a whole.
_not_finance if not startswith(input.claims.department, "fin")

test_negated_calls if {
	not _not_finance with input.claims as {}
	_unless_finance with input.claims as {}
	_not_finance with input.claims as {"department": "sales"}
	_unless_finance with input.claims as {"department": "sales"}
}

# Values of all types are ordered: null, false, true, numbers, strings, and so on.
_at_most if input.arguments.amount <= 1000

_number_at_most if {
	is_number(input.arguments.amount)
	input.arguments.amount <= 1000
}

_at_least if input.arguments.amount >= 1000

test_comparison_across_types if {
	every amount in [null, false, true] {
		_at_most with input.arguments as {"amount": amount}
		not _number_at_most with input.arguments as {"amount": amount}
	}
	_at_least with input.arguments as {"amount": "5"}
	_number_at_most with input.arguments as {"amount": 1000}
	not _number_at_most with input.arguments as {"amount": 1001}
}

# contains looks for a substring, and in finds nothing inside a string.
_scope_in_text if contains(input.claims.scope, "tools:read")

_scope_as_element if "tools:read" in input.claims.scope

_scope if "tools:read" in claims.scopes

test_scopes if {
	every scope in ["tools:readwrite", "xtools:read", "tools:read\ttools:admin"] {
		_scope_in_text with input.claims as {"scope": scope}
		not _scope with input.claims as {"scope": scope}
	}
	_scope_as_element with input.claims as {"scope": ["tools:read"]}
	not _scope_as_element with input.claims as {"scope": "tools:read tools:list"}
	every claim in [{"scope": "tools:list tools:read"}, {"scope": ["tools:read"]}, {"scp": "tools:read"}] {
		_scope with input.claims as claim
	}
}

# The same name on two servers is two tools.
_by_name if input.tool.name == "read"

_by_server_and_name if {
	input.tool.server == "alpha"
	input.tool.name == "read"
}

_by_exposed_name if input.tool.exposed_name == "alpha__read"

test_names if {
	alpha := {"server": "alpha", "name": "read", "exposed_name": "alpha__read"}
	beta := {"server": "beta", "name": "read", "exposed_name": "beta__read"}
	_by_name with input.tool as alpha
	_by_name with input.tool as beta
	_by_server_and_name with input.tool as alpha
	not _by_server_and_name with input.tool as beta
	_by_exposed_name with input.tool as alpha
	not _by_exposed_name with input.tool as beta
}

# A glob's star stops at the delimiters, and [] means the dot.
_glob if glob.match("github*", [], input.tool.name)

_glob_across_dots if glob.match("github*", null, input.tool.name)

_glob_of_a_segment if glob.match("github.*", [], input.tool.name)

_glob_across_segments if glob.match("github.*", ["/"], input.tool.name)

_unless_glob if not glob.match("github*", [], input.tool.name)

_by_server if input.tool.server == "github"

test_globs if {
	every name in ["github.delete", "github.repo.delete"] {
		not _glob with input.tool as {"name": name}
		_glob_across_dots with input.tool as {"name": name}
	}
	_glob with input.tool as {"name": "githubx"}
	_glob_across_dots with input.tool as {"name": "githubx"}
	_glob_of_a_segment with input.tool as {"name": "github.delete"}
	not _glob_of_a_segment with input.tool as {"name": "github.repo.delete"}
	_glob_across_segments with input.tool as {"name": "github.repo.delete"}
	not _glob_across_segments with input.tool as {"name": "githubx"}
	_unless_glob with input.tool as {"name": "github.delete"}
	not _unless_glob with input.tool as {"name": "githubx"}
	_by_server with input.tool as {"server": "github", "name": "github.repo.delete"}
	not _by_server with input.tool as {"server": "githubx"}
}

# A prefix matches what goes on, and a pattern without anchors what goes around.
_prefix if startswith(input.tool.server, "git")

_pattern if regex.match(`read_file`, input.tool.name)

_anchored if regex.match(`^read_file$`, input.tool.name)

_uri_prefix if startswith(input.resource.uri, "file:///srv/a")

_exactly if {
	input.tool.server == "git"
	input.tool.name == "read_file"
}

test_prefixes if {
	_prefix with input.tool as {"server": "git-admin"}
	_pattern with input.tool as {"name": "unsafe_read_file_and_delete"}
	not _anchored with input.tool as {"name": "unsafe_read_file_and_delete"}
	not _anchored with input.tool as {"name": "read_file\n"}
	_anchored with input.tool as {"name": "read_file"}
	_uri_prefix with input.resource as {"uri": "file:///srv/a-secret"}
	not _exactly with input.tool as {"server": "git-admin", "name": "read_file"}
	not _exactly with input.tool as {"server": "git", "name": "unsafe_read_file_and_delete"}
	_exactly with input.tool as {"server": "git", "name": "read_file"}
}

# Where there is no tool, nothing is true of it, and its negation is a yes.
_unless_destructive if not input.tool.effect == "destructive"

_if_reading if {
	input.method == "tools/call"
	input.tool.effect == "read"
}

test_other_things if {
	every kind in ["resource", "prompt", "server", "nothing"] {
		every method in ["tools/call", "roots/list"] {
			_unless_destructive with input as {"method": method, kind: {"effect": "destructive"}}
			not _if_reading with input as {"method": method, kind: {"effect": "read"}}
		}
	}
	not _unless_destructive with input as {"method": "tools/call", "tool": {"effect": "destructive"}}
	_if_reading with input as {"method": "tools/call", "tool": {"effect": "read"}}
}

# The shipped policy goes by what each thing is, and denies what it does not know.
test_other_things_of_the_shipped_policy if {
	thing := {
		"attributes": ["crm"],
		"effect": "read",
		"data": "internal",
		"reach": "closed",
		"registered": true,
		"definition": {"drifted": false},
	}
	question := {"method": "roots/list", "claims": {"roles": ["admin"]}}
	every kind in ["tool", "resource", "prompt", "server"] {
		authz.allow == true with input as object.union(question, {kind: thing})
		authz.allow == false with input as object.union(question, {kind: object.remove(thing, {"registered"})})
	}
	authz.allow == false with input as object.union(question, {"nothing": thing})
}

# What a URI looks like is not what the server will read.
_under_public if startswith(input.resource.uri, "file:///public/")

_if_known_uri if input.resource.uri in {"file:///public/prices.csv", "file:///public/terms.txt"}

_by_template if input.resource.uri_template == "file:///public/{name}"

test_uris if {
	odd := ["file:///public/../etc/passwd", "file:///public/%2e%2e/etc/passwd", "file:///public/./../etc/passwd"]
	every uri in odd {
		_under_public with input.resource as {"uri": uri}
		_by_template with input.resource as {"uri": uri, "uri_template": "file:///public/{name}"}
		not _if_known_uri with input.resource as {"uri": uri}
	}
	_if_known_uri with input.resource as {"uri": "file:///public/prices.csv"}
	not _if_known_uri with input.resource as {"uri": "FILE:///public/prices.csv"}
}

# While a tool is in use, call is also asked about what its server wants of the
# client, and then the arguments are those of that request.
_any_short if count(input.arguments.text) < 100

_short if {
	input.method == "tools/call"
	count(input.arguments.text) < 100
}

_short if input.method in {"elicitation/create", "roots/list"}

test_arguments_of_other_methods if {
	call := {"method": "tools/call", "tool": {"name": "post"}, "arguments": {"text": "hello"}}
	asks := {"method": "elicitation/create", "tool": {"name": "post"}, "arguments": {"message": "Post it?"}}
	_any_short with input as call
	not _any_short with input as asks
	_short with input as call
	_short with input as asks
	not _short with input as object.union(asks, {"method": "sampling/createMessage"})
}

# Only true allows. A rule that takes its value from elsewhere can have any.
_from_claim := input.claims.trusted

_if_true if input.claims.trusted == true

test_values_that_are_not_true if {
	odd := ["yes", "true", "false", 1, {}, {"allow": true}, [], null]
	every value in odd {
		_from_claim == value with input.claims as {"trusted": value}
		not _if_true with input.claims as {"trusted": value}
	}
	not _if_true with input.claims as {}
	_if_true with input.claims as {"trusted": true}
	every value in odd {
		authz.allow == false with input.claims as {"roles": value}
	}
}
