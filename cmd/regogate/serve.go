package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry/catalogue"
	"github.com/regogate/regogate/registry/strictyaml"
)

func serveCommand() *cobra.Command {
	var path, listen string
	var check bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Long: "Runs the gateway that the configuration describes, until SIGINT or SIGTERM.\n\n" +
			"With --check it does not serve: it validates the configuration, reads catalogue and policies,\n" +
			"fetches keys, reaches or starts every server once, and lists all problems. Where there is one it\n" +
			"exits with 1. Tools that are not in force are listed, too, and are no problem: they are denied.\n" +
			"So are tools whose arguments cannot be validated, and names under servers.NAME.validate that the\n" +
			"server does not offer.\n" +
			"An address in use is one; beside a running gateway check with --listen 127.0.0.1:0.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			override := listenOn(listen)
			if check {
				return serveCheck(cmd.Context(), path, override, cmd.OutOrStdout())
			}
			config, problems := gateway.Load(path, os.LookupEnv, override)
			if err := strictyaml.Err(problems); err != nil {
				return err
			}
			return serve(cmd.Context(), config, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", draft.ConfigName, "configuration file")
	cmd.Flags().StringVar(&listen, "listen", "", "host:port of the listener, instead of the configuration's (also REGOGATE_LISTEN)")
	cmd.Flags().BoolVar(&check, "check", false, "validate everything, list every problem and exit")
	return cmd
}

// listenOn changes where a configuration listens. A flag wins over the
// environment, that over the file.
func listenOn(flag string) func(*gateway.Config) {
	return func(c *gateway.Config) {
		if env := os.Getenv("REGOGATE_LISTEN"); env != "" {
			c.Listen = env
		}
		if flag != "" {
			c.Listen = flag
		}
	}
}

func options(log *slog.Logger, records decisionlog.Recorder) gateway.Options {
	return gateway.Options{Version: version, Log: log, Policies: policies.FS, Catalogue: catalogue.FS, Records: records}
}

func serve(ctx context.Context, config *gateway.Config, stdout io.Writer) error {
	// Whoever reads the records or the log may go: writing fails then, and does
	// not end the process.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	log, level := config.Log.Logger(os.Stderr)
	records, err := gateway.OpenDecisions(config, version, stdout, log)
	if err != nil {
		return err
	}
	err = listenAndRun(ctx, config, log, level, records)
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	return errors.Join(err, records.Close(flush))
}

// flushTimeout is how long the last decision records have to be written.
const flushTimeout = 10 * time.Second

func listenAndRun(ctx context.Context, config *gateway.Config, log *slog.Logger, level *slog.LevelVar, records decisionlog.Recorder) error {
	o := options(log, records)
	o.Level = level
	g, err := gateway.New(ctx, *config, o)
	if err != nil {
		return fmt.Errorf("%w\nregogate serve --check lists everything that is wrong", err)
	}
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w: choose another address, or end what uses this one", err), g.Close())
	}
	log.Info("serving", "address", listener.Addr().String(), "public_url", config.PublicURL, "version", version)
	return g.Run(ctx, listener)
}
