//go:build deps

// Package regogate keeps the module's requirements stable while packages land.
package regogate

import (
	_ "github.com/MicahParks/jwkset"
	_ "github.com/alicebob/miniredis/v2"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/go-chi/chi/v5"
	_ "github.com/go-json-experiment/json/jsontext"
	_ "github.com/golang-jwt/jwt/v5"
	_ "github.com/google/uuid"
	_ "github.com/hashicorp/golang-lru/v2/expirable"
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
	_ "github.com/open-policy-agent/opa/cmd"
	_ "github.com/open-policy-agent/opa/v1/rego"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "pgregory.net/rapid"
)
