package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/auth/mint"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"
)

// demoParts are the demo's parts one by one, for a deployment of several
// processes such as that of docker-compose.yml.
func demoParts() []*cobra.Command {
	return []*cobra.Command{demoServerCommand(), demoIssuerCommand(), demoTryCommand()}
}

func demoServerCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "server NAME",
		Short: "Run one of the demo's MCP servers alone",
		Long: "Serves the tools that the shipped catalogue has of a server at /mcp. What was called is at /calls, until a\n" +
			"DELETE there. Whoever reaches it may call everything: it is there to show what a gateway lets through.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := only(cmd, args, "NAME")
			if err != nil {
				return err
			}
			tools, err := demoTools([]string{name})
			if err != nil {
				return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
			}
			s := &world.Server{Name: name}
			for _, t := range tools {
				s.Tools = append(s.Tools, world.Definition(t))
			}
			mux := http.NewServeMux()
			mux.Handle("/mcp", s)
			mux.HandleFunc("/calls", s.ServeLedger)
			return demoListen(cmd.Context(), listen, mux, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8090", "host:port to listen on")
	return cmd
}

func demoIssuerCommand() *cobra.Command {
	var listen, key string
	cmd := &cobra.Command{
		Use:   "issuer",
		Short: "Serve the key set that verifies the demo's tokens alone",
		Long: "Serves the public key of --key as a key set at /jwks. The tokens themselves are made by\n" +
			"regogate token --key with the same key.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signer, err := demoSigner(key)
			if err != nil {
				return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
			}
			keys, err := mint.KeySet(signer)
			if err != nil {
				return err
			}
			mux := http.NewServeMux()
			mux.HandleFunc("GET /jwks", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/jwk-set+json")
				_, _ = w.Write(keys) // whoever asked may have gone
			})
			return demoListen(cmd.Context(), listen, mux, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8091", "host:port to listen on")
	cmd.Flags().StringVar(&key, "key", "", "PEM file of the private key (PKCS #8: RSA, P-256 or Ed25519)")
	return cmd
}

// demoSigner opens the key and makes none: who signs and who verifies have to
// have the same.
func demoSigner(key string) (*mint.Signer, error) {
	if key == "" {
		return nil, errors.New("--key: is missing: name the PEM file of the key that signs the tokens")
	}
	text, err := os.ReadFile(key)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	signer, err := mint.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--key: %s: %w", key, err)
	}
	return signer, nil
}

func demoTryCommand() *cobra.Command {
	var url, key, dir string
	var servers []string
	cmd := &cobra.Command{
		Use:   "try",
		Short: "Let every persona try every tool through a gateway, and see what arrived",
		Long: "Does what demo --check does with a gateway that runs elsewhere: every persona lists the tools and calls\n" +
			"each tool of the servers, and what it saw and what arrived there has to be what the policy says. Prints one\n" +
			"JSON object. Nobody else may use the servers meanwhile.",
		Example: "  regogate demo try --url http://127.0.0.1:8080/mcp --key issuer.pem --server stripe=http://127.0.0.1:8090/calls",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			trial, err := newTrial(url, key, dir, servers)
			if err != nil {
				return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
			}
			return demoCheck(cmd.Context(), trial.Try, len(trial.Tools), len(servers), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:8080/mcp", "of the gateway")
	cmd.Flags().StringVar(&key, "key", "", "PEM file of the private key that signs the tokens")
	cmd.Flags().StringVar(&dir, "policies", "", "directory of the policies in force; the shipped ones without it")
	cmd.Flags().StringArrayVar(&servers, "server", nil, "NAME=URL of what was called at a server of demo server; repeatable, one for each")
	return cmd
}

func newTrial(url, key, dir string, servers []string) (*world.Trial, error) {
	signer, err := demoSigner(key)
	if err != nil {
		return nil, err
	}
	t := &world.Trial{Policies: policies.FS}
	if dir != "" {
		t.Policies = os.DirFS(dir)
	}
	var names []string
	for _, s := range servers {
		name, at, ok := strings.Cut(s, "=")
		if !ok || slices.Contains(names, name) {
			return nil, fmt.Errorf("--server %s: want NAME=URL, each name once", s)
		}
		names, t.Ledgers = append(names, name), append(t.Ledgers, world.RemoteLedger(at))
	}
	if len(names) == 0 {
		return nil, errors.New("--server: name every server behind the gateway, such as --server stripe=http://127.0.0.1:8090/calls")
	}
	if t.Tools, err = demoTools(names); err != nil {
		return nil, err
	}
	t.Client = func(persona string) (*world.Client, error) {
		claims, err := world.Claims(persona)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		claims["iss"], claims["aud"] = world.Issuer, world.Audience
		claims["iat"], claims["exp"] = now.Unix(), now.Add(time.Hour).Unix()
		token, err := signer.Sign(claims)
		return &world.Client{URL: url, Token: token}, err
	}
	return t, nil
}

// demoTools are the tools that the shipped catalogue has of some servers.
func demoTools(servers []string) ([]registry.Tool, error) {
	all, err := world.Tools(catalogue.FS, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	for _, name := range servers {
		if !slices.ContainsFunc(all, func(t registry.Tool) bool { return t.Server == name }) {
			return nil, fmt.Errorf("the shipped catalogue has no server %s: see registry/catalogue, or regogate registry status", name)
		}
	}
	return slices.DeleteFunc(all, func(t registry.Tool) bool { return !slices.Contains(servers, t.Server) }), nil
}

// demoListen serves until ctx ends, and answers /health.
func demoListen(ctx context.Context, address string, mux *http.ServeMux, stderr io.Writer) error {
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w: choose another address, or end what uses this one", err)
	}
	fmt.Fprintf(stderr, "listening on %s\n", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
