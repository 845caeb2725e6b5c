package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// serveCheck prints how the tools stand and fails with a line for every problem.
func serveCheck(ctx context.Context, path string, override func(*gateway.Config), out io.Writer) error {
	r := gateway.Check(ctx, path, os.LookupEnv, override, options(slog.New(slog.DiscardHandler), nil))
	offered, inForce := 0, 0
	for _, s := range r.Standings {
		offered, inForce = offered+s.Offered(), inForce+s.InForce
	}
	if len(r.Problems) == 0 {
		verdict := "all is well"
		if offered > 0 && inForce == 0 {
			verdict = "nothing is in force"
		}
		fmt.Fprintf(out, "%s: %s, %s\n", verdict, draft.Count(r.Issuers, "issuer"), draft.Count(r.Servers, "server"))
	}
	if offered > 0 {
		fmt.Fprintf(out, "%s offered, %d in force\n", draft.Count(offered, "tool"), inForce)
	}
	for _, s := range r.Standings {
		printStanding(out, s)
	}
	if len(r.Unstarted) > 0 {
		fmt.Fprintf(out, "not started, because the configuration has problems: %s\n", strings.Join(r.Unstarted, ", "))
	}
	return strictyaml.Err(r.Problems)
}

// printStanding says which tools of a server are not in force, and why, and of
// which the arguments are not validated.
func printStanding(out io.Writer, s gateway.Standing) {
	drifted := make([]string, len(s.Drifted))
	for i, d := range s.Drifted {
		drifted[i] = fmt.Sprintf("%s: pinned %s, now %s", d.Tool, d.Pinned, d.Current)
	}
	unvalidated := make([]string, len(s.Unvalidated))
	for i, u := range s.Unvalidated {
		unvalidated[i] = shown([]string{u.Tool})[0] + ": " + u.Why
	}
	for _, part := range []struct {
		what  string
		tools []string
	}{
		{"only suggested: look through their entries in the catalogue and remove suggested: true", shown(s.Suggested)},
		{"not in the catalogue: give them an entry", shown(s.Unregistered)},
		{"not as they were when they were pinned: look at what changed, then correct sha256 in the catalogue", drifted},
		{"never shown to clients: " + registry.ToolRule + ", and SERVER__TOOL at most " + strconv.Itoa(registry.MaxExposed), shown(s.Misnamed)},
		{"in the catalogue, but not offered by the server: correct or remove their entries", shown(s.Absent)},
		{"with arguments that nothing validates, because the inputSchema cannot be used: have it mended, or judge them in the policy's call and set validate: {TOOL: false}", unvalidated},
		{"in validate or limits.rate.tools, but not offered by the server: correct or remove the names", shown(s.Strangers)},
	} {
		if len(part.tools) == 0 {
			continue
		}
		fmt.Fprintf(out, "%s: %d %s\n", s.Server, len(part.tools), part.what)
		for _, tool := range part.tools[:min(len(part.tools), mostShown)] {
			fmt.Fprintf(out, "  %s\n", tool)
		}
		if more := len(part.tools) - mostShown; more > 0 {
			fmt.Fprintf(out, "  and %d more\n", more)
		}
	}
}

// mostShown bounds how many tools are named of each kind.
const mostShown = 20

// shown quotes the names that would not read as one.
func shown(names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		if list[i] = name; !registry.ValidTool(name) {
			list[i] = strconv.Quote(name[:min(len(name), registry.MaxTool)])
		}
	}
	return list
}
