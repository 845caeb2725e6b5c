package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
	"github.com/regogate/regogate/gateway/policy"
)

func bundleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Build, sign, verify, inspect and serve policy bundles",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(bundleBuildCommand(), bundleSignCommand(), bundleVerifyCommand(), bundleInspectCommand())
	cmd.AddCommand(bundleServeCommands()...)
	return cmd
}

// signing is the flags of what signs.
type signing struct {
	key, algorithm, id, scope string
	expires                   time.Duration
}

func (s *signing) flags(cmd *cobra.Command) {
	s.keyFlags(cmd)
	cmd.Flags().StringVar(&s.scope, "scope", "", "scope that verifiers must ask for")
}

func (s *signing) keyFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.key, "signing-key", "", "private key: PEM, JWKS, or for HS* the file with the secret")
	cmd.Flags().StringVar(&s.algorithm, "signing-alg", "", "signature algorithm: "+strings.Join(keys.Algorithms(), ", ")+" (default: the first that goes with the key)")
	cmd.Flags().StringVar(&s.id, "key-id", "", "name of the key, which verifiers look it up by; chooses a key of a JWKS")
	cmd.Flags().DurationVar(&s.expires, "expires-in", 0, "how long the signature is good, such as 720h (default: for ever)")
}

// read returns nothing where no key is named.
func (s *signing) read() (*keys.Key, bundles.Claims, error) {
	claims := bundles.Claims{Scope: s.scope}
	if s.expires < 0 {
		return nil, claims, fmt.Errorf("--expires-in: %v is negative", s.expires)
	}
	if s.expires > 0 {
		claims.Expires = time.Now().Add(s.expires)
	}
	if s.key == "" {
		if s.algorithm != "" || s.id != "" || s.scope != "" || s.expires != 0 {
			return nil, claims, errors.New("--signing-key: name the key to sign with, or leave out what is said of it")
		}
		return nil, claims, nil
	}
	key, err := keys.ReadSigning(s.key, s.algorithm, s.id)
	if err != nil {
		return nil, claims, fmt.Errorf("--signing-key: %w", err)
	}
	return key, claims, nil
}

func bundleBuildCommand() *cobra.Command {
	var output string
	var insecure []string
	var sign signing
	o := bundles.Options{}
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Make a bundle of a policy directory",
		Long: "Makes a bundle of the modules and data in a directory, as they are written: nothing is optimised, which\n" +
			"can turn a no into a yes. The same files give the same bytes, wherever they are. A policy that a gateway\n" +
			"would refuse is refused, and what it would warn of is told. Tests and names that begin with a dot stay\n" +
			"out; the only JSON and YAML is data.json, data.yaml and data.yml. A .manifest is not read: say what it\n" +
			"would with --revision and --root.\n\n" +
			"The key is in PEM or a JWKS. For a secret name the algorithm, and let its file end without a line end\n" +
			"(printf %s \"$SECRET\" > secret), or else the line end is part of the secret.",
		Example: "  regogate bundle build policies/ -o authz.tar.gz\n" +
			"  regogate bundle build policies/ -o authz.tar.gz --revision v42 --signing-key key.pem --key-id prod",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := only(cmd, args, "directory")
			if err != nil {
				return err
			}
			if o.Key, o.Claims, err = sign.read(); err != nil {
				return err
			}
			report := policy.Examine(dir, policy.Config{InsecureBuiltins: insecure})
			for _, w := range report.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			if len(report.Problems) > 0 {
				return report.Problems
			}
			b, err := bundles.Build(dir, o)
			if err != nil {
				return err
			}
			return put(cmd, output, b.Bytes, fmt.Sprintf("revision %s, roots %s", b.Revision, rootList(b.Roots)))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "bundle.tar.gz", "file to write; - for standard output")
	cmd.Flags().StringVar(&o.Revision, "revision", "", "revision (default: a digest of the content)")
	cmd.Flags().StringSliceVar(&o.Roots, "root", nil, "roots that the bundle owns (default: mcp, and system/log where it has a mask)")
	cmd.Flags().StringSliceVar(&insecure, "insecure-builtins", nil, "built-in functions that the gateway's insecure_builtins turns on")
	sign.flags(cmd)
	return cmd
}

func bundleSignCommand() *cobra.Command {
	var output string
	var sign signing
	cmd := &cobra.Command{
		Use:   "sign BUNDLE",
		Short: "Sign a bundle, in place of any signature that it has",
		Long: "Signs the files of a bundle, whoever made it, and leaves them as they are. OPA verifies the signature, and\n" +
			"knows nothing of --expires-in; a gateway refuses a bundle whose time is over, also its own copy when it\n" +
			"starts. A delta bundle cannot be signed. The key is as for bundle build.",
		Example: "  regogate bundle sign authz.tar.gz --signing-key key.pem --key-id prod\n" +
			"  regogate bundle sign authz.tar.gz --signing-key keys.json --key-id 2026 -o signed.tar.gz --expires-in 720h",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := only(cmd, args, "bundle")
			if err != nil {
				return err
			}
			key, claims, err := sign.read()
			switch {
			case err != nil:
				return err
			case key == nil:
				return errors.New("--signing-key: name the key to sign with")
			}
			body, err := readFile(path)
			if err != nil {
				return err
			}
			signed, err := bundles.Sign(body, key, claims)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if output == "" {
				output = path
			}
			return put(cmd, output, signed, "signed with "+signedWith(bundles.Signature{
				Algorithm: key.Algorithm, KeyID: key.ID, Scope: claims.Scope, Expires: claims.Expires.UTC(),
			}))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; - for standard output (default: the bundle itself)")
	sign.flags(cmd)
	return cmd
}

func bundleVerifyCommand() *cobra.Command {
	var keyFile, algorithm, id, scope string
	cmd := &cobra.Command{
		Use:   "verify BUNDLE",
		Short: "Say whether a bundle is signed with a key, whole and unchanged",
		Long: "Verifies as OPA does: the signature, and that it covers every file and no other. An expired one is\n" +
			"refused, too. Of several keys in a JWKS the one that the signature names is asked, or the one of --key-id.\n" +
			"It exits with 1 where the bundle does not verify.",
		Example: "  regogate bundle verify authz.tar.gz --verification-key public.pem\n" +
			"  regogate bundle verify authz.tar.gz --verification-key jwks.json --scope prod",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := only(cmd, args, "bundle")
			switch {
			case err != nil:
				return err
			case keyFile == "":
				return errors.New("--verification-key: name the key to verify with")
			}
			with, err := keys.ReadVerification(keyFile, algorithm, id)
			if err != nil {
				return fmt.Errorf("--verification-key: %w", err)
			}
			body, err := readFile(path)
			if err != nil {
				return err
			}
			info, err := bundles.Verify(body, with, scope, time.Now())
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: verified, revision %s, signed with %s\n", path, plain(cmp.Or(info.Revision, "none")), signedWith(info.Signatures[0]))
			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "verification-key", "", "public key or certificate in PEM, a JWKS, or for HS* the file with the secret")
	cmd.Flags().StringVar(&algorithm, "alg", "", "signature algorithm; needed for a secret (default: the first that goes with the key)")
	cmd.Flags().StringVar(&id, "key-id", "", "name of the key; chooses a key of a JWKS")
	cmd.Flags().StringVar(&scope, "scope", "", "scope that the signature must have")
	return cmd
}

func bundleInspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect BUNDLE",
		Short: "Say what is in a bundle; a signature is shown, not verified",
		Long: "Shows the manifest, the files with their sizes in bytes, and what the signature says of itself. Of a\n" +
			"bundle that OPA does not read it shows what can be seen, and the problem.",
		Example: "  regogate bundle inspect authz.tar.gz\n  regogate bundle inspect authz.tar.gz --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := only(cmd, args, "bundle")
			if err != nil {
				return err
			}
			body, err := readFile(path)
			if err != nil {
				return err
			}
			info, err := bundles.Inspect(body)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(info)
			}
			printInfo(cmd.OutOrStdout(), info)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func printInfo(out io.Writer, i *bundles.Info) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%-13s %s\n", name, value)
		}
	}
	row("problem", plain(i.Problem))
	row("revision", plain(i.Revision))
	row("kind", i.Kind)
	if i.Wasm {
		row("wasm", "yes, which a gateway does not use")
	}
	row("roots", rootList(i.Roots))
	if i.RegoVersion != nil {
		row("rego version", fmt.Sprint(*i.RegoVersion))
	}
	row("entry points", plain(strings.Join(i.Entrypoints, ", ")))
	row("packages", plain(strings.Join(i.Packages, ", ")))
	for _, s := range i.Signatures {
		row("signature", fmt.Sprintf("%s, %d files, not verified", signedWith(s), s.Files))
	}
	if len(i.Signatures) == 0 {
		row("signature", "none")
	}
	row("size", fmt.Sprintf("%d bytes, unpacked %d", i.Size, i.Unpacked))
	for _, f := range i.Files {
		fmt.Fprintf(out, "  %9d  %s\n", f.Size, plain(f.Name))
	}
}

func rootList(roots []string) string {
	list := make([]string, len(roots))
	for i, r := range roots {
		if list[i] = plain(r); r == "" {
			list[i] = `"", which is everything`
		}
	}
	return strings.Join(list, ", ")
}

func signedWith(s bundles.Signature) string {
	text := plain(s.Algorithm)
	if s.KeyID != "" {
		text += ", key " + plain(s.KeyID)
	}
	if s.Scope != "" {
		text += ", scope " + plain(s.Scope)
	}
	if !s.Expires.IsZero() {
		text += ", until " + s.Expires.Format(time.RFC3339)
	}
	return text
}

// plain keeps what a bundle says from writing to the terminal what it likes.
func plain(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// only returns the one argument that a command takes.
func only(cmd *cobra.Command, args []string, what string) (string, error) {
	if len(args) != 1 {
		return "", fmt.Errorf("%s: name one %s: see %[1]s --help", cmd.CommandPath(), what)
	}
	return args[0], nil
}

// readFile reads no more of a bundle than shows that it is too large.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the bundle cannot be read: %w", err)
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, bundles.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("the bundle cannot be read: %w", err)
	}
	return body, nil
}

// put writes a file whole or not at all, and into what is no file, such as a pipe.
func put(cmd *cobra.Command, path string, body []byte, what string) error {
	if path == "-" {
		_, err := cmd.OutOrStdout().Write(body)
		return err
	}
	err := errors.New("--output: name a file, or - for standard output")
	if path != "" {
		err = replace(path, body)
	}
	if err != nil {
		return fmt.Errorf("the bundle cannot be written: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", path, what)
	return nil
}

func replace(path string, body []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, body, 0o644)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".bundle-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(body)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
