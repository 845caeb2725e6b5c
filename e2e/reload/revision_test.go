package reload_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/regogate/regogate/e2e/depot"
)

// A revision is a number. It is in the bundle twice, as a rule and as data, and
// so is what it shows: the tools of alpha by rules, those of beta by data. An
// answer that mixes the two, or two revisions, is that of no revision.

// bits is how many tools of each server stand for one bit of the number.
const bits = 8

// groups are the kinds of principals, with what they make of a revision: b sees
// the bits in another order, slow sees every other revision alike, fixed all.
var groups = []string{"a", "b", "slow", "fixed"}

// probe is what everybody sees and nobody may call; the refusal names the
// revision.
const probe = "alpha__probe"

func number(group string, revision int) int {
	switch group {
	case "b":
		return revision<<3&0xff | revision>>5
	case "slow":
		return revision / 2
	case "fixed":
		return 0x55
	}
	return revision
}

// shown returns what a group sees of one server.
func shown(group string, revision int) []string {
	tools := []string{}
	for i := range bits {
		if number(group, revision)>>i&1 == 1 {
			tools = append(tools, fmt.Sprintf("t%d", i))
		}
	}
	return tools
}

// visible returns the exposed names that a group sees, sorted.
func visible(group string, revision int) []string {
	names := []string{probe}
	for _, t := range shown(group, revision) {
		names = append(names, "alpha__"+t, "beta__"+t)
	}
	slices.Sort(names)
	return names
}

// changed reports whether a group sees another list.
func changed(group string, before, after int) bool {
	return !slices.Equal(visible(group, before), visible(group, after))
}

// code is what the refusal of the probe gives as its reason.
func code(revision int) string { return fmt.Sprintf("m%d_d%d", revision, revision) }

// name is the revision in the manifest.
func name(revision int) string { return fmt.Sprintf("rev%d", revision) }

// etag is shared by the last broken publication before a revision and the
// revision itself: a server that mends in place.
func etag(revision int) string { return fmt.Sprintf(`"e%d"`, revision) }

// publication makes a good bundle.
func publication(revision int) depot.Publication {
	return depot.Publication{
		Revision: name(revision), ETag: etag(revision), Sign: &depot.Signature{Key: signer(revision)},
		Files: map[string]string{"mcp/authz/authz.rego": module(revision), "data.json": data(revision)},
	}
}

// signer alternates between the two keys that are trusted: keys are rotated.
func signer(revision int) string { return []string{"old", "new"}[revision%2] }

func module(revision int) string {
	var sets strings.Builder
	for _, g := range groups {
		quoted, err := json.Marshal(shown(g, revision))
		if err != nil {
			panic(err) // strings always can
		}
		fmt.Fprintf(&sets, "\t%q: %s,\n", g, quoted)
	}
	return fmt.Sprintf(`package mcp.authz

number := %d

shown := {
%s}

default allow := false

allow if {
	input.tool.server == "alpha"
	input.tool.name in shown[input.claims.group]
}

allow if {
	input.tool.server == "beta"
	input.tool.name in data.mcp.shown[input.claims.group]
}

allow if input.tool.exposed_name == %q

default call := false

call if input.tool.exposed_name != %q

reasons contains sprintf("m%%d_d%%d", [number, data.mcp.number])
`, revision, sets.String(), probe, probe)
}

func data(revision int) string {
	sets := map[string][]string{}
	for _, g := range groups {
		sets[g] = shown(g, revision)
	}
	raw, err := json.Marshal(map[string]any{"mcp": map[string]any{"number": revision, "shown": sets}})
	if err != nil {
		panic(err) // strings and numbers always can
	}
	return string(raw)
}
