package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/regogate/regogate/cmd/regogate/draft"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/diff"
)

// Sync makes a registry that commands write what a catalogue says.
type Sync struct {
	From     string // where the catalogue is, for people
	DryRun   bool   // say what would change, and change nothing
	DropPins bool   // pins are those of the catalogue, also where the registry has others
	Repair   bool   // a registry that was changed past regogate is written anew
	By       registry.Author
	Out      io.Writer
}

// Replaceable is a registry whose catalogue can be replaced as a whole.
type Replaceable interface {
	registry.Source
	// Replace is as that of registry.Postgres.
	Replace(ctx context.Context, by registry.Author, from registry.Head, to *registry.Catalogue, o registry.ReplaceOptions) (registry.Head, error)
}

// Run prints what changes and changes it, all or nothing. Quarantine stays as it
// is, and unless DropPins is set so do pins that the registry has. The error wraps
// registry.ErrConflict where the registry changed meanwhile.
func (s *Sync) Run(ctx context.Context, store Replaceable, to *registry.Catalogue) error {
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	current, err := store.Load(ctx, head)
	switch {
	case err == nil:
		head = current.Head
	case !s.Repair:
		return err
	default:
		fmt.Fprintf(s.Out, "%v\n", err)
	}
	if len(to.Quarantine) > 0 {
		fmt.Fprintf(s.Out, "note: the quarantine in %s is not taken over: regogate registry quarantine and release change it\n", s.From)
	}
	if err := s.tell(current, to); err != nil {
		return err
	}
	if s.DryRun {
		fmt.Fprintln(s.Out, "nothing was changed: --dry-run")
		return nil
	}
	now, err := store.Replace(ctx, s.By, head, to, registry.ReplaceOptions{KeepPins: !s.DropPins, Repair: s.Repair})
	if err != nil {
		return err
	}
	if now == head {
		fmt.Fprintf(s.Out, "nothing to change: revision %s is in force\n", head.Revision)
		return nil
	}
	fmt.Fprintf(s.Out, "in force as revision %s\n", now.Revision)
	return nil
}

// tell prints what Replace would change. Of a registry that could not be loaded
// current is nil.
func (s *Sync) tell(current, to *registry.Catalogue) error {
	next := registry.Catalogue{Servers: slices.Clone(to.Servers), Tools: slices.Clone(to.Tools), Signature: to.Signature}
	if current == nil {
		fmt.Fprintln(s.Out, "all of it is written anew")
		return nil
	}
	next.Quarantine = slices.Clone(current.Quarantine)
	kept := s.keep(current, next.Tools)
	if len(kept) > 0 {
		fmt.Fprintf(s.Out, "note: %s kept that %s lacks or has otherwise (--drop-pins takes what it has): %s\n",
			draft.Count(len(kept), "pin"), s.From, strings.Join(kept[:min(len(kept), most)], ", "))
		if to.Signature != "" {
			return errors.New("the signature does not cover pins that are kept: put them into the catalogue and sign it, or take what it has with --drop-pins")
		}
	}
	becomes, err := registry.NewCatalogue("", next)
	if err != nil {
		return err
	}
	diff.Print(s.Out, "", diff.Catalogues(current, becomes))
	if current.Signature != becomes.Signature {
		fmt.Fprintf(s.Out, "%s\n", signatureChange(current.Signature, becomes.Signature))
	}
	return nil
}

func signatureChange(old, new string) string {
	switch {
	case old == "":
		return "added signature"
	case new == "":
		return "removed signature"
	}
	return "changed signature"
}

// keep gives tools the pins that the registry has, and returns the names of those
// that had another one, or none.
func (s *Sync) keep(current *registry.Catalogue, tools []registry.Tool) (kept []string) {
	if s.DropPins {
		return nil
	}
	pins := map[[2]string]string{}
	for _, t := range current.Tools {
		pins[[2]string{t.Server, t.Name}] = t.SHA256
	}
	for i := range tools {
		t := &tools[i]
		if pin := pins[[2]string{t.Server, t.Name}]; pin != "" && pin != t.SHA256 {
			t.SHA256 = pin
			kept = append(kept, registry.Name(t.Server, t.Name))
		}
	}
	return kept
}
