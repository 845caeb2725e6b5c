package main

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

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth/mint"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// starter writes the files of a first start.
type starter struct {
	dir, from              string
	force, withKey, accept bool
	wait                   time.Duration
	out                    io.Writer

	vars     *variables
	drafts   []*draft
	findings []finding
}

func initCommand() *cobra.Command {
	s := &starter{vars: &variables{lookup: os.LookupEnv}}
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first configuration, catalogue and policies",
		Long: "Writes " + configName + ", " + catalogueName + " and " + policiesName + "/ into DIR, by default the current directory:\n" +
			"all of them, or none where one exists already.\n\n" +
			"--from takes the mcpServers file of a desktop client, connects to each server in it, and writes\n" +
			"the servers into the configuration and their tools into the catalogue, with attributes that are\n" +
			"guessed from names and hints. They are marked as suggestions and not in force until you remove\n" +
			"the mark. No value of an environment variable, a header or a query is copied: the configuration\n" +
			"refers to environment variables, which init lists.",
		Args: func(cmd *cobra.Command, args []string) error { return noArguments(cmd, args[min(len(args), 1):]) },
		RunE: func(cmd *cobra.Command, args []string) error {
			s.out, s.dir = cmd.OutOrStdout(), "."
			if len(args) > 0 {
				s.dir = args[0]
			}
			if s.accept && s.from == "" {
				return errors.New("regogate init: --accept-suggestions: has no effect without --from: remove it or name a file")
			}
			return s.start(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.from, "from", "", "mcpServers file of a desktop client, to take servers from")
	flags.BoolVar(&s.withKey, "with-key", false, "make a key for trials, "+keyName+", and accept tokens that are signed with it")
	flags.BoolVar(&s.accept, "accept-suggestions", false, "put suggestions that leave nothing open in force at once")
	flags.BoolVar(&s.force, "force", false, "overwrite files that exist")
	flags.DurationVar(&s.wait, "timeout", time.Minute, "how long to wait for the servers of --from")
	return cmd
}

func (s *starter) start(ctx context.Context) error {
	files, err := policyFiles(policies.FS)
	if err != nil {
		return fmt.Errorf("read the shipped policies: %w", err)
	}
	keys, err := s.keys()
	if err != nil {
		return err
	}
	files = append(append([]file{{name: configName, mode: 0o644}, {name: catalogueName, mode: 0o644}}, files...), keys...)
	if err := s.free(files); err != nil {
		return err
	}
	problems, err := s.take(ctx)
	if err != nil {
		return err
	}
	if files[0].data, err = configYAML(s.withKey, s.drafts, problems); err != nil {
		return err
	}
	files[1].data = catalogueYAML(s.findings, s.accept)
	if err := s.free(files); err != nil {
		return err
	}
	if err := place(s.dir, files, s.readable); err != nil {
		return err
	}
	s.report(len(files) - 2 - len(keys))
	return nil
}

func (s *starter) free(files []file) error {
	if s.force {
		return nil
	}
	return free(s.dir, files)
}

// keys makes the key for trials and its key set.
func (s *starter) keys() ([]file, error) {
	if !s.withKey {
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
	return []file{{keyName, private, 0o600}, {keySetName, public, 0o644}}, nil
}

// take takes over the servers of the client's file and looks at them. It
// returns what is wrong with some, by name.
func (s *starter) take(ctx context.Context) (map[string]string, error) {
	if s.from == "" {
		return nil, nil
	}
	clients, notices, err := readClients(s.from)
	if err != nil {
		return nil, err
	}
	for _, n := range notices {
		fmt.Fprintln(s.out, n)
	}
	dir, err := filepath.Abs(filepath.Dir(s.from))
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
	fmt.Fprintf(s.out, "%s: %s, connecting to %d, at most %s\n", s.from, count(len(s.drafts), "server"), len(configs), s.wait)
	survey, err := gateway.Look(ctx, configs, version, s.wait)
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
func (s *starter) find(d *draft, survey *gateway.Survey, shipped map[string]registry.Tool) string {
	if d.out != "" {
		fmt.Fprintf(s.out, "  %s: left out: %s\n", d.told(), comment(s.vars.redact(d.out)))
		return ""
	}
	f := finding{name: d.name}
	trouble := ""
	if server := survey.State.Server(d.name); server != nil {
		trouble = survey.Trouble(*server, d.config)
		f.problem = comment(s.vars.redact(server.Problem))
		f.tools = suggestions(server, shipped)
	} else {
		f.problem = "not tried, for the environment variable " + d.unset + " is not set"
		trouble = f.problem + ": set it and run init again with --force"
	}
	fmt.Fprintf(s.out, "  %s: %s", d.told(), count(len(f.tools), "tool"))
	if trouble != "" {
		fmt.Fprintf(s.out, ": %s", comment(s.vars.redact(trouble)))
	}
	fmt.Fprintln(s.out)
	s.findings = append(s.findings, f)
	return f.problem
}

// suggestions are those for all tools of a server, sorted.
func suggestions(server *upstream.Server, shipped map[string]registry.Tool) (list []suggestion) {
	for _, t := range server.Tools {
		list = append(list, suggest(server.Name, t, shipped))
	}
	slices.SortFunc(list, func(a, b suggestion) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// readable makes sure that what is about to be put in place can be read back.
func (s *starter) readable(staged string) error {
	env := func(name string) (string, bool) {
		if v := s.vars.find(name); v != nil && v.value != "" {
			return v.value, true
		}
		return "unset", true
	}
	_, problems := gateway.Load(filepath.Join(staged, configName), env, nil)
	for _, p := range problems {
		if !slices.ContainsFunc(s.drafts, func(d *draft) bool {
			return d.unset != "" && strings.HasPrefix(p.Path, strictyaml.Field("servers", d.name))
		}) {
			return fmt.Errorf("regogate init: made a configuration that cannot be read: %s: please report this; nothing was written", p.String())
		}
	}
	catalogue, err := registry.OpenFile(filepath.Join(staged, catalogueName), slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("regogate init: made a catalogue that cannot be read: %w: please report this; nothing was written", err)
	}
	return catalogue.Close()
}
