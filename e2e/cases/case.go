// Package cases runs public fault reports through the front door of a gateway.
// Each report is one data file under testdata: a world, the requests that did
// harm, what must come of them, and a benign twin that must succeed. What counts
// is what arrives at the backends, which write down everything that reaches
// them. README.md says how to write a file; the types in case.go, backend.go and step.go
// are its format.
package cases

import (
	"time"

	"github.com/regogate/regogate/gateway/auth"
)

// Case is one file.
type Case struct {
	ID          string `yaml:"id"`
	Title       string `yaml:"title"`
	Source      string `yaml:"source"`
	Expectation string `yaml:"expectation"` // in words
	Serial      bool   `yaml:"serial"`      // must run alone: it measures

	World  World   `yaml:"world"`
	Steps  []Step  `yaml:"steps"`
	Benign []Step  `yaml:"benign"`
	Scenes []Scene `yaml:"scenes"` // further worlds, each with its own steps
}

// Scene is a world of its own within a case.
type Scene struct {
	Name   string `yaml:"name"`
	Each   []any  `yaml:"each"`  // the scene runs once for each, as <<each>> or <<KEY>>
	World  *World `yaml:"world"` // the case's where it is missing
	Steps  []Step `yaml:"steps"`
	Benign []Step `yaml:"benign"`
}

// World is what surrounds and configures one gateway. What is left out is as
// the reports' conventions have it: one backend alpha with the tools read and
// delete, a policy that allows alpha's read, one issuer with one key, and every
// tool registered.
type World struct {
	Config    string             `yaml:"config"`    // a fragment of regogate.yaml, over the runner's own
	Policy    string             `yaml:"policy"`    // Rego of package mcp.authz, or "shipped"
	Library   bool               `yaml:"library"`   // put the shipped mcp.lib beside that policy
	Catalogue string             `yaml:"catalogue"` // YAML of the registry, or "shipped"
	Backends  map[string]Backend `yaml:"backends"`
	Issuers   map[string]Issuer  `yaml:"issuers"`
	Keys      map[string]string  `yaml:"keys"` // name to rsa, rsa1024, p256 or ed25519; k1 is rsa
	Tokens    map[string]Token   `yaml:"tokens"`
	Redis     bool               `yaml:"redis"` // put a Redis between the catalogue and the gateway
	Depot     *Depot             `yaml:"depot"` // the policy comes from a bundle server
	Sink      *Sink              `yaml:"sink"`  // what is decided is uploaded
	// Proxy stands in front of the gateway, for steps that are proxied, and
	// drops connections over which nothing has come for so long.
	Proxy time.Duration `yaml:"proxy"`
	// Start is what is waited for before the first step: ready (the default),
	// able (it decides, something may be down) or live (it listens).
	Start string `yaml:"start"`
}

// Issuer is one party whose tokens the gateway takes.
type Issuer struct {
	JWKS     []JWK       `yaml:"jwks"`
	Document string      `yaml:"document"` // the exact answer instead of a key set
	Mode     string      `yaml:"mode"`     // see Action
	Config   auth.Issuer `yaml:"config"`   // over the runner's own
}

// JWK is one published key; members that are left out are not published.
type JWK struct {
	Key    string `yaml:"key"`
	KID    string `yaml:"kid"`
	Alg    string `yaml:"alg"`
	Use    string `yaml:"use"`
	Raw    string `yaml:"raw"`    // the exact JSON instead
	Copies int    `yaml:"copies"` // how often; once where 0
}

// Token is a token and how it is forged. The zero value is a good one.
type Token struct {
	Issuer   string         `yaml:"issuer"`   // of the world; main where empty
	Claims   map[string]any `yaml:"claims"`   // over the usual ones
	Without  []string       `yaml:"without"`  // claims to leave out
	Payload  string         `yaml:"payload"`  // the exact payload instead
	Header   string         `yaml:"header"`   // the exact header
	Key      string         `yaml:"key"`      // what signs; k1 where empty
	Sign     string         `yaml:"sign"`     // the algorithm it signs with; the key's usual one where empty
	HMAC     string         `yaml:"hmac"`     // HS256 with pem, modulus or jwks of the key, or with nothing: empty
	Unsigned bool           `yaml:"unsigned"` // the signature is empty
	Text     string         `yaml:"text"`     // the exact token
}
