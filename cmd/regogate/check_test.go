package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/regogate/regogate/gateway"
)

// TestStandingsAreBounded: a server's own text neither floods the terminal nor
// says anything to it.
func TestStandingsAreBounded(t *testing.T) {
	s := gateway.Standing{Server: "s", Misnamed: []string{"a\x1b[2J\nb", strings.Repeat("x", 200)}}
	for i := range mostShown + 3 {
		s.Unregistered = append(s.Unregistered, fmt.Sprintf("t%02d", i))
	}
	s.Unvalidated = []gateway.Unvalidated{{Tool: "a\x1b", Why: "not valid JSON"}, {Tool: "pay", Why: "there is none"}}
	s.Strangers = []string{"gone"}
	for range mostShown {
		s.Absent = append(s.Absent, "u")
	}
	var want strings.Builder
	want.WriteString("s: 23 not in the catalogue: give them an entry\n")
	for i := range mostShown {
		fmt.Fprintf(&want, "  t%02d\n", i)
	}
	want.WriteString("  and 3 more\n")
	want.WriteString("s: 2 never shown to clients: a tool's name is 1 to 128 of A-Z a-z 0-9 . - _, and SERVER__TOOL at most 128\n")
	want.WriteString(`  "a\x1b[2J\nb"` + "\n" + `  "` + strings.Repeat("x", 128) + "\"\n")
	want.WriteString("s: 20 in the catalogue, but not offered by the server: correct or remove their entries\n" + strings.Repeat("  u\n", mostShown))
	want.WriteString("s: 2 with arguments that nothing validates, because the inputSchema cannot be used: have it mended, " +
		"or judge them in the policy's call and set validate: {TOOL: false}\n  \"a\\x1b\": not valid JSON\n  pay: there is none\n")
	want.WriteString("s: 1 in validate or limits.rate.tools, but not offered by the server: correct or remove the names\n  gone\n")
	var got strings.Builder
	printStanding(&got, s)
	if got.String() != want.String() {
		t.Errorf("printed\n%s\nwant\n%s", &got, &want)
	}
}
