//go:build !opacli

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func opaCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "opa",
		Short:              "The OPA command line (not in this build)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("regogate opa: this binary was built without the OPA command line: build it with -tags opacli, as make build does")
		},
	}
}
