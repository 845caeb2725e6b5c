package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
	"github.com/regogate/regogate/registry"
)

func registrySignCommand(r *registryFlags) *cobra.Command {
	var a author
	var sign signing
	cmd := &cobra.Command{
		Use:   "sign [DIR]",
		Short: "Sign a catalogue, for gateways with registry.verify",
		Long: "Signs what the catalogue in DIR, a file or a directory as registry.path names one, says of servers and tools,\n" +
			"pins included, and writes DIR/catalogue.sig, or FILE.sig. Without DIR it signs the registry of the\n" +
			"configuration, also in PostgreSQL, whatever that holds: look at it first, with sync --dry-run against\n" +
			"what was reviewed.\n\n" +
			"Quarantine is not signed, so that it waits for nobody. Sign again after every other change. Gateways\n" +
			"deny everything when --expires-in is over. The keys are those that sign bundles.",
		Example: "  regogate registry sign catalogue --signing-key key.pem --key-id prod\n" +
			"  regogate registry sign --signing-key keys.json --key-id 2026 --expires-in 720h",
		RunE: func(cmd *cobra.Command, args []string) error {
			key, _, err := sign.read()
			switch {
			case err != nil:
				return err
			case key == nil:
				return errors.New("--signing-key: name the key to sign with")
			case len(args) > 1, len(args) == 1 && cmd.Flags().Changed("config"):
				return fmt.Errorf("%s: name one directory, or a configuration with --config: see %[1]s --help", cmd.CommandPath())
			}
			claims := registry.Claims{ExpiresIn: sign.expires}
			if len(args) == 1 {
				return signFiles(cmd, args[0], key, claims)
			}
			return r.sign(cmd, a, key, claims)
		},
	}
	sign.keyFlags(cmd)
	a.flags(cmd, "reason", "why, for the history in PostgreSQL")
	return cmd
}

func signFiles(cmd *cobra.Command, path string, key *keys.Key, claims registry.Claims) error {
	now := time.Now()
	c, path, err := registry.SignFile(path, key, claims, now)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: revision %s, signed with %s\n", path, c.Head.Revision, signedBy(key, claims, now))
	return nil
}

// sign signs the registry of the configuration, with a key whose signatures that
// takes.
func (r *registryFlags) sign(cmd *cobra.Command, a author, key *keys.Key, claims registry.Claims) error {
	by, err := a.author()
	if err != nil {
		return err
	}
	config, _, err := r.load()
	if err != nil {
		return err
	}
	if verify := config.Registry.Verify; verify != nil {
		if err := verifies(*verify, key, registry.Claims{ExpiresIn: claims.ExpiresIn}); err != nil {
			return fmt.Errorf("--signing-key: gateways of %s would refuse what it signs: %w", r.path, err)
		}
	}
	switch {
	case config.Registry.Postgres != nil:
		return signPostgres(cmd, *config.Registry.Postgres, by, key, claims)
	case config.Registry.Path != "":
		return signFiles(cmd, config.Registry.Path, key, claims)
	}
	return fmt.Errorf("%s: registry.path: missing; the catalogue that comes with the binary is not signed: name yours", r.path)
}

// asSigned reports why gateways refuse the catalogue as it is: what somebody else
// slipped in is not signed along with a change.
func (d *desk) asSigned(c *registry.Catalogue) error {
	if d.config.Registry.Verify == nil {
		return nil
	}
	verifier, err := registry.NewVerifier(*d.config.Registry.Verify)
	if err != nil {
		return err
	}
	if _, err := verifier.Verify(c, time.Now()); err != nil {
		return fmt.Errorf("%s of the registry: %w, having looked at it", revision(c.Head), err)
	}
	return nil
}

// signAgain signs the catalogue that approving made of before, and no other. Without
// a key it says what is left to do.
func (r *registryFlags) signAgain(cmd *cobra.Command, a author, before, approved *registry.Catalogue, key *keys.Key, claims registry.Claims) error {
	switch {
	case approved.Content == before.Content || key == nil && before.Signature == "":
		return nil
	case key == nil:
		fmt.Fprintln(cmd.ErrOrStderr(), "note: no signature covers that: sign the registry with regogate registry sign, before gateways that ask for one deny everything (max_staleness)")
		return nil
	}
	claims.Content = approved.Content
	cmd.SetContext(context.WithoutCancel(cmd.Context())) // gateways deny what is pinned and not signed
	return r.sign(cmd, a, key, claims)
}

// verifies reports why gateways would refuse any signature of the key.
func verifies(c registry.VerifyConfig, key *keys.Key, claims registry.Claims) error {
	verifier, err := registry.NewVerifier(c)
	if err != nil {
		return err
	}
	empty, err := registry.NewCatalogue("", registry.Catalogue{})
	if err != nil {
		return err
	}
	now := time.Now()
	if empty.Signature, err = registry.Sign(empty, key, claims, now); err != nil {
		return err
	}
	_, err = verifier.Verify(empty, now)
	return err
}

func signPostgres(cmd *cobra.Command, config registry.PostgresConfig, by registry.Author, key *keys.Key, claims registry.Claims) error {
	ctx, now := cmd.Context(), time.Now()
	store, err := registry.NewPostgres(ctx, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	c, err := store.Load(ctx, head)
	if err != nil {
		return err
	}
	signed := *c
	if signed.Signature, err = registry.Sign(c, key, claims, now); err != nil {
		return err
	}
	if head, err = store.Replace(ctx, by, c.Head, &signed, registry.ReplaceOptions{}); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s, signed with %s\n", revision(head), signedBy(key, claims, now))
	return nil
}

func signedBy(key *keys.Key, claims registry.Claims, now time.Time) string {
	s := bundles.Signature{Algorithm: key.Algorithm, KeyID: key.ID}
	if claims.ExpiresIn > 0 {
		s.Expires = now.Add(claims.ExpiresIn).UTC()
	}
	return signedWith(s)
}
