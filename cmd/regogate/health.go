package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/registry/strictyaml"
)

func healthCommand() *cobra.Command {
	var path, url string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running gateway whether it is ready, as containers are checked",
		Long: "Asks /readyz of the gateway that the configuration describes, on this machine, prints the answer and\n" +
			"exits with 0 where it is 200, ready or degraded, and with 1 otherwise. Of the configuration only listen\n" +
			"has to be right. With --url it asks that instead, and reads no configuration.",
		Example: "  regogate health -c regogate.yaml\n" +
			"  regogate health --url http://127.0.0.1:8181/health      # of a bundle server",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if url == "" {
				var err error
				if url, err = readiness(path); err != nil {
					return err
				}
			}
			return askHealth(cmd.Context(), url, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", draft.ConfigName, "configuration file of the gateway")
	cmd.Flags().StringVar(&url, "url", "", "ask this URL instead")
	cmd.MarkFlagsMutuallyExclusive("config", "url")
	return cmd
}

// readiness is where the gateway of a configuration answers on this machine.
// What else is wrong with the configuration is no matter: the gateway may have
// been started with a better one.
func readiness(path string) (string, error) {
	config, problems := gateway.Load(path, os.LookupEnv, listenOn(""))
	for _, p := range problems {
		if p.Path == "" || p.Path == "listen" {
			return "", strictyaml.Err([]strictyaml.Problem{p})
		}
	}
	host, port, err := net.SplitHostPort(config.Listen)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	if addr, _ := netip.ParseAddr(host); host == "" || addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz", nil
}

const (
	healthTimeout = 5 * time.Second
	mostHealth    = 1 << 20 // bytes of an answer
)

// askHealth prints the answer, whatever it is, and fails where it is not 2xx. It
// asks directly, past any proxy, and follows no redirect.
func askHealth(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("regogate health: --url: %w: want such as http://127.0.0.1:8080/readyz", err)
	}
	resp, err := (&http.Transport{}).RoundTrip(r)
	if err != nil {
		return fmt.Errorf("regogate health: GET %s: %w: is it running?", url, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostHealth))
	if err != nil {
		return fmt.Errorf("regogate health: GET %s: %w", url, err)
	}
	if text := strings.TrimSpace(string(body)); text != "" {
		fmt.Fprintln(out, text)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("regogate health: GET %s: %s", url, resp.Status)
	}
	return nil
}
