package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

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
		Long: "Signs a token with the private key in --key, which is made (ES256) where the file does not exist\n" +
			"yet, and prints it. --jwks writes the key set that a gateway verifies it with.\n\n" +
			"  regogate token --key demo.pem --jwks demo.jwks.json --issuer https://idp.example.com \\\n" +
			"    --audience mcp-gateway --persona developer",
		Args: cobra.NoArgs,
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
	flags.StringVar(&f.key, "key", "", "PEM file of the private key (RSA, P-256 or Ed25519)")
	flags.StringVar(&f.jwks, "jwks", "", "write the public key set to this file, too")
	flags.StringVar(&f.issuer, "issuer", "", "the claim iss")
	flags.StringVar(&f.audience, "audience", "", "the claim aud")
	flags.StringVar(&f.persona, "persona", "", "a persona of the demo: payments, developer, support, analyst, admin; sets sub and roles")
	flags.StringVar(&f.subject, "subject", "", "the claim sub")
	flags.StringVar(&f.claims, "claims", "", "further claims, as a JSON object")
	flags.DurationVar(&f.valid, "valid", time.Hour, "how long the token is good for")
	for _, name := range []string{"key", "issuer", "audience"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

func (f *tokenFlags) mint() (string, error) {
	claims := map[string]any{}
	if f.claims != "" {
		if err := json.Unmarshal([]byte(f.claims), &claims); err != nil {
			return "", fmt.Errorf("--claims: %w: give a JSON object, such as '{\"roles\":[\"developer\"]}'", err)
		}
	}
	if f.persona != "" {
		persona, err := world.Claims(f.persona)
		if err != nil {
			return "", fmt.Errorf("--persona: %w", err)
		}
		for name, value := range persona {
			claims[name] = value
		}
	}
	if f.subject != "" {
		claims["sub"] = f.subject
	}
	if claims["sub"] == nil {
		return "", errors.New("--subject or --persona is needed: a token says whose it is")
	}
	if f.valid <= 0 {
		return "", errors.New("--valid: must be more than 0")
	}
	signer, err := mint.Open(f.key, "ES256")
	if err != nil {
		return "", fmt.Errorf("--key: %w", err)
	}
	if f.jwks != "" {
		keys, err := mint.KeySet(signer)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(f.jwks, keys, 0o644); err != nil {
			return "", fmt.Errorf("--jwks: %w", err)
		}
	}
	now := time.Now()
	claims["iss"], claims["aud"] = f.issuer, f.audience
	claims["iat"], claims["exp"] = now.Unix(), now.Add(f.valid).Unix()
	return signer.Sign(claims)
}
