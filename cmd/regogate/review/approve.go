package review

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// Approval pins what a server offers, after having shown it.
type Approval struct {
	Tool   string // the one; "" is all of the server that changed or are not pinned
	SHA256 string // the digest that the tool must have now; "" is any
	Yes    bool   // do not ask
	By     registry.Author
	In     io.Reader // where answers come from; they are asked for only where it is a terminal
	Out    io.Writer
}

// Store keeps pins and what they are of.
type Store interface {
	Definitions
	// Approve is as that of registry.Store.
	Approve(ctx context.Context, by registry.Author, server, tool, sha256 string, definition []byte) (registry.Head, error)
}

// Run approves tools of the server, one by one. It fails where one that was asked
// for, or any of all, is not approved; those before it are pinned then. It returns
// the catalogue with what it pinned, whatever somebody else made of the registry
// meanwhile; nil where it came to no tool.
func (a *Approval) Run(ctx context.Context, c *registry.Catalogue, store Store, server *upstream.Server) (*registry.Catalogue, error) {
	list, err := a.candidates(ctx, c, store, server)
	if err != nil {
		return nil, err
	}
	approved := registry.Catalogue{Servers: slices.Clone(c.Servers), Tools: slices.Clone(c.Tools), Quarantine: slices.Clone(c.Quarantine)}
	err = a.approve(ctx, list, store, approved.Tools)
	made, e := registry.NewCatalogue("", approved)
	return made, cmp.Or(err, e)
}

// approve approves those of the list, and pins them among the tools.
func (a *Approval) approve(ctx context.Context, list []Difference, store Store, tools []registry.Tool) error {
	in, isFile := a.In.(*os.File)
	terminal := isFile && term.IsTerminal(int(in.Fd()))
	answers := bufio.NewReader(a.In)
	left := 0
	for i := range list {
		d := &list[i]
		a.show(d)
		if !a.Yes && d.Kind != "" {
			if !terminal {
				left++
				continue
			}
			yes, err := a.ask(ctx, answers, d)
			if err != nil {
				return err
			}
			if !yes {
				fmt.Fprintf(a.Out, "%s: left as it is\n", d.Name())
				left++
				continue
			}
		}
		head, err := store.Approve(ctx, a.By, d.Server, d.Tool, d.Current, d.Definition)
		if err != nil {
			return err
		}
		if d.Kind == "" {
			fmt.Fprintf(a.Out, "%s: was pinned to %s already; the definition is kept now\n", d.Name(), d.Current)
			continue
		}
		tools[slices.IndexFunc(tools, d.of)].SHA256 = d.Current
		fmt.Fprintf(a.Out, "%s: pinned to %s as of revision %s\n", d.Name(), d.Current, head.Revision)
	}
	switch {
	case left > 0 && !terminal:
		return errors.New("nothing was approved: standard input is no terminal to ask at: look at what is shown and repeat with --yes")
	case left > 0:
		return fmt.Errorf("%s not approved", draft.Count(left, "tool"))
	}
	return nil
}

// of reports whether the entry is the tool's.
func (d *Difference) of(t registry.Tool) bool { return t.Server == d.Server && t.Name == d.Tool }

func (a *Approval) show(d *Difference) {
	switch d.Kind {
	case Changed:
		fmt.Fprintf(a.Out, "%s: pinned %s, now %s\n", d.Name(), d.Pinned, d.Current)
	case Unpinned:
		fmt.Fprintf(a.Out, "%s: not pinned, now %s\n", d.Name(), d.Current)
	default:
		return // what is approved already is only kept
	}
	d.printFields(a.Out, "  ")
}

// ask fails where the context ends before there is an answer, whose reading goes on
// then.
func (a *Approval) ask(ctx context.Context, answers *bufio.Reader, d *Difference) (bool, error) {
	fmt.Fprintf(a.Out, "pin this definition of %s? [y/N] ", d.Name())
	answer := make(chan string, 1)
	go func() {
		line, _ := answers.ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.Out)
		return false, fmt.Errorf("%s: left as it is, for the answer was interrupted", d.Name())
	case said := <-answer:
		return said == "y" || said == "yes", nil
	}
}

// candidates are the tools to approve. One that is pinned to what is offered is
// among them, without a kind, where its definition was not kept.
func (a *Approval) candidates(ctx context.Context, c *registry.Catalogue, store Store, server *upstream.Server) ([]Difference, error) {
	if a.Tool != "" {
		return a.candidate(ctx, c, store, server)
	}
	var list []Difference
	suggested := 0
	for i := range server.Tools {
		d, err := a.compare(ctx, c, store, server, &server.Tools[i])
		switch {
		case err != nil:
			return nil, err
		case d == nil || d.Kind == New:
		case d.Suggested:
			suggested++
		default:
			list = append(list, *d)
		}
	}
	if suggested > 0 {
		fmt.Fprintf(a.Out, "%s: %s only suggested: judge the entries and remove suggested: true first\n", server.Name, draft.Count(suggested, "tool"))
	}
	if len(list) == 0 {
		fmt.Fprintf(a.Out, "%s: nothing to approve\n", server.Name)
	}
	return list, nil
}

func (a *Approval) candidate(ctx context.Context, c *registry.Catalogue, store Store, server *upstream.Server) ([]Difference, error) {
	name := registry.Name(server.Name, a.Tool)
	offered := server.Tool(a.Tool)
	if offered == nil {
		var names []string
		for _, t := range server.Tools {
			names = append(names, t.Name)
		}
		return nil, fmt.Errorf("approve %s: the server does not offer it%s", name, DidYouMean(a.Tool, names))
	}
	if a.SHA256 != "" && a.SHA256 != offered.SHA256 {
		return nil, fmt.Errorf("approve %s: the server offers %s now, not %.80q: look at the difference again", name, offered.SHA256, a.SHA256)
	}
	d, err := a.compare(ctx, c, store, server, offered)
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		fmt.Fprintf(a.Out, "%s: is pinned to %s already\n", name, offered.SHA256)
		return nil, nil
	case d.Kind == New:
		return nil, fmt.Errorf("approve %s: it is not in the registry: give it an entry first, as regogate registry discover --server %s writes it", name, server.Name)
	case d.Suggested:
		return nil, fmt.Errorf("approve %s: its entry is only suggested: judge it and remove suggested: true first", name)
	}
	return []Difference{*d}, nil
}

// compare returns nil where there is nothing to approve.
func (a *Approval) compare(ctx context.Context, c *registry.Catalogue, store Store, server *upstream.Server, offered *upstream.Definition) (*Difference, error) {
	var entry *registry.Tool
	named := Difference{Server: server.Name, Tool: offered.Name}
	if i := slices.IndexFunc(c.Tools, named.of); i >= 0 {
		entry = &c.Tools[i]
	}
	d, err := CompareTool(ctx, entry, store, server.Name, offered)
	if err != nil || d.Kind != "" || d.Suggested {
		return &d, err
	}
	kept, err := approved(ctx, store, entry)
	if err != nil || kept != nil {
		return nil, err
	}
	return &d, nil
}
