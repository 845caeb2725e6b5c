package mcp.authz

allow := true
