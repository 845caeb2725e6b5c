package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/cmd/regogate/review"
	"github.com/regogate/regogate/registry"
)

func registryQuarantineCommand(r *registryFlags) *cobra.Command {
	var a author
	cmd := &cobra.Command{
		Use:   "quarantine SERVER[/TOOL]",
		Short: "Take a tool, or a server with all that it offers, out of use at once",
		Long: "Puts a tool or a server into quarantine. It then counts as not registered, which the shipped policies\n" +
			"deny, on every gateway within a second and without a signature. It stays so until it is released,\n" +
			"whatever a catalogue says, and also where the registry has no such tool yet.",
		Example: "  regogate registry quarantine stripe/create_refund --reason 'bcc to an unknown address'\n" +
			"  regogate registry quarantine stripe --reason 'incident 4711' --by alice",
		RunE: func(cmd *cobra.Command, args []string) error {
			server, tool, err := thing(cmd, args)
			if err != nil {
				return err
			}
			if strings.TrimSpace(a.note) == "" {
				return errors.New("--reason: say why, in a line")
			}
			return r.quarantine(cmd, a, server, tool)
		},
	}
	a.flags(cmd, "reason", "why, for people; needed")
	return cmd
}

func (r *registryFlags) quarantine(cmd *cobra.Command, a author, server, tool string) error {
	by, err := a.author()
	if err != nil {
		return err
	}
	d, err := r.open()
	if err != nil {
		return err
	}
	defer d.store.Close()
	// It has to work where the catalogue cannot be loaded, too.
	c, lookErr := d.catalogue(cmd.Context())
	head, err := d.store.Quarantine(cmd.Context(), by, registry.Quarantined{Server: server, Tool: tool, Reason: a.note})
	if err != nil {
		return err
	}
	if head == (registry.Head{}) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is in quarantine\n", registry.Name(server, tool))
		fmt.Fprintf(cmd.ErrOrStderr(), "%v\nnote: until that is mended gateways go on with the last good catalogue and this quarantine, and none can start\n", lookErr)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is in quarantine as of %s\n", registry.Name(server, tool), revision(head))
	if lookErr != nil {
		return nil
	}
	if unknown := d.knows(c, server, tool); unknown != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", unknown)
	}
	return nil
}

func registryReleaseCommand(r *registryFlags) *cobra.Command {
	var a author
	cmd := &cobra.Command{
		Use:     "release SERVER[/TOOL]",
		Short:   "End the quarantine of a tool or a server",
		Long:    "Ends a quarantine of exactly that name: releasing a server leaves tools of it in quarantine that were\nput there on their own.",
		Example: "  regogate registry release stripe/create_refund --reason 'the server was put right'",
		RunE: func(cmd *cobra.Command, args []string) error {
			server, tool, err := thing(cmd, args)
			if err != nil {
				return err
			}
			return r.release(cmd, a, server, tool)
		},
	}
	a.flags(cmd, "reason", "why, for the history")
	return cmd
}

func (r *registryFlags) release(cmd *cobra.Command, a author, server, tool string) error {
	by, err := a.author()
	if err != nil {
		return err
	}
	d, err := r.open()
	if err != nil {
		return err
	}
	defer d.store.Close()
	head, err := d.store.Release(cmd.Context(), by, server, tool)
	if errors.Is(err, registry.ErrUnknown) {
		return d.notInQuarantine(cmd, server, tool)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is released as of %s\n", registry.Name(server, tool), revision(head))
	c, err := d.catalogue(cmd.Context())
	if err != nil {
		return nil // that it is released is what was asked
	}
	for _, q := range c.Quarantine {
		if q.Server == server {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s is in quarantine still: %s\n", registry.Name(q.Server, q.Tool), q.Reason)
		}
	}
	return nil
}

// notInQuarantine says what is.
func (d *desk) notInQuarantine(cmd *cobra.Command, server, tool string) error {
	c, err := d.catalogue(cmd.Context())
	if err != nil {
		return err
	}
	name := registry.Name(server, tool)
	var names []string
	for _, q := range c.Quarantine {
		names = append(names, registry.Name(q.Server, q.Tool))
	}
	switch near := review.DidYouMean(name, names); {
	case near != "":
		return fmt.Errorf("release %s: it is not in quarantine%s", name, near)
	case len(names) == 0:
		return fmt.Errorf("release %s: nothing is in quarantine", name)
	case len(names) > mostShown:
		return fmt.Errorf("release %s: it is not in quarantine; regogate registry status lists what is", name)
	}
	return fmt.Errorf("release %s: it is not in quarantine; these are: %s", name, strings.Join(names, ", "))
}
