package world

import (
	"fmt"
	"slices"
	"strings"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry"
)

// Personas are the kinds of agents of the demonstration. Each has the role of
// its own name, whose grant is in the shipped policies' data.json.
func Personas() []string { return []string{"payments", "developer", "support", "analyst", "admin"} }

// Claims returns the claims of a persona's token that say who it is.
func Claims(persona string) (map[string]any, error) {
	if !slices.Contains(Personas(), persona) {
		return nil, fmt.Errorf("unknown persona %q: want one of %s", persona, strings.Join(Personas(), ", "))
	}
	return map[string]any{"sub": persona + "-agent", "roles": []string{persona}}, nil
}

// Definition is the definition that the world's servers give of a tool: its
// name, its catalogue description and a schema that takes anything.
func Definition(t registry.Tool) []byte {
	return object(
		"name", mcp.String(t.Name),
		"description", mcp.String(t.Description),
		"inputSchema", `{"type":"object"}`,
	)
}
