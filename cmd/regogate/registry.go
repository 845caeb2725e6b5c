package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/cmd/regogate/review"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"
	"github.com/regogate/regogate/registry/strictyaml"
)

func registryCommand() *cobra.Command {
	r := &registryFlags{}
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Look at the registry and change it: quarantine, pins, catalogues",
		Long: "Works on the registry of a gateway's configuration: a directory of catalogue files, or PostgreSQL.\n" +
			"Gateways take a change over within a second. Of the configuration only registry has to be right,\n" +
			"and for discover, diff and approve, which reach or start the servers, servers.\n\n" +
			"These commands exit with 1 where they did not do what was asked, diff with 1 where there are\n" +
			"differences and with 2 where it could not compare everything.",
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&r.path, "config", "c", draft.ConfigName, "the gateway's configuration file")
	cmd.AddCommand(registryStatusCommand(r), registryQuarantineCommand(r), registryReleaseCommand(r),
		registryDiscoverCommand(r), registryDiffCommand(r), registryApproveCommand(r),
		registryMigrateCommand(r), registrySyncCommand(r), registryHistoryCommand(r), registrySignCommand(r))
	return cmd
}

// registryFlags are those of every command on the registry.
type registryFlags struct{ path string }

// load returns the configuration, and what is wrong with its servers by name.
func (r *registryFlags) load() (*gateway.Config, map[string]string, error) {
	config, faults, problems := gateway.LoadRegistry(r.path, os.LookupEnv)
	return config, faults, strictyaml.Err(problems)
}

// desk is the registry at hand.
type desk struct {
	config *gateway.Config
	faults map[string]string
	store  registry.Store
}

// open opens the configured registry; the caller closes its store.
func (r *registryFlags) open() (*desk, error) {
	config, faults, err := r.load()
	if err != nil {
		return nil, err
	}
	store, err := registry.OpenStore(config.Registry, catalogue.FS, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return &desk{config, faults, store}, nil
}

// catalogue loads what the registry holds now.
func (d *desk) catalogue(ctx context.Context) (*registry.Catalogue, error) {
	head, err := d.store.Head(ctx)
	if err != nil {
		return nil, err
	}
	return d.store.Load(ctx, head)
}

// servers are those that a gateway of the configuration has.
func (d *desk) servers(f *lookFlags) review.Servers {
	return review.Servers{Config: d.config, Faults: d.faults, Version: version, Wait: f.wait}
}

// knows says what is not known of a tool or a server that is named, with the likely
// ones; "" where all is.
func (d *desk) knows(c *registry.Catalogue, server, tool string) string {
	var servers, tools []string
	for name := range d.config.Servers {
		servers = append(servers, name)
	}
	for _, s := range c.Servers {
		servers = append(servers, s.Name)
	}
	for _, t := range c.Tools {
		servers = append(servers, t.Server)
		if t.Server == server {
			tools = append(tools, t.Name)
		}
	}
	switch {
	case !slices.Contains(servers, server):
		return fmt.Sprintf("server %s is neither in the registry nor in the configuration%s", server, review.DidYouMean(server, servers))
	case tool != "" && !slices.Contains(tools, tool):
		return fmt.Sprintf("tool %s of %s is not in the registry%s", tool, server, review.DidYouMean(tool, tools))
	}
	return ""
}

// thing reads the argument SERVER or SERVER/TOOL.
func thing(cmd *cobra.Command, args []string) (server, tool string, err error) {
	if len(args) != 1 {
		return "", "", fmt.Errorf("%s: name one SERVER or SERVER/TOOL: see %[1]s --help", cmd.CommandPath())
	}
	server, tool, slash := strings.Cut(args[0], "/")
	exposed, of, split := registry.SplitExposed(args[0])
	switch {
	case registry.ValidServer(server) && (registry.ValidTool(tool) || !slash):
		return server, tool, nil
	case split:
		return "", "", fmt.Errorf("%s: %s: name it %s/%s", cmd.CommandPath(), args[0], exposed, of)
	case registry.ValidServer(server):
		return "", "", fmt.Errorf("%s: %.80q: %s", cmd.CommandPath(), args[0], registry.ToolRule)
	}
	return "", "", fmt.Errorf("%s: %.80q: %s", cmd.CommandPath(), args[0], registry.ServerRule)
}

// author is the flags of who changes something, and why.
type author struct{ by, note string }

func (a *author) flags(cmd *cobra.Command, note, usage string) {
	cmd.Flags().StringVar(&a.by, "by", "", "who makes the change, for its history (default: the login name)")
	cmd.Flags().StringVar(&a.note, note, "", usage)
}

func (a *author) author() (registry.Author, error) {
	name := a.by
	if name == "" {
		if login, err := user.Current(); err == nil {
			name = login.Username
		}
	}
	if name == "" {
		return registry.Author{}, fmt.Errorf("--by: say who makes the change; the login name is not known")
	}
	return registry.Author{Name: name, Note: a.note}, nil
}

// revision names a head for people.
func revision(h registry.Head) string {
	const short = 12 // digits of a digest that are a revision where the source has no numbers
	if len(h.Revision) == short && strings.HasPrefix(h.Digest, h.Revision) {
		return "revision " + h.Revision
	}
	return fmt.Sprintf("revision %s (digest %.12s)", h.Revision, h.Digest)
}

// exitCode is an error with an exit code of its own. Nothing is printed of an empty
// one.
type exitCode struct {
	code int
	err  error
}

func (e exitCode) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitCode) Unwrap() error { return e.err }
