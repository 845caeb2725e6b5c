package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/gateway/policy"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Look at policies",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policyCheckCommand())
	return cmd
}

func policyCheckCommand() *cobra.Command {
	var insecure []string
	cmd := &cobra.Command{
		Use:   "check DIR|BUNDLE...",
		Short: "Say what a gateway would refuse of a policy, and what it would warn of",
		Long: "Parses and compiles a policy as the gateway does: strictly, with the schema of the input and without\n" +
			"built-in functions that reach network or process, with every module and datum under mcp or system.log.\n" +
			"Then proves what allow reads: of a read of input.arguments, which allow never gets, or of\n" +
			"input.request.id, which differs between a list and a call, it tells the place and the rules that lead\n" +
			"there. Signatures of bundles are not verified. With a problem it exits with 1.",
		Example: "  regogate policy check policies/\n  regogate policy check bundle.tar.gz",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s: name a directory or the file of a bundle", cmd.CommandPath())
			}
			problems := 0
			for _, path := range args {
				problems += printReport(cmd, path, policy.Examine(path, policy.Config{InsecureBuiltins: insecure}))
			}
			if problems > 0 {
				return errors.New("a gateway would refuse this")
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&insecure, "insecure-builtins", nil, "built-in functions that the gateway's insecure_builtins turns on")
	return cmd
}

// printReport returns the number of problems.
func printReport(cmd *cobra.Command, path string, r policy.Report) int {
	out := cmd.OutOrStdout()
	for _, p := range r.Problems {
		fmt.Fprintf(out, "error: %s\n", p)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	if len(r.Problems) > 0 {
		return len(r.Problems)
	}
	fmt.Fprintf(out, "%s: revision %s, decision cache %s, allow reads\n", path, r.Revision, r.Cache)
	for _, read := range r.Reads {
		fmt.Fprintf(out, "  %s\n", read)
	}
	return 0
}
