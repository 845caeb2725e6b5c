package main

import (
	"fmt"
	"runtime"

	opa "github.com/open-policy-agent/opa/v1/version"
)

// versions is a line for everything whose version matters in a report.
func versions() string {
	return fmt.Sprintf("regogate %s\nOPA %s\n%s %s/%s\n", version, opa.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
