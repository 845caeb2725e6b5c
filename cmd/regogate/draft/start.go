// Package draft writes a first configuration, catalogue and policies, from
// nothing or from the servers of a desktop client, whose tools it labels with
// suggestions.
package draft

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth/mint"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Starter writes the files of a first start.
type Starter struct {
	Dir     string        // where the files go
	From    string        // mcpServers file of a desktop client; empty for none
	Force   bool          // overwrite what exists
	WithKey bool          // make a key for trials, and accept its tokens
	Accept  bool          // put suggestions that leave nothing open in force
	Wait    time.Duration // for the servers of From
	Out     io.Writer     // what was done, for people
	Version string        // of the program, which servers are told

	vars     *variables
	drafts   []*draft
	findings []finding
	kept     bool // the key and the key set that were there already
}

// Run writes all files, or none where one of them exists already or something
// is wrong; the error has a line for each problem.
func (s *Starter) Run(ctx context.Context) error {
	s.vars = &variables{lookup: os.LookupEnv}
	files, err := policyFiles(policies.FS)
	if err != nil {
		return fmt.Errorf("read the shipped policies: %w", err)
	}
	keys, err := s.keys()
	if err != nil {
		return err
	}
	files = append(append([]file{{name: ConfigName, mode: 0o644}, {name: CatalogueName, mode: 0o644}}, files...), keys...)
	if err := s.free(files); err != nil {
		return err
	}
	problems, err := s.take(ctx)
	if err != nil {
		return err
	}
	if files[0].data, err = configYAML(s.WithKey, s.drafts, problems); err != nil {
		return err
	}
	files[1].data = catalogueYAML(s.findings, s.Accept)
	if err := s.free(files); err != nil {
		return err
	}
	if err := place(s.Dir, files, s.readable); err != nil {
		return err
	}
	s.report(len(files) - 2 - len(keys))
	return nil
}

func (s *Starter) free(files []file) error {
	if s.Force {
		return nil
	}
	return free(s.Dir, files)
}

// keys makes the key for trials and its key set. A pair that is there already
// is kept, for there are tokens that it signed.
func (s *Starter) keys() ([]file, error) {
	if !s.WithKey {
		return nil, nil
	}
	if s.kept = s.Force && s.has(KeyName) && s.has(keySetName); s.kept {
		return nil, nil
	}
	signer, err := mint.Generate("ES256")
	if err != nil {
		return nil, err
	}
	private, err := signer.PEM()
	if err != nil {
		return nil, err
	}
	public, err := mint.KeySet(signer)
	if err != nil {
		return nil, err
	}
	return []file{{KeyName, private, 0o600}, {keySetName, public, 0o644}}, nil
}

func (s *Starter) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.Dir, name))
	return err == nil
}

// take takes over the servers of the client's file and looks at them. It
// returns what is wrong with some, by name.
func (s *Starter) take(ctx context.Context) (map[string]string, error) {
	if s.From == "" {
		return nil, nil
	}
	clients, notices, err := readClients(s.From)
	if err != nil {
		return nil, err
	}
	for _, n := range notices {
		fmt.Fprintln(s.Out, n)
	}
	dir, err := filepath.Abs(filepath.Dir(s.From))
	if err != nil {
		return nil, err
	}
	s.drafts = drafts(clients, s.vars, dir)
	configs := map[string]upstream.Config{}
	for _, d := range s.drafts {
		if d.out == "" && d.unset == "" {
			configs[d.name] = d.config
		}
	}
	fmt.Fprintf(s.Out, "%s: %s, connecting to %d, at most %s\n", s.From, Count(len(s.drafts), "server"), len(configs), s.Wait)
	survey, err := gateway.Look(ctx, configs, s.Version, s.Wait)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errors.New("regogate init: interrupted: nothing was written")
	}
	shipped, err := shippedTools(ctx)
	if err != nil {
		return nil, err
	}
	problems := map[string]string{}
	for _, d := range s.drafts {
		problems[d.name] = s.find(d, survey, shipped)
	}
	return problems, nil
}

// find notes what the survey shows of a server, prints a line of it and returns
// what is wrong. The server's last words are for the terminal only: they can
// hold parts of a value that nobody would recognise.
func (s *Starter) find(d *draft, survey *gateway.Survey, shipped map[string]registry.Tool) string {
	if d.out != "" {
		fmt.Fprintf(s.Out, "  %s: left out: %s\n", d.told(), comment(s.vars.redact(d.out)))
		return ""
	}
	f := finding{name: d.name}
	trouble := ""
	if server := survey.State.Server(d.name); server != nil {
		trouble = survey.Trouble(*server, d.config)
		f.problem = comment(s.vars.redact(server.Problem))
		f.tools = suggestions(server.Name, server.Tools, shipped)
	} else {
		f.problem = "not tried, for the environment variable " + d.unset + " is not set"
		trouble = f.problem + ": set it and run init again with --force"
	}
	fmt.Fprintf(s.Out, "  %s: %s", d.told(), Count(len(f.tools), "tool"))
	if trouble != "" {
		fmt.Fprintf(s.Out, ": %s", comment(s.vars.redact(trouble)))
	}
	fmt.Fprintln(s.Out)
	s.findings = append(s.findings, f)
	return f.problem
}

// suggestions are those for all tools of a server, sorted.
func suggestions(server string, tools []upstream.Definition, shipped map[string]registry.Tool) (list []suggestion) {
	for _, t := range tools {
		list = append(list, suggest(server, t, shipped))
	}
	slices.SortFunc(list, func(a, b suggestion) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// readable makes sure that what is about to be put in place can be read back.
func (s *Starter) readable(staged string) error {
	env := func(name string) (string, bool) {
		if v := s.vars.find(name); v != nil && v.value != "" {
			return v.value, true
		}
		return "unset", true
	}
	_, problems := gateway.Load(filepath.Join(staged, ConfigName), env, nil)
	for _, p := range problems {
		if !slices.ContainsFunc(s.drafts, func(d *draft) bool {
			return d.unset != "" && strings.HasPrefix(p.Path, strictyaml.Field("servers", d.name))
		}) {
			return fmt.Errorf("regogate init: made a configuration that cannot be read: %s: please report this; nothing was written", p.String())
		}
	}
	catalogue, err := registry.OpenFile(filepath.Join(staged, RegistryName), slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("regogate init: made a catalogue that cannot be read: %w: please report this; nothing was written", err)
	}
	return catalogue.Close()
}
