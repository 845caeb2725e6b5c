package draft

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"
)

// report says what was written and what comes next.
func (s *Starter) report(policies int) {
	at := func(name string) string { return filepath.Join(s.Dir, name) }
	fmt.Fprintf(s.Out, "wrote %s, %s and %s (%s)\n", at(ConfigName), at(CatalogueName), at(PoliciesName), Count(policies, "file"))
	switch {
	case s.kept:
		fmt.Fprintf(s.Out, "kept %s, which signs tokens for trials, and %s: for new ones, remove both first\n", at(KeyName), at(keySetName))
	case s.WithKey:
		fmt.Fprintf(s.Out, "wrote %s, which signs tokens for trials, and %s\n", at(KeyName), at(keySetName))
	}
	s.reportSuggestions(at(CatalogueName))
	s.reportVariables(at(ConfigName))
	flag := ""
	if s.Dir != "." {
		flag = " -c " + at(ConfigName)
	}
	fmt.Fprintf(s.Out, "\nnext:\n")
	s.reportUnreached()
	if !s.WithKey {
		fmt.Fprintf(s.Out, "  fill in your issuer under auth.issuers in %s\n", at(ConfigName))
	}
	if len(s.findings) == 0 {
		fmt.Fprintf(s.Out, "  add your servers under servers in %s, and what their tools are to %s\n", at(ConfigName), at(CatalogueName))
	}
	fmt.Fprintf(s.Out, "  regogate serve --check%s\n  regogate serve%s\n", flag, flag)
	if s.WithKey {
		fmt.Fprintf(s.Out, "  regogate token --key %s --persona developer\n", at(KeyName))
	}
}

// reportUnreached names the servers whose tools could not be read, and says how
// to try again.
func (s *Starter) reportUnreached() {
	var names []string
	for _, f := range s.findings {
		if f.problem != "" && len(f.tools) == 0 {
			names = append(names, f.name)
		}
	}
	if len(names) == 0 {
		return
	}
	again := []string{"regogate init --from", s.From}
	for _, flag := range []struct {
		given bool
		text  string
	}{{s.WithKey, "--with-key"}, {s.Accept, "--accept-suggestions"}, {true, "--force"}, {s.Dir != ".", s.Dir}} {
		if flag.given {
			again = append(again, flag.text)
		}
	}
	fmt.Fprintf(s.Out, "  mend what is said above of %s, and try again before you edit these files:\n    %s\n",
		strings.Join(names, ", "), strings.Join(again, " "))
}

func (s *Starter) reportSuggestions(catalogue string) {
	tools, open := 0, 0
	for _, f := range s.findings {
		for _, t := range f.tools {
			tools++
			if len(t.missing()) > 0 {
				open++
			}
		}
	}
	switch {
	case tools == 0:
	case s.Accept:
		fmt.Fprintf(s.Out, "%s: the suggestions of %s are in force, %d leave something open and are not\n", catalogue, Count(tools-open, "tool"), open)
	default:
		fmt.Fprintf(s.Out, "%s: suggestions for %s, none in force yet: judge them and remove suggested: true (%d leave something open)\n", catalogue, Count(tools, "tool"), open)
	}
}

// reportVariables lists what has to be set, without any value.
func (s *Starter) reportVariables(config string) {
	list := slices.DeleteFunc(slices.Clone(s.vars.list), func(v *variable) bool {
		return len(v.places) == 0 || ownByProcess(v.name)
	})
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b *variable) int { return strings.Compare(a.name, b.name) })
	fmt.Fprintf(s.Out, "\n%s refers to these variables; no value of %s was copied. Set them before you start it:\n", config, s.From)
	width := 0
	for _, v := range list {
		width = max(width, len(v.name))
	}
	for _, v := range list {
		fmt.Fprintf(s.Out, "  export %-*s  # %s%s\n", width+1, v.name+"=", strings.Join(v.places, ", "), s.state(v))
	}
}

// state says where the environment has a variable already.
func (s *Starter) state(v *variable) string {
	switch now, set := s.vars.lookup(v.name); {
	case !set || now == "":
		return ""
	case v.known && now != v.value:
		return " (set here, but to something else)"
	}
	return " (set here)"
}

// shippedTools returns what the catalogue in the binary says, by shippedKey.
func shippedTools(ctx context.Context) (map[string]registry.Tool, error) {
	source, err := registry.OpenFS(catalogue.FS, "shipped", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("read the shipped catalogue: %w", err)
	}
	defer source.Close()
	c, err := source.Load(ctx, registry.Head{})
	if err != nil {
		return nil, fmt.Errorf("read the shipped catalogue: %w", err)
	}
	tools := make(map[string]registry.Tool, len(c.Tools))
	for _, t := range c.Tools {
		tools[shippedKey(t.Server, t.Name)] = t
	}
	return tools, nil
}

// Count is a number of things in words.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
