package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/bundles/server"
	"github.com/regogate/regogate/gateway/policy"
)

func bundleServeCommands() []*cobra.Command {
	return []*cobra.Command{bundleServeCommand(), bundleRevisionsCommand(), bundlePinCommand(), bundleUnpinCommand()}
}

// serving is the flags of bundle serve.
type serving struct {
	listen, store, token, cert, key, clientCA string
	bundles, pins, insecureBuiltins           []string
	retain                                    int
	insecureNoAuth                            bool
	sign                                      signing
}

func bundleServeCommand() *cobra.Command {
	s := &serving{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve bundles to gateways, and publish what is saved in policy directories",
		Long: "Serves bundles at /bundles/NAME with ETags and OPA's long polling. A directory, or the file of a bundle,\n" +
			"is watched: saving what makes a good policy publishes a new revision, signed where there is a key; a\n" +
			"broken one is told and not published. What is served is signed anew when the key or the scope is another,\n" +
			"and when half of --expires-in has passed. Revisions are retained in the store, over restarts, for rolling\n" +
			"back with --pin, or with bundle pin while it runs. /status says how the bundles fare, /health whether all\n" +
			"are served. On an address that others can reach it wants a token file or client certificates.",
		Example: "  regogate bundle serve --bundle authz=policies/ --signing-key key.pem --key-id prod\n" +
			"  regogate bundle serve --bundle authz=policies/ --pin authz=v41",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8181", "host:port to listen on")
	f.StringSliceVar(&s.bundles, "bundle", nil, "NAME=DIR of a policy, or NAME=FILE of a bundle; repeatable")
	f.StringVar(&s.store, "store", "bundles.store", "directory for retained revisions")
	f.IntVar(&s.retain, "retain", 10, "revisions to retain of each bundle")
	f.StringSliceVar(&s.pins, "pin", nil, "NAME=REVISION to serve, whatever is published; NAME= ends that")
	f.StringVar(&s.token, "token-file", "", "file with the bearer token that clients must send; read for each request")
	f.StringVar(&s.cert, "tls-cert", "", "certificate chain in PEM, for TLS")
	f.StringVar(&s.key, "tls-key", "", "private key of the certificate in PEM")
	f.StringVar(&s.clientCA, "client-ca", "", "authorities in PEM that client certificates must be from (mTLS)")
	f.BoolVar(&s.insecureNoAuth, "insecure-no-auth", false, "let anybody who reaches the address read the bundles")
	f.StringSliceVar(&s.insecureBuiltins, "insecure-builtins", nil, "built-in functions that the gateway's insecure_builtins turns on")
	s.sign.flags(cmd)
	return cmd
}

// run changes nothing, on disk or else, before everything has been checked.
func (s *serving) run(ctx context.Context) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	config, err := s.config(log)
	if err != nil {
		return err
	}
	transport, err := s.tls()
	if err != nil {
		return err
	}
	if err := s.guarded(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w: choose another address, or end what uses this one", err)
	}
	defer listener.Close()
	if config.Store, err = server.OpenStore(s.store); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	handler, err := server.New(config)
	if err != nil {
		return err
	}
	if transport != nil {
		listener = tls.NewListener(listener, transport)
	}
	web := &http.Server{
		Handler: handler.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving bundles", "address", listener.Addr().String(), "tls", transport != nil, "version", version)
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- handler.Run(running) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	stop()
	err = errors.Join(err, <-ran)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, web.Shutdown(end))
}

// config reads everything that the server needs.
func (s *serving) config(log *slog.Logger) (server.Config, error) {
	c := server.Config{Bundles: map[string]string{}, Pins: map[string]string{}, Retain: s.retain, Log: log}
	if len(s.bundles) == 0 {
		return c, errors.New("--bundle: name at least one bundle, such as --bundle authz=policies/")
	}
	for _, b := range s.bundles {
		name, source, ok := strings.Cut(b, "=")
		if !ok || source == "" || c.Bundles[name] != "" {
			return c, fmt.Errorf("--bundle %s: want NAME=DIR or NAME=FILE, each name once", b)
		}
		c.Bundles[name] = source
	}
	if s.retain < 1 {
		return c, fmt.Errorf("--retain: %d is less than 1", s.retain)
	}
	if s.sign.expires > 0 && s.sign.expires < minExpires {
		return c, fmt.Errorf("--expires-in: %v is too short for what is signed anew after half of it: want %v at least", s.sign.expires, minExpires)
	}
	c.Sign = s.sign.read
	_, _, err := c.Sign()
	if err != nil {
		return c, err
	}
	c.Check = func(source string, body []byte) error {
		report := policy.ExamineBundle(source, body, policy.Config{InsecureBuiltins: s.insecureBuiltins})
		for _, w := range report.Warnings {
			log.Warn("policy", "warning", w.String())
		}
		if len(report.Problems) > 0 {
			return report.Problems
		}
		return nil
	}
	for _, p := range s.pins {
		name, revision, ok := strings.Cut(p, "=")
		if _, twice := c.Pins[name]; !ok || twice || c.Bundles[name] == "" {
			return c, fmt.Errorf("--pin %s: want NAME=REVISION of a bundle that is served, each name once", p)
		}
		c.Pins[name] = revision
	}
	if s.token != "" {
		if c.Token, err = server.OpenToken(s.token); err != nil {
			return c, fmt.Errorf("--token-file: %w", err)
		}
	}
	return c, nil
}

// minExpires leaves gateways time to come for what is signed anew.
const minExpires = time.Minute

// guarded refuses to serve policies to just anybody.
func (s *serving) guarded() error {
	host, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: want host:port, such as 127.0.0.1:8181", s.listen)
	}
	addr, _ := netip.ParseAddr(host)
	if host == "localhost" || addr.IsLoopback() || s.token != "" || s.clientCA != "" || s.insecureNoAuth {
		return nil
	}
	return fmt.Errorf("--listen %s: others can reach this: give --token-file or --client-ca, or say --insecure-no-auth", s.listen)
}

// tls is nil without a certificate. Certificate and authorities are read again for
// each connection, so that they can be renewed.
func (s *serving) tls() (*tls.Config, error) {
	if s.cert == "" && s.key == "" {
		if s.clientCA != "" {
			return nil, errors.New("--client-ca: needs --tls-cert and --tls-key")
		}
		return nil, nil
	}
	current := func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		if s.clientCA != "" {
			text, err := os.ReadFile(s.clientCA)
			if err != nil {
				return nil, fmt.Errorf("--client-ca: %w", err)
			}
			c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
			if !c.ClientCAs.AppendCertsFromPEM(text) {
				return nil, fmt.Errorf("--client-ca: %s holds no certificate in PEM", s.clientCA)
			}
		}
		return c, nil
	}
	first, err := current()
	if err != nil {
		return nil, err
	}
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return current() }
	return first, nil
}

// storeFlag opens the store that a command works on.
func storeFlag(cmd *cobra.Command) func() (*server.Store, error) {
	dir := cmd.Flags().String("store", "bundles.store", "directory of retained revisions")
	return func() (*server.Store, error) {
		if _, err := os.Stat(*dir); err != nil {
			return nil, fmt.Errorf("--store: %w", err)
		}
		return server.OpenStore(*dir)
	}
}

func bundleRevisionsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "revisions", Short: "List the revisions that a store retains, and which is pinned", Args: noArguments}
	open := storeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := open()
		if err != nil {
			return err
		}
		names, err := store.Names()
		for _, name := range names {
			err = errors.Join(err, printRevisions(cmd.OutOrStdout(), store, name))
		}
		return err
	}
	return cmd
}

func printRevisions(out io.Writer, store *server.Store, name string) error {
	list, err := store.Revisions(name)
	if err != nil {
		return err
	}
	pin, err := store.Pinned(name)
	if err != nil {
		return err
	}
	pinned := -1 // of several with one name the newest
	for i, r := range list {
		if r.Revision == pin {
			pinned = i
		}
	}
	for i, r := range list {
		mark := ""
		if i == pinned {
			mark = " pinned"
		}
		fmt.Fprintf(out, "%s %s %s %d bytes%s\n", name, r.Revision, r.Published.Format(time.RFC3339), r.Size, mark)
	}
	return nil
}

func bundlePinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pin NAME REVISION", Short: "Serve a retained revision, whatever is published",
		Long:    "Takes effect within a second, also while bundle serve runs on the store.",
		Example: "  regogate bundle pin authz v41 --store bundles.store",
	}
	open := storeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 || args[1] == "" {
			return fmt.Errorf("%s: name a bundle and a revision: see %[1]s --help", cmd.CommandPath())
		}
		store, err := open()
		if err != nil {
			return err
		}
		return store.Pin(args[0], args[1])
	}
	return cmd
}

func bundleUnpinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "unpin NAME", Short: "Serve the newest revision again",
		Long: "Takes effect within a second, also while bundle serve runs on the store.",
	}
	open := storeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := only(cmd, args, "bundle")
		if err != nil {
			return err
		}
		store, err := open()
		if err != nil {
			return err
		}
		names, err := store.Names()
		if err == nil && !slices.Contains(names, name) {
			err = fmt.Errorf("the store has no bundle %q: it has %s", name, cmp.Or(strings.Join(names, ", "), "none"))
		}
		if err != nil {
			return err
		}
		return store.Unpin(name)
	}
	return cmd
}
