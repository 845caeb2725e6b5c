// Command regogate is a policy-as-code gateway for the Model Context Protocol.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set when a release is linked.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command line and returns the exit code: 0 when it did what was
// asked, 1 when it did not. Why is on stderr, one line a problem.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "regogate",
		Short:         "Policy-as-code gateway for the Model Context Protocol",
		Long:          "regogate stands between agents and MCP servers. It proves who the agent is, looks up\nwhat each tool is, and lets Rego policies decide what the agent sees and may call.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(serveCommand(), demoCommand(), tokenCommand(), versionCommand(), opaCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of regogate, OPA and Go",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "regogate %s\nOPA %s\n%s\n", version, opaVersion(), goVersion())
		},
	}
}
