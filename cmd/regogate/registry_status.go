package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"
)

func registryStatusCommand(r *registryFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say what the registry holds, and whether a gateway could use it",
		Long:  "Loads the registry as a gateway does, cache and signature included. Where a gateway could not decide by\nit, it exits with 1.",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, _, err := r.load()
			if err != nil {
				return err
			}
			keeper, err := registry.Open(cmd.Context(), config.Registry, catalogue.FS, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer keeper.Close()
			status := keeper.Status()
			if keeper.Current() == nil {
				return errors.New(strings.Join(status.Problems, "\n"))
			}
			printStatus(cmd.OutOrStdout(), config.Registry.Source(), status, keeper.Current())
			if !status.Ready {
				return errors.New("a gateway cannot decide by this registry")
			}
			return nil
		},
	}
}

func printStatus(out io.Writer, source string, status registry.Status, snapshot *registry.Snapshot) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	pinned := 0
	for _, t := range snapshot.Tools() {
		if t.SHA256 != "" {
			pinned++
		}
	}
	row("source", "%s", source)
	row("revision", "%s", status.Revision)
	row("digest", "%s", status.Digest)
	if s := status.Signed; s.By != "" {
		text := s.By + ", at " + s.At.Format(time.RFC3339)
		if !s.Expires.IsZero() {
			text += ", until " + s.Expires.Format(time.RFC3339)
		}
		row("signed", "%s", text)
	}
	row("tools", "%d registered, %d of them pinned; %d only suggested", status.Tools, pinned, status.Suggested)
	list := snapshot.Quarantine()
	row("quarantine", "%d", len(list))
	for _, q := range list[:min(len(list), mostShown)] {
		fmt.Fprintf(out, "  %s%s: %s\n", registry.Name(q.Server, q.Tool), said(q), q.Reason)
	}
	if more := len(list) - mostShown; more > 0 {
		fmt.Fprintf(out, "  and %d more\n", more)
	}
	for _, p := range status.Problems {
		row("problem", "%s", p)
	}
}

// said says who put something into quarantine, and when.
func said(q registry.Quarantined) string {
	var parts []string
	if q.By != "" {
		parts = append(parts, "by "+q.By)
	}
	if !q.Since.IsZero() {
		parts = append(parts, "since "+q.Since.Format(time.RFC3339))
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
