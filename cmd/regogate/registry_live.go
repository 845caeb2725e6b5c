package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/cmd/regogate/review"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/diff"
)

// lookFlags are those of what looks at the servers.
type lookFlags struct {
	server string
	wait   time.Duration
}

func (f *lookFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.server, "server", "", "only this server of the configuration")
	cmd.Flags().DurationVar(&f.wait, "timeout", time.Minute, "how long to wait for the servers")
}

func registryDiscoverCommand(r *registryFlags) *cobra.Command {
	var look lookFlags
	var output string
	var force bool
	cmd := &cobra.Command{
		Use:   "discover",
		Short: "Write catalogue entries for tools that servers offer and the registry lacks",
		Long: "Reaches or starts the servers of the configuration and writes an entry for every tool that has none, with\n" +
			"the digest of its definition and attributes that are guessed from names and hints. The entries are marked\n" +
			"suggested: true and not in force until somebody has judged them and removed the mark. Nothing in the\n" +
			"registry is changed. It exits with 1 where a server could not be looked at; what the others offer is\n" +
			"written all the same.",
		Example: "  regogate registry discover\n  regogate registry discover --server stripe -o registry/stripe.yaml",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := r.open()
			if err != nil {
				return err
			}
			defer d.store.Close()
			if _, err := os.Lstat(output); output != "" && err == nil && !force {
				return fmt.Errorf("%s: exists already: move it away, or overwrite it with --force", output)
			}
			c, err := d.catalogue(cmd.Context())
			if err != nil {
				return err
			}
			live, err := d.servers(&look).Look(cmd.Context(), look.server)
			if err != nil {
				return err
			}
			unregistered := review.Unregistered(c, live)
			tools := 0
			for _, s := range unregistered {
				tools += len(s.Tools)
			}
			if tools == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "nothing to write: every tool that was found has an entry\n")
				return troubled(live)
			}
			if err := d.fits(output, unregistered); err != nil {
				return err
			}
			entries, err := draft.Entries(cmd.Context(), unregistered)
			if err != nil {
				return err
			}
			if err := write(cmd.OutOrStdout(), output, entries, force); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "suggestions for %s of %s, none in force: judge them and remove suggested: true\n",
				draft.Count(tools, "tool"), draft.Count(len(unregistered), "server"))
			return troubled(live)
		},
	}
	look.flags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write (default: standard output)")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file where it exists")
	return cmd
}

// fits fails where a file would break the registry in whose directory it is: a
// server's entry, with all of its tools, is in one file.
func (d *desk) fits(output string, servers []draft.Unregistered) error {
	dir, err := os.Stat(d.config.Registry.Path)
	if output == "" || err != nil {
		return nil
	}
	if there, err := os.Stat(filepath.Dir(output)); err != nil || !os.SameFile(dir, there) {
		return nil
	}
	var known []string
	for _, s := range servers {
		if s.Known {
			known = append(known, s.Server)
		}
	}
	if known == nil {
		return nil
	}
	return fmt.Errorf("%s: the catalogue there has an entry of %s already, and a server's tools are in one file: leave -o out and put what is printed into that entry", output, strings.Join(known, ", "))
}

// troubled fails with a line for every server that could not be looked at.
func troubled(live *review.Live) error {
	var lines []string
	for _, t := range live.Troubles {
		lines = append(lines, t.String())
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// write makes a file; one that is there already only where it may.
func write(stdout io.Writer, path string, data []byte, force bool) error {
	if path == "" {
		_, err := stdout.Write(data)
		return err
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: exists already: move it away, or overwrite it with --force", path)
	}
	if err != nil {
		return fmt.Errorf("--output: %w: name a file that can be written", err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func registryDiffCommand(r *registryFlags) *cobra.Command {
	var look lookFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare what servers offer with what the registry says of it",
		Long: "Reaches or starts the servers of the configuration and says what is new (offered, not registered), gone\n" +
			"(registered, not offered) and changed (offered with another definition than the approved one, with what\n" +
			"differs where the approved one was kept); also what is not pinned and what is in quarantine, which are\n" +
			"no differences.\n\n" +
			"It exits with 0 where nothing is new, gone or changed, with 1 where something is, and with 2 where not\n" +
			"everything could be compared: a server that cannot be reached is told, and its tools are not gone.",
		Example: "  regogate registry diff\n  regogate registry diff --server stripe --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			differs, err := r.diff(cmd, &look, asJSON)
			switch {
			case err != nil:
				return exitCode{2, err}
			case differs:
				return exitCode{code: 1}
			}
			return nil
		},
	}
	look.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON, with nothing left out")
	return cmd
}

func (r *registryFlags) diff(cmd *cobra.Command, look *lookFlags, asJSON bool) (differs bool, err error) {
	d, err := r.open()
	if err != nil {
		return false, err
	}
	defer d.store.Close()
	c, err := d.catalogue(cmd.Context())
	if err != nil {
		return false, err
	}
	live, err := d.servers(look).Look(cmd.Context(), look.server)
	if err != nil {
		return false, err
	}
	report, err := review.NewReport(cmd.Context(), c, d.store, live)
	if err != nil {
		return false, err
	}
	if asJSON {
		encoded, err := json.Marshal(report, json.Deterministic(true), jsontext.WithIndent("  "))
		if err != nil {
			return false, err
		}
		fmt.Fprintln(cmd.OutOrStdout(), diff.Plain(string(encoded)))
	} else {
		report.Print(cmd.OutOrStdout())
	}
	return report.Differs(), troubled(live)
}

func registryApproveCommand(r *registryFlags) *cobra.Command {
	var look lookFlags
	var a author
	var sign signing
	var sha256 string
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "approve SERVER/TOOL | --server SERVER --all",
		Short: "Pin the definition that a server offers now, having seen what changed",
		Long: "Shows what a server offers against what was approved, asks, and pins it: with another definition the tool\n" +
			"counts as drifted, which the shipped policies deny. Where standard input is no terminal nothing is asked\n" +
			"and --yes is needed; --sha256 approves only the definition of that digest, as diff showed it. The entry\n" +
			"has to be in force: one that is only suggested is judged first.\n\n" +
			"A pin is part of what is signed. With --signing-key a registry that is as it was signed is signed again.",
		Example: "  regogate registry approve stripe/create_refund\n" +
			"  regogate registry approve stripe/create_refund --sha256 \"$DIGEST\" --yes --reason 'reviewed'\n" +
			"  regogate registry approve --server stripe --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			approval := &review.Approval{SHA256: sha256, Yes: yes, Out: cmd.OutOrStdout(), In: cmd.InOrStdin()}
			switch {
			case all && (look.server == "" || len(args) > 0):
				return fmt.Errorf("%s: --all: name the server with --server, and no tool", cmd.CommandPath())
			case all && sha256 != "":
				return errors.New("--sha256: is the digest of one tool: name it, without --all")
			case !all && look.server != "":
				return fmt.Errorf("%s: --server: goes with --all; or name one SERVER/TOOL", cmd.CommandPath())
			case !all:
				server, tool, err := thing(cmd, args)
				if err != nil {
					return err
				}
				if tool == "" {
					return fmt.Errorf("%s: %s is a server: name SERVER/TOOL, or --server %[2]s --all", cmd.CommandPath(), server)
				}
				look.server, approval.Tool = server, tool
			}
			return r.approve(cmd, a, &look, approval, &sign)
		},
	}
	look.flags(cmd)
	a.flags(cmd, "reason", "why, for the history")
	cmd.Flags().StringVar(&sha256, "sha256", "", "approve only the definition of this digest")
	cmd.Flags().BoolVar(&all, "all", false, "everything of --server that changed or is not pinned")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	sign.keyFlags(cmd)
	return cmd
}

func (r *registryFlags) approve(cmd *cobra.Command, a author, look *lookFlags, approval *review.Approval, sign *signing) error {
	var err error
	if approval.By, err = a.author(); err != nil {
		return err
	}
	key, _, err := sign.read()
	if err != nil {
		return err
	}
	d, err := r.open()
	if err != nil {
		return err
	}
	defer d.store.Close()
	c, err := d.catalogue(cmd.Context())
	if err != nil {
		return err
	}
	if key != nil {
		if err := d.asSigned(c); err != nil {
			return err
		}
	}
	live, err := d.servers(look).Look(cmd.Context(), look.server)
	if err != nil {
		return err
	}
	if len(live.Servers) == 0 {
		return troubled(live)
	}
	for _, t := range live.Troubles {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", t)
	}
	approved, err := approval.Run(cmd.Context(), c, d.store, &live.Servers[0])
	if approved == nil {
		return err
	}
	return errors.Join(err, r.signAgain(cmd, a, c, approved, key, registry.Claims{ExpiresIn: sign.expires}))
}
