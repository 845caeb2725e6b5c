package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/auth/mint"
)

type tokenFlags struct {
	persona, key, issuer, audience, subject, claims, jwks string
	valid                                                 time.Duration
}

func tokenCommand() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Mint a token with a key file, for trials and tests",
		Long: "Signs a token with the private key in --key, or else the demo's, and prints it. For the demo, and\n" +
			"with the key that regogate init --with-key made, this is all:\n\n" +
			"  regogate token --persona developer\n" +
			"  regogate token --key demo-key.pem --persona developer\n\n" +
			"--jwks writes the key set that a gateway verifies the token with; then a key that does not exist\n" +
			"yet is made (ES256).",
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := f.mint()
			if err != nil {
				return fmt.Errorf("regogate token: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.key, "key", "", "PEM file of the private key (RSA, P-256 or Ed25519); the demo's where there is none")
	flags.StringVar(&f.jwks, "jwks", "", "write the public key set to this file, too")
	flags.StringVar(&f.issuer, "issuer", world.Issuer, "the claim iss")
	flags.StringVar(&f.audience, "audience", world.Audience, "the claim aud")
	flags.StringVar(&f.persona, "persona", "", "a persona of the demo: "+strings.Join(world.Personas(), ", ")+"; sets sub and roles")
	flags.StringVar(&f.subject, "subject", "", "the claim sub")
	flags.StringVar(&f.claims, "claims", "", "further claims, as a JSON object")
	flags.DurationVar(&f.valid, "valid", time.Hour, "how long the token is good for")
	return cmd
}

func (f *tokenFlags) mint() (string, error) {
	claims, err := f.claim()
	if err != nil {
		return "", err
	}
	if f.valid <= 0 {
		return "", errors.New("--valid: must be more than 0")
	}
	signer, err := f.signer()
	if err != nil {
		return "", err
	}
	now := time.Now()
	claims["iss"], claims["aud"] = f.issuer, f.audience
	claims["iat"], claims["exp"] = now.Unix(), now.Add(f.valid).Unix()
	return signer.Sign(claims)
}

// claim returns the claims that say whose the token is. Numbers in --claims
// keep their digits.
func (f *tokenFlags) claim() (map[string]any, error) {
	claims := map[string]any{}
	if f.persona != "" {
		var err error
		if claims, err = world.Claims(f.persona); err != nil {
			return nil, fmt.Errorf("--persona: %w", err)
		}
	}
	var further map[string]jsontext.Value
	if f.claims != "" {
		if err := json.Unmarshal([]byte(f.claims), &further); err != nil || further == nil {
			return nil, errors.New(`--claims: is not a JSON object: write it like '{"roles":["developer"]}'`)
		}
	}
	for name, value := range further {
		claims[name] = value
	}
	if f.subject != "" {
		claims["sub"] = f.subject
	}
	if claims["sub"] == nil {
		return nil, errors.New("--subject: is missing: give it or --persona, for a token says whose it is")
	}
	return claims, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// signer opens the key. It makes one only where the key set is asked for as
// well: a mistyped name would give tokens that no gateway knows.
func (f *tokenFlags) signer() (*mint.Signer, error) {
	if f.key == "" {
		if f.key = demoKey(); !exists(f.key) {
			return nil, errors.New("--key: is missing, and no demo has run here: start regogate demo, or name the key that regogate init --with-key made, or a new one together with --jwks")
		}
	}
	if _, err := os.Stat(f.key); errors.Is(err, fs.ErrNotExist) && f.jwks == "" {
		return nil, fmt.Errorf("--key: %s does not exist: correct the name, or make a new key and its key set with --jwks FILE", f.key)
	}
	signer, err := mint.Open(f.key, "ES256")
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	if f.jwks == "" {
		return signer, nil
	}
	keys, err := mint.KeySet(signer)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(f.jwks, keys, 0o644); err != nil {
		return nil, fmt.Errorf("--jwks: %w", err)
	}
	return signer, nil
}
