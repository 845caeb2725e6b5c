package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/regogate/regogate/cmd/regogate/review"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/diff"
)

// postgres opens the registry where it is in PostgreSQL; instead is what files
// have.
func (r *registryFlags) postgres(cmd *cobra.Command, instead string) (*registry.Postgres, error) {
	config, _, err := r.load()
	if err != nil {
		return nil, err
	}
	if config.Registry.Postgres == nil {
		return nil, fmt.Errorf("%s: %s: has no registry.postgres: %s", cmd.CommandPath(), r.path, instead)
	}
	return registry.NewPostgres(cmd.Context(), *config.Registry.Postgres, slog.New(slog.DiscardHandler))
}

func registryMigrateCommand(r *registryFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Make the tables of a registry in PostgreSQL, or bring them up to this version",
		Long: "Makes the tables in the schema of registry.postgres, or changes them to those that this version needs, all\n" +
			"or nothing. A gateway refuses tables of another version, so migrate before the gateways are replaced. It\n" +
			"may be run again and by several at once. The role has to own the schema, or to be allowed to make it.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, _, err := r.load()
			if err != nil {
				return err
			}
			if config.Registry.Postgres == nil {
				return fmt.Errorf("%s: %s: has no registry.postgres: a catalogue in files needs no tables", cmd.CommandPath(), r.path)
			}
			from, to, err := registry.Migrate(cmd.Context(), *config.Registry.Postgres)
			if err != nil {
				return err
			}
			done := fmt.Sprintf("migrated from version %d to %d", from, to)
			switch from {
			case to:
				done = fmt.Sprintf("nothing to do: the tables have version %d", to)
			case 0:
				done = fmt.Sprintf("made the tables of version %d", to)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", config.Registry.Source(), done)
			return nil
		},
	}
}

func registrySyncCommand(r *registryFlags) *cobra.Command {
	var a author
	s := &review.Sync{}
	cmd := &cobra.Command{
		Use:   "sync DIR",
		Short: "Make the registry in PostgreSQL what the catalogue in a directory says",
		Long: "Replaces servers, tools and signature by those of the catalogue in DIR, a file or a directory as registry.path\n" +
			"names one, all or nothing, and prints what changes. Where somebody else changes the registry meanwhile\n" +
			"it changes nothing and exits with 1: repeat it.\n\n" +
			"Quarantine is never touched. Pins that the registry has stay, because approve writes them there: with\n" +
			"--drop-pins they become those of DIR. A signature beside the catalogue comes along.",
		Example: "  regogate registry sync catalogue --dry-run\n" +
			"  regogate registry sync catalogue --reason \"$(git rev-parse HEAD)\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if s.From, err = only(cmd, args, "DIR"); err != nil {
				return err
			}
			if s.By, err = a.author(); err != nil {
				return err
			}
			store, err := r.postgres(cmd, "a catalogue in files is the registry itself: change the files")
			if err != nil {
				return err
			}
			defer store.Close()
			file, err := registry.OpenFile(s.From, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer file.Close()
			to, err := file.Load(cmd.Context(), registry.Head{})
			if err != nil {
				return err
			}
			s.Out = cmd.OutOrStdout()
			return s.Run(cmd.Context(), store, to)
		},
	}
	a.flags(cmd, "reason", "why, for the history")
	cmd.Flags().BoolVar(&s.DryRun, "dry-run", false, "print what would change, and change nothing")
	cmd.Flags().BoolVar(&s.DropPins, "drop-pins", false, "take the pins of DIR, also where the registry has others")
	cmd.Flags().BoolVar(&s.Repair, "repair", false, "write a registry anew whose tables were changed past regogate")
	return cmd
}

func registryHistoryCommand(r *registryFlags) *cobra.Command {
	var filter registry.HistoryFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Say who changed what in a registry in PostgreSQL, the newest first",
		Example: "  regogate registry history --server stripe --tool create_refund\n" +
			"  regogate registry history --limit 1000 --json",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Limit < 1 {
				return errors.New("--limit: want 1 or more")
			}
			store, err := r.postgres(cmd, "a catalogue in files has no history of its own: look into its version control")
			if err != nil {
				return err
			}
			defer store.Close()
			events, err := store.History(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if asJSON {
				return writeHistory(cmd.OutOrStdout(), events)
			}
			printHistory(cmd.OutOrStdout(), events)
			return nil
		},
	}
	cmd.Flags().StringVar(&filter.Server, "server", "", "only changes of this server and its tools")
	cmd.Flags().StringVar(&filter.Tool, "tool", "", "only changes of tools of this name")
	cmd.Flags().IntVar(&filter.Limit, "limit", 100, "no more changes than this")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON, an object a line, with nothing left out")
	return cmd
}

// entry is one line of a history as JSON.
type entry struct {
	Revision string         `json:"revision"`
	At       time.Time      `json:"at"`
	By       string         `json:"by"`
	Note     string         `json:"note,omitempty"`
	What     string         `json:"what"`
	Server   string         `json:"server,omitempty"`
	Tool     string         `json:"tool,omitempty"`
	Old      jsontext.Value `json:"old,omitzero"`
	New      jsontext.Value `json:"new,omitzero"`
}

func writeHistory(out io.Writer, events []registry.Event) error {
	for _, e := range events {
		line, err := json.Marshal(entry{e.Revision, e.At, e.By.Name, e.By.Note, e.What, e.Server, e.Tool, e.Old, e.New}, json.Deterministic(true))
		if err != nil {
			return err
		}
		fmt.Fprintln(out, diff.Plain(string(line)))
	}
	return nil
}

func printHistory(out io.Writer, events []registry.Event) {
	last := ""
	for _, e := range events {
		if e.Revision != last {
			last = e.Revision
			fmt.Fprintf(out, "revision %s, %s, by %s", e.Revision, e.At.Format(time.RFC3339), plain(e.By.Name))
			if e.By.Note != "" {
				fmt.Fprintf(out, ": %s", plain(e.By.Note))
			}
			fmt.Fprintln(out)
		}
		diff.Print(out, "  ", []diff.Change{diff.Thing(plain(e.What), plain(e.Server), plain(e.Tool), e.Old, e.New)})
	}
	if len(events) == 0 {
		fmt.Fprintln(out, "no change is on record")
	}
}
