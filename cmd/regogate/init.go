package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/cmd/regogate/draft"
)

func initCommand() *cobra.Command {
	s := &draft.Starter{Version: version}
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first configuration, catalogue and policies",
		Long: "Writes " + draft.ConfigName + ", " + draft.CatalogueName + " and " + draft.PoliciesName + "/ into DIR, by default the current directory:\n" +
			"all of them, or none where one exists already.\n\n" +
			"--from takes the mcpServers file of a desktop client, connects to each server in it, and writes\n" +
			"the servers into the configuration and their tools into the catalogue, with attributes that are\n" +
			"guessed from names and hints. They are marked as suggestions and not in force until you remove\n" +
			"the mark. No value of an environment variable, a header or a query is copied: the configuration\n" +
			"refers to environment variables, which init lists.",
		Args: func(cmd *cobra.Command, args []string) error { return noArguments(cmd, args[min(len(args), 1):]) },
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Out, s.Dir = cmd.OutOrStdout(), "."
			if len(args) > 0 {
				s.Dir = args[0]
			}
			if s.Accept && s.From == "" {
				return errors.New("regogate init: --accept-suggestions: has no effect without --from: remove it or name a file")
			}
			return s.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.From, "from", "", "mcpServers file of a desktop client, to take servers from")
	flags.BoolVar(&s.WithKey, "with-key", false, "make a key for trials, "+draft.KeyName+", and accept tokens that are signed with it")
	flags.BoolVar(&s.Accept, "accept-suggestions", false, "put suggestions that leave nothing open in force at once")
	flags.BoolVar(&s.Force, "force", false, "overwrite files that exist")
	flags.DurationVar(&s.Wait, "timeout", time.Minute, "how long to wait for the servers of --from")
	return cmd
}
