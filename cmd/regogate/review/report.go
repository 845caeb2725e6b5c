package review

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/diff"
)

// Report is what a comparison of all servers showed.
type Report struct {
	Revision    string       `json:"revision"` // of the registry
	Digest      string       `json:"digest"`
	Compared    []string     `json:"compared"`  // servers
	Troubles    []Trouble    `json:"troubles"`  // servers that could not be compared, or not wholly
	Elsewhere   []string     `json:"elsewhere"` // servers with entries that nobody looked at, being not configured here
	Differences []Difference `json:"differences"`
}

// NewReport compares the live servers with the catalogue.
func NewReport(ctx context.Context, c *registry.Catalogue, kept Definitions, live *Live) (*Report, error) {
	r := &Report{Revision: c.Head.Revision, Digest: c.Head.Digest, Troubles: live.Troubles}
	looked := map[string]bool{}
	for _, s := range live.Servers {
		r.Compared = append(r.Compared, s.Name)
		looked[s.Name] = true
	}
	for _, t := range live.Troubles {
		looked[t.Server] = true
	}
	elsewhere := map[string]bool{}
	for _, t := range c.Tools {
		if !looked[t.Server] {
			elsewhere[t.Server] = true
		}
	}
	r.Elsewhere = slices.Sorted(maps.Keys(elsewhere))
	var err error
	r.Differences, err = Compare(ctx, c, kept, live)
	return r, err
}

// Differs reports whether anything is new, gone or changed.
func (r *Report) Differs() bool {
	return slices.ContainsFunc(r.Differences, func(d Difference) bool {
		return d.Kind == New || d.Kind == Gone || d.Kind == Changed
	})
}

// most bounds how many things of one kind are named.
const most = 100

// Print writes the report for people.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "%s compared with revision %s of the registry\n", draft.Count(len(r.Compared), "server"), r.Revision)
	for _, kind := range []string{New, Gone, Changed, Unpinned, Quarantined} {
		var list []Difference
		for _, d := range r.Differences {
			if d.Kind == kind {
				list = append(list, d)
			}
		}
		if len(list) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%d %s: %s\n", len(list), kind, meaning(kind))
		for i := range list[:min(len(list), most)] {
			list[i].print(out)
		}
		if more := len(list) - most; more > 0 {
			fmt.Fprintf(out, "  and %d more: --json shows all\n", more)
		}
	}
	if len(r.Elsewhere) > 0 {
		names := r.Elsewhere[:min(len(r.Elsewhere), most)]
		fmt.Fprintf(out, "\nnot looked at: %s with entries, but not asked for or not in this configuration: %s\n",
			draft.Count(len(r.Elsewhere), "server"), strings.Join(names, ", "))
	}
	if !r.Differs() && len(r.Troubles) == 0 {
		fmt.Fprintf(out, "\nno difference\n")
	}
}

func meaning(kind string) string {
	switch kind {
	case New:
		return "offered, but not registered; regogate registry discover writes entries"
	case Gone:
		return "registered, but not offered any more; remove the entries"
	case Changed:
		return "not as approved, which the shipped policies deny; regogate registry approve pins what is offered"
	case Unpinned:
		return "a change of these would not be noticed; regogate registry approve pins them"
	}
	return "out of use until regogate registry release"
}

func (d *Difference) print(out io.Writer) {
	fmt.Fprintf(out, "  %s", d.Name())
	if d.Suggested {
		fmt.Fprint(out, " (only suggested)")
	}
	switch d.Kind {
	case Changed:
		fmt.Fprintf(out, ": pinned %s, now %s\n", d.Pinned, d.Current)
		d.printFields(out, "    ")
		return
	case Quarantined:
		fmt.Fprintf(out, ": %s", d.Reason)
		if d.By != "" {
			fmt.Fprintf(out, " (by %s)", d.By)
		}
	}
	fmt.Fprintln(out)
}

// printFields shows what differs, or all of it where there is nothing to compare
// with.
func (d *Difference) printFields(out io.Writer, indent string) {
	if d.Kind == Changed && !d.Unkept {
		diff.PrintFields(out, indent, d.Fields)
		return
	}
	why := "it was never approved"
	if d.Unkept {
		why = "the approved one was not kept"
	}
	fmt.Fprintf(out, "%sall of the definition, for %s:\n", indent, why)
	diff.PrintFields(out, indent, diff.Definitions(nil, d.Definition))
}

// Unregistered returns the tools without an entry in the catalogue, for whoever
// drafts them; servers without such a tool are not in it.
func Unregistered(c *registry.Catalogue, live *Live) (list []draft.Unregistered) {
	tools, servers := map[[2]string]bool{}, map[string]bool{}
	for _, t := range c.Tools {
		tools[[2]string{t.Server, t.Name}] = true
		servers[t.Server] = true
	}
	for _, s := range c.Servers {
		servers[s.Name] = true
	}
	for _, s := range live.Servers {
		new := slices.DeleteFunc(slices.Clone(s.Tools), func(d upstream.Definition) bool {
			return tools[[2]string{s.Name, d.Name}]
		})
		if len(new) > 0 {
			list = append(list, draft.Unregistered{Server: s.Name, Known: servers[s.Name], Tools: new})
		}
	}
	return list
}
