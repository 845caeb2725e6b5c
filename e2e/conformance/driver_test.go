package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// The suite starts a client anew for each scenario. Where the client is to come
// through the gateway, that is this test binary with these variables.
const (
	driverVariable   = "REGOGATE_CONFORMANCE_GATEWAY"  // path of regogate
	clientVariable   = "REGOGATE_CONFORMANCE_CLIENT"   // path of the Go SDK's client
	policiesVariable = "REGOGATE_CONFORMANCE_POLICIES" // directory
)

// driverTimeout is shorter than the suite's own, so that the log gets written.
const driverTimeout = 25 * time.Second

// drive starts a gateway in front of the server whose URL is the last argument
// and runs the Go SDK's client against the gateway. It returns the client's exit
// status. The gateway's log goes to standard error, which the suite keeps.
func drive(ctx context.Context, binary string, args []string) int {
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	if err := through(ctx, binary, args[len(args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
			return exit.ExitCode()
		}
		return 1
	}
	return 0
}

func through(ctx context.Context, binary, target string) error {
	dir, err := os.MkdirTemp("", "regogate-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g, err := open(context.WithoutCancel(ctx), binary, dir, os.Getenv(policiesVariable), target, "auto")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Getenv(clientVariable), g.URL)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.WaitDelay = time.Second
	err = errors.Join(cmd.Run(), g.stop())
	fmt.Fprintf(os.Stderr, "log of the gateway:\n%s", g.text())
	return err
}
