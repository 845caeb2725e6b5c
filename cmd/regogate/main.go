// Command regogate is a policy-as-code gateway for the Model Context Protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/registry/strictyaml"
)

// version is set when a release is linked.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // the Redis client's own lines; what matters of them is in ours
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command line and returns the exit code: 0 when it did what was
// asked, 1 when it did not, unless the command has codes of its own. Why is on
// stderr, one line a problem.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "regogate",
		Short:         "Policy-as-code gateway for the Model Context Protocol",
		Long:          "regogate stands between agents and MCP servers. It proves who the agent is, looks up\nwhat each tool is, and lets Rego policies decide what the agent sees and may call.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Version = version
	root.SetVersionTemplate(versions())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%s: %w: see %[1]s --help", cmd.CommandPath(), err)
	})
	for _, cmd := range []*cobra.Command{serveCommand(), demoCommand(), tokenCommand(), healthCommand(), schemaCommand(), versionCommand()} {
		cmd.Args = noArguments
		root.AddCommand(cmd)
	}
	root.AddCommand(initCommand(), policyCommand(), registryCommand(), bundleCommand(), opaCommand())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(stderr, text)
	}
	var own exitCode
	if errors.As(err, &own) {
		return own.code
	}
	return 1
}

// knownCommand refuses what is no command, with the likely one where there is
// one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near := strictyaml.Nearest(args[0], names); near != "" {
		return fmt.Errorf("%s: unknown command %q: did you mean %s?", cmd.CommandPath(), args[0], near)
	}
	return fmt.Errorf("%s: unknown command %q: see %[1]s --help", cmd.CommandPath(), args[0])
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: unexpected argument %q: see %[1]s --help", cmd.CommandPath(), args[0])
	}
	return nil
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of regogate, OPA and Go",
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprint(cmd.OutOrStdout(), versions())
		},
	}
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the policy input",
		Long: "Prints the JSON schema of what policies are asked. Kept outside their directory, it finds typing\n" +
			"errors in them:\n\n" +
			"  regogate schema > input.json\n" +
			"  regogate opa check --strict --schema input.json policies",
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprint(cmd.OutOrStdout(), policy.Schema())
		},
	}
}
