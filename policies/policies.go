// Package policies embeds the policies that regogate ships.
package policies

import "embed"

// FS holds everything to start from: data.json with the grants, the modules
// below mcp, each with its tests, and README.md. The examples are not among
// it. The files never change; paths have no leading directory.
//
//go:embed README.md data.json mcp/authz mcp/lib
var FS embed.FS
