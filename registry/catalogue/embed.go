// Package catalogue holds the catalogue that regogate ships: what we say of
// 507 tools of 24 public MCP servers. README.md beside this file says what the
// labels mean and by which rules they were given.
package catalogue

import "embed"

// FS holds one YAML file per server at its root, named after the server, each
// in the format of the registry's file source. It is read-only and safe for
// concurrent use.
//
//go:embed *.yaml
var FS embed.FS
