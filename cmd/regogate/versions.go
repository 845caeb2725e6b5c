package main

import (
	"runtime"

	opa "github.com/open-policy-agent/opa/v1/version"
)

func opaVersion() string { return opa.Version }

func goVersion() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }
