package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy"
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
		Long: "Runs the gateway that the configuration describes, until SIGINT or SIGTERM. With --check it\n" +
			"starts nothing: it validates the configuration, reads catalogue and policies, fetches keys,\n" +
			"reaches every server, and lists all problems at once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := load(path, listen)
			if err != nil {
				return err
			}
			if check {
				return serveCheck(cmd.Context(), config, cmd.OutOrStdout())
			}
			return serve(cmd.Context(), config, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "regogate.yaml", "configuration file")
	cmd.Flags().StringVar(&listen, "listen", "", "host:port of the listener, instead of the configuration's (also REGOGATE_LISTEN)")
	cmd.Flags().BoolVar(&check, "check", false, "validate everything, list every problem and exit")
	return cmd
}

// load reads the configuration. A flag wins over the environment, that over
// the file.
func load(path, listen string) (*gateway.Config, error) {
	config, problems := gateway.Load(path, os.LookupEnv, func(c *gateway.Config) {
		if env := os.Getenv("REGOGATE_LISTEN"); env != "" {
			c.Listen = env
		}
		if listen != "" {
			c.Listen = listen
		}
	})
	if err := strictyaml.Err(problems); err != nil {
		return nil, err
	}
	return config, nil
}

func serveCheck(ctx context.Context, config *gateway.Config, out io.Writer) error {
	problems := gateway.Check(ctx, config, options(slog.New(slog.DiscardHandler), nil))
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	fmt.Fprintf(out, "all is well: %d servers, %d issuers\n", len(config.Servers), len(config.Auth.Issuers))
	return nil
}

func options(log *slog.Logger, records policy.Recorder) gateway.Options {
	return gateway.Options{Version: version, Log: log, Policies: policies.FS, Catalogue: catalogue.FS, Records: records}
}

func serve(ctx context.Context, config *gateway.Config, stdout io.Writer) error {
	log := config.Log.Logger(os.Stderr)
	sink, err := recordSink(config.DecisionLog, stdout)
	if err != nil {
		return fmt.Errorf("decision_log.file: %w", err)
	}
	records := policy.NewLog(sink, log)
	err = listenAndRun(ctx, config, log, records)
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	return errors.Join(err, records.Close(flush), sink.Close())
}

// flushTimeout is how long the last decision records have to be written.
const flushTimeout = 10 * time.Second

func listenAndRun(ctx context.Context, config *gateway.Config, log *slog.Logger, records policy.Recorder) error {
	g, err := gateway.New(ctx, *config, options(log, records))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), g.Close())
	}
	log.Info("serving", "address", listener.Addr().String(), "public_url", config.PublicURL, "version", version)
	return g.Run(ctx, listener)
}

// recordSink opens where decision records go.
func recordSink(c gateway.DecisionLog, stdout io.Writer) (io.WriteCloser, error) {
	switch c.File {
	case "":
		return nopCloser{io.Discard}, nil
	case "-":
		return nopCloser{stdout}, nil
	}
	return policy.OpenLogFile(c.File)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
