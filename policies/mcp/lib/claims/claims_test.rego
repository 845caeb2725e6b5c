package mcp.lib.claims_test

import data.mcp.lib.claims

test_roles if {
	cases := {
		"absent": {"claims": {}, "want": set()},
		"null": {"claims": {"roles": null, "groups": null}, "want": set()},
		"empty string": {"claims": {"roles": "", "groups": ""}, "want": set()},
		"empty array": {"claims": {"roles": [], "groups": []}, "want": set()},
		"string": {"claims": {"roles": "payments"}, "want": {"payments"}},
		"a string is one name": {"claims": {"roles": "payments admin"}, "want": {"payments admin"}},
		"commas are no separators": {"claims": {"roles": "payments,admin"}, "want": {"payments,admin"}},
		"array": {"claims": {"roles": ["payments", "support"]}, "want": {"payments", "support"}},
		"groups string": {"claims": {"groups": "payments"}, "want": {"payments"}},
		"groups array": {"claims": {"groups": ["payments"]}, "want": {"payments"}},
		"both": {"claims": {"roles": ["payments"], "groups": "support"}, "want": {"payments", "support"}},
		"one of them null": {"claims": {"roles": null, "groups": ["support"]}, "want": {"support"}},
		"case counts": {"claims": {"roles": ["Admin", "ADMIN"]}, "want": {"Admin", "ADMIN"}},
		"blanks count": {"claims": {"roles": [" admin", "admin\n"]}, "want": {" admin", "admin\n"}},
		"other elements": {"claims": {"roles": [null, 1, true, ["admin"], {"a": "admin"}, "", "x"]}, "want": {"x"}},
		"number": {"claims": {"roles": 1}, "want": set()},
		"boolean": {"claims": {"roles": true}, "want": set()},
		"object of strings": {"claims": {"roles": {"a": "admin"}, "groups": {"admin": "b"}}, "want": set()},
		"near names": {"claims": {"role": "admin", "Roles": ["admin"], "ROLES": "admin"}, "want": set()},
	}
	got := {name: roles |
		some name, c in cases
		roles := claims.roles with input.claims as c.claims
	}
	got == {name: c.want | some name, c in cases}
}

# The same scopes in each form that issuers use, and what only looks like them.
test_scopes if {
	cases := {
		"absent": {"claims": {}, "want": set()},
		"null": {"claims": {"scope": null, "scp": null}, "want": set()},
		"empty string": {"claims": {"scope": "", "scp": ""}, "want": set()},
		"only spaces": {"claims": {"scope": "  "}, "want": set()},
		"string": {"claims": {"scope": "tools:read tools:list"}, "want": {"tools:read", "tools:list"}},
		"two spaces": {"claims": {"scope": " tools:read  tools:list "}, "want": {"tools:read", "tools:list"}},
		"array": {"claims": {"scope": ["tools:read"]}, "want": {"tools:read"}},
		"an element is one scope": {"claims": {"scope": ["tools:read tools:list"]}, "want": {"tools:read tools:list"}},
		"scp string": {"claims": {"scp": "tools:read tools:list"}, "want": {"tools:read", "tools:list"}},
		"scp array": {"claims": {"scp": ["tools:read", "tools:list"]}, "want": {"tools:read", "tools:list"}},
		"both": {"claims": {"scope": "tools:read", "scp": ["tools:list"]}, "want": {"tools:read", "tools:list"}},
		"longer": {"claims": {"scope": "tools:readwrite"}, "want": {"tools:readwrite"}},
		"longer in front": {"claims": {"scope": "xtools:read"}, "want": {"xtools:read"}},
		"a tab is no space": {"claims": {"scope": "tools:read\ttools:admin"}, "want": {"tools:read\ttools:admin"}},
		"other elements": {"claims": {"scp": [null, 1, ["tools:read"], ""]}, "want": set()},
		"object": {"claims": {"scope": {"a": "tools:read"}}, "want": set()},
	}
	got := {name: scopes |
		some name, c in cases
		scopes := claims.scopes with input.claims as c.claims
	}
	got == {name: c.want | some name, c in cases}
}

test_claims_that_are_no_object if {
	every odd in [null, "admin", ["admin"], 1] {
		claims == {"roles": set(), "scopes": set()} with input.claims as odd
	}
	claims == {"roles": set(), "scopes": set()} with input as {}
}
