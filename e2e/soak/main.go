// Command soak has many clients use the gateway for long, in front of servers
// that fail in every way, and looks for answers that go astray, requests that
// hang and whatever grows. README.md says what it does and what counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role, os.Args[1:]))
	}
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// play is what this program does as one of its own processes. An interrupt is
// for the first of them, which ends the others.
func play(role string, args []string) int {
	signal.Ignore(os.Interrupt)
	if role == roleServer {
		seed, _ := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
		serveStdio(os.Stdin, os.Stdout, seed^uint64(os.Getpid()))
		return 0
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "soak: the gateway needs a configuration")
		return 2
	}
	if err := serveGateway(context.Background(), args[0], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	return 0
}

func readOptions(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.sessions, "sessions", 200, "clients at once")
	flags.IntVar(&o.principals, "principals", 0, "who share them (default one for 8 sessions)")
	flags.DurationVar(&o.length, "for", 10*time.Minute, "how long the clients stay")
	flags.DurationVar(&o.pace, "pace", 2*time.Second, "mean time between two requests of one client")
	flags.DurationVar(&o.callWait, "call-timeout", 5*time.Second, "the gateway's bound of one call")
	flags.DurationVar(&o.idle, "idle", time.Minute, "when sessions end that nobody uses")
	flags.DurationVar(&o.fate, "fate", 20*time.Second, "mean time between two misfortunes of one server")
	flags.DurationVar(&o.every, "every", 5*time.Second, "time between two looks at the gateway")
	flags.Uint64Var(&o.seed, "seed", 1, "of everything that is left to chance")
	flags.BoolVar(&o.polite, "polite", false, "every session is ended by its client; else some are left behind")
	flags.StringVar(&o.keep, "keep", "", "directory for the gateway's log and stacks (default none)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.sessions < 1 || o.principals < 0 {
		return o, errors.New("-sessions must be at least 1, and -principals not negative")
	}
	for _, d := range []time.Duration{o.length, o.pace, o.callWait, o.idle, o.fate, o.every} {
		if d <= 0 {
			return o, errors.New("times must be more than 0")
		}
	}
	o.settled = max(o.idle, leastIdle) + 2*sweep
	if o.principals == 0 {
		o.principals = max(1, o.sessions/8)
	}
	return o, nil
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := readOptions(args, stderr)
	if err != nil {
		return err
	}
	r, err := soak(ctx, o, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil {
		return err
	}
	return errors.Join(r.write(stdout), r.clean())
}
