//go:build opacli

package main

import (
	opa "github.com/open-policy-agent/opa/cmd"
	"github.com/spf13/cobra"
)

// opaCommand is the whole OPA command line.
func opaCommand() *cobra.Command {
	return opa.Command(&cobra.Command{Use: "opa", Short: "The OPA command line: test, fmt, check, eval, bench, build and more"}, "OPA")
}
