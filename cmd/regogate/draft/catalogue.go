package draft

import (
	"context"
	"fmt"
	"strings"

	"github.com/regogate/regogate/gateway/upstream"
)

const catalogueHead = `# What the servers and their tools are. Policies decide by this, never by what a server
# says of itself. Saving the file takes effect at once.
#
#   attributes  the domains that it works in: ai analytics commerce crm database developer hr identity
#               infrastructure marketing messaging payments productivity storage web
#   effect      read < write < destructive < admin (who may do what); execute: code or commands of the caller's
#   data        public < internal < personal < financial < secret: the most sensitive that it handles
#   reach       closed, or external: something leaves to, or comes from, the outside world
#   env owner labels description   may be set as well
#   sha256      the definition that this was said of; with another one the tool counts as drifted
#
# An entry with suggested: true is a guess from words. It is NOT in force: the tool
# counts as unknown until somebody has judged the entry and removed the mark. A tool
# without an entry is unknown as well, and the shipped policies show it to nobody.
#
# At a server, attributes data reach env owner labels say what the server itself is: its
# resources, its prompts and its own words, the most sensitive of them. Without all of
# attributes, data and reach the shipped policies show these to nobody. A tool that
# leaves one of the six out has the server's.
version: 1
`

// catalogueExample stands where there are no servers yet.
const catalogueExample = `#
#   stripe:
#     owner: payments-team
#     env: production
#     attributes: [payments]
#     data: financial
#     reach: external
#     tools:
#       create_refund: {attributes: [payments], effect: destructive, data: financial, reach: external}
servers: {}
`

// serverKeys are what can be said of a server itself, which one that offers no
// tools needs as well, for its resources and prompts.
const serverKeys = `    #owner: who answers for it
    #attributes: [] # with data and reach: what its resources and prompts are; for you to say
    #data: secret
    #reach: external
    env: production # where its calls take effect; the strictest guess
`

// finding is one server with what is suggested for its tools.
type finding struct {
	name    string
	problem string // why there are no tools
	tools   []suggestion
	known   bool // it has an entry already, which these tools belong into
}

// catalogueYAML writes the catalogue. Findings and tools are sorted. With
// accept, suggestions that leave nothing open are written without the mark.
func catalogueYAML(findings []finding, accept bool) []byte {
	var b strings.Builder
	b.WriteString(catalogueHead)
	empty := true
	var servers strings.Builder
	for _, f := range findings {
		if f.problem != "" {
			fmt.Fprintf(&servers, "  # %s: its tools are not known: %s\n", f.name, comment(f.problem))
		}
		if f.problem != "" && len(f.tools) == 0 {
			continue
		}
		empty = false
		fmt.Fprintf(&servers, "  %s:\n", yamlText(f.name))
		if f.known {
			servers.WriteString("    # this server has an entry already: put its tools there\n")
		} else {
			servers.WriteString(serverKeys)
		}
		if len(f.tools) > 0 {
			servers.WriteString("    tools:\n")
		}
		for _, s := range f.tools {
			writeSuggestion(&servers, s, accept)
		}
	}
	if empty {
		return []byte(b.String() + catalogueExample + servers.String())
	}
	return []byte(b.String() + "servers:\n" + servers.String())
}

// Unregistered is a server with tools that have no entry in a catalogue.
type Unregistered struct {
	Server string
	Known  bool // the server itself has one
	Tools  []upstream.Definition
}

// Entries returns a catalogue file with a suggestion for each of the tools, none of
// them in force. The servers are sorted.
func Entries(ctx context.Context, servers []Unregistered) ([]byte, error) {
	shipped, err := shippedTools(ctx)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, s := range servers {
		findings = append(findings, finding{name: s.Server, known: s.Known, tools: suggestions(s.Server, s.Tools, shipped)})
	}
	return catalogueYAML(findings, false), nil
}

func writeSuggestion(b *strings.Builder, s suggestion, accept bool) {
	missing := s.missing()
	why := strings.Join(s.Why, "; ")
	if why == "" {
		why = "nothing in its name"
	}
	fmt.Fprintf(b, "      # from: %s", comment(why))
	if len(missing) > 0 {
		fmt.Fprintf(b, "; for you to say: %s", strings.Join(missing, ", "))
	}
	var fields []string
	if len(s.Attributes) > 0 {
		fields = append(fields, "attributes: "+yamlList(s.Attributes))
	}
	for _, f := range []struct{ name, value string }{{"effect", s.Effect}, {"data", s.Data}, {"reach", s.Reach}, {"description", s.Description}} {
		if f.value != "" {
			fields = append(fields, f.name+": "+yamlText(f.value))
		}
	}
	fields = append(fields, fmt.Sprintf("sha256: %q", s.SHA256))
	if !accept || len(missing) > 0 {
		fields = append(fields, "suggested: true")
	}
	fmt.Fprintf(b, "\n      %s: {%s}\n", yamlText(s.Name), strings.Join(fields, ", "))
}
